//! Whether a node is below a directory, and whether it has stayed there.
//!
//! A caller who may use only what is below one directory asks before an operation and again after
//! it. Both answers are equal only if neither the node nor a directory above it has moved in
//! between, also if it has come back.

use std::ops::ControlFlow;

use pelago_store::cycle::CycleFinder;
use pelago_store::key::{self, Key};
use pelago_store::report::table_failed;
use pelago_wire::{Code, Error, FileKind, Handle, InodeId, limits};

use super::locked::Locked;
use super::{Shard, stored};
use crate::row_cache::{Node, RowLocation};

/// Names of a file that are looked at.
const NAMES: usize = 64;
/// How often a path is climbed that directories move on meanwhile.
const ATTEMPTS: usize = 8;

/// Where a node was at one moment, of which something is below the directory that was asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Below {
    /// The node.
    ino: InodeId,
    /// A directory that has a name of the node, or had its last one, or the node itself if it is
    /// the directory that was asked about.
    dir: InodeId,
    /// How often the row of a file was changed: each change of its names is one.
    version: Option<u64>,
    /// [`State::directory_moves`](super::State).
    directory_moves: u64,
}

impl Shard {
    /// Returns where a node is, if it is `top` or below it by any of its names. The hint of the
    /// handle is no proof. A file without a name is nowhere; but for a caller that has it open
    /// (`has_it_open`) it is where it has lost its last name.
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
                // A directory may have gone while it was climbed.
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
            // Its name is at another site.
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

/// Returns whether `dir` is `top` or below it. Its first steps are those that most paths have, and
/// take what is in memory; the rest reads the table.
fn is_below(shard: &Shard, top: InodeId, dir: InodeId) -> Result<bool, Error> {
    let mut here = dir;
    let mut locked = shard.lock();
    for _ in 0..limits::CLIMB_STEPS {
        if here == top || here == InodeId::ROOT {
            return Ok(here == top);
        }
        here = match locked.parent_of(here) {
            // What is above it is not known here, and what is not known is not granted.
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
