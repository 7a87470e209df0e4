//! The check that a node is below a directory, and has stayed there.
//!
//! A caller that may use only the tree below one directory checks before an operation and again
//! after it. Both results are equal only if neither the node nor a directory above it has moved in
//! between, not even away and back.

use std::ops::ControlFlow;

use pelago_store::cycle::CycleFinder;
use pelago_store::key::{self, Key};
use pelago_store::report::table_failed;
use pelago_wire::{Code, Error, FileKind, Handle, InodeId, limits};

use super::locked::Locked;
use super::{Shard, stored};
use crate::row_cache::{Node, RowLocation};

/// The most names of a file that are examined.
const NAMES: usize = 64;
/// The most attempts to climb a path on which directories move meanwhile.
const ATTEMPTS: usize = 8;

/// The position of a node, below the given directory, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Below {
    /// The node.
    ino: InodeId,
    /// A directory that has a name of the node, or had its last name; or the node itself, if it is
    /// the given directory.
    dir: InodeId,
    /// The version of a file: each change of its names counts it up. `None` for a directory.
    version: Option<u64>,
    /// [`State::directory_moves`](super::State).
    directory_moves: u64,
}

impl Shard {
    /// Returns the position of a node, if it is `top` or below it by any of its names. The hint of
    /// the handle proves nothing. A file without a name is below no directory; but for a caller
    /// that has it open (`has_it_open`) it is still in the directory of its last name.
    ///
    /// # Errors
    /// `Stale` if there is no such node; `Busy` if directories move all the time.
    pub fn find_below(
        &self,
        top: InodeId,
        node: Handle,
        has_it_open: bool,
    ) -> Result<Option<Below>, Error> {
        for _ in 0..ATTEMPTS {
            let mut locked = self.lock();
            let directory_moves = locked.state.directory_moves;
            let found = locked.node(node)?;
            let dirs = match dirs_of(&mut locked, &found)? {
                dirs if dirs.is_empty() && has_it_open => {
                    self.open_inodes.last_dir(found.rnode.ino).into_iter().collect()
                }
                dirs => dirs,
            };
            drop(locked);
            let is_directory = found.rnode.kind == FileKind::Directory;
            let found_in = |dir| Below {
                ino: found.rnode.ino,
                dir,
                version: (!is_directory).then_some(found.rnode.version),
                directory_moves,
            };
            if found.rnode.ino == top {
                return Ok(Some(found_in(top)));
            }
            let below = first_below(self, top, &dirs);
            let is_outdated = self.lock().state.directory_moves != directory_moves;
            match below {
                // A directory may have been removed during the climb.
                _ if is_outdated => {}
                below => return Ok(below?.map(found_in)),
            }
        }
        Err(Code::Busy.into())
    }
}

/// Returns the first of these directories that is `top` or below it.
fn first_below(shard: &Shard, top: InodeId, dirs: &[InodeId]) -> Result<Option<InodeId>, Error> {
    for dir in dirs {
        if is_below(shard, top, *dir)? {
            return Ok(Some(*dir));
        }
    }
    Ok(None)
}

/// Returns the directories that have a name of this node.
fn dirs_of(locked: &mut Locked<'_>, node: &Node) -> Result<Vec<InodeId>, Error> {
    let ino = node.rnode.ino;
    if node.rnode.kind == FileKind::Directory {
        return match locked.parent_of(ino) {
            // The name is at another site.
            Err(error) if error.code == Code::Elsewhere => Ok(Vec::new()),
            parent => Ok(vec![parent?]),
        };
    }
    if let RowLocation::Name { dir, .. } = &node.location {
        return Ok(vec![*dir]);
    }
    let mut dirs = Vec::new();
    let range = key::parent_pointers_of(ino);
    let visited = locked.shard.table.scan(&range.from, &range.to, &mut |key, _| {
        if let Some(Key::ParentPointer { dir, .. }) = Key::parse(key) {
            dirs.push(dir);
        }
        match dirs.len() < NAMES {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    visited.map_err(|error| table_failed("seeking names", &error))?;
    Ok(dirs)
}

/// Returns whether `dir` is `top` or below it. The first steps, which suffice for most paths, use
/// the cached parents under the lock; the rest of a long path reads the table without it.
fn is_below(shard: &Shard, top: InodeId, dir: InodeId) -> Result<bool, Error> {
    let mut here = dir;
    let mut locked = shard.lock();
    for _ in 0..limits::CLIMB_STEPS {
        if here == top || here == InodeId::ROOT {
            return Ok(here == top);
        }
        here = match locked.parent_of(here) {
            // The directories above are not known here, so nothing is granted.
            Err(error) if error.code == Code::Elsewhere => return Ok(false),
            parent => parent?,
        };
    }
    drop(locked);
    let mut steps = CycleFinder::from(here);
    while here != top && here != InodeId::ROOT {
        here = match stored::first_name_of(&*shard.table, here)? {
            Some((parent, _, _)) => parent,
            None if shard.without_a_name() == Code::Elsewhere => return Ok(false),
            None => return Err(Code::Stale.into()),
        };
        if steps.has_looped(here) {
            tracing::error!(ino = %here, "a directory is below itself; run `pelago check`");
            return Err(Code::Corrupt.into());
        }
    }
    Ok(here == top)
}
