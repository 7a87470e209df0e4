//! The position of a node in the tree, and the check that it has stayed there.
//!
//! A caller that may use only some directories finds the position of a node before an operation and
//! again after it. Both results are equal only if neither the node nor a directory above it has
//! moved in between, not even away and back.

use std::ops::ControlFlow;

use pelago_store::cycle::CycleFinder;
use pelago_store::key::{self, Key};
use pelago_store::report::table_failed;
use pelago_wire::xattr::ACL_ACCESS;
use pelago_wire::{Code, Error, FileKind, Handle, InodeId, ModeRights, limits};

use super::locked::Locked;
use super::{Shard, stored};
use crate::acl::Acl;
use crate::process::{self, Process};
use crate::row_cache::{Node, RowLocation};

/// The most names of a file that are examined.
const NAMES: usize = 64;
/// The most directories above a node that are found.
const ANCESTORS: usize = 2048;

/// The position of a node at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The node.
    pub ino: InodeId,
    /// The directories in which it is: itself, if it is a directory; else each that has a name of
    /// it, or that had its last name.
    pub dirs: Vec<InodeId>,
    /// The version of a file: each change of its names counts it up. `None` for a directory.
    version: Option<u64>,
    /// The number of moves of directories before this moment.
    pub directory_moves: u64,
}

/// The directories above a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ancestors {
    /// The directories from the top down, the given one last.
    pub dirs: Vec<InodeId>,
    /// True if the first one is the root of the volume; else those above it are at another site, or
    /// they are too many.
    pub is_complete: bool,
}

impl Shard {
    /// Returns the position of a node. The hint of the handle proves nothing. A file without a name
    /// is in no directory; but for a caller that has it open (`has_it_open`) it is still in the
    /// directory of its last name.
    ///
    /// # Errors
    /// `Stale` if there is no such node.
    pub fn placement(&self, node: Handle, has_it_open: bool) -> Result<Placement, Error> {
        let mut locked = self.lock();
        let directory_moves = locked.state.directory_moves;
        let found = locked.node(node)?;
        let ino = found.rnode.ino;
        if found.rnode.kind == FileKind::Directory {
            return Ok(Placement { ino, dirs: vec![ino], version: None, directory_moves });
        }
        let mut dirs = dirs_of(&mut locked, &found)?;
        if dirs.is_empty() && has_it_open {
            dirs.extend(self.open_inodes.last_dir(ino));
        }
        Ok(Placement { ino, dirs, version: Some(found.rnode.version), directory_moves })
    }

    /// Returns the directories above `dir`, and itself. They were all there at one moment at which
    /// `directory_moves` directories had moved.
    ///
    /// # Errors
    /// `Busy` if directories have moved since; `Stale` if there is no such directory.
    pub fn ancestors(&self, dir: InodeId, directory_moves: u64) -> Result<Ancestors, Error> {
        let found = climb(self, dir);
        // A directory may have been removed, or moved, during the climb.
        if self.lock().state.directory_moves != directory_moves {
            return Err(Code::Busy.into());
        }
        found
    }

    /// Returns whether mode or access list of a node grant these rights to a process.
    ///
    /// # Errors
    /// `Stale` if there is no such node; `Corrupt` if its access list is damaged.
    pub fn may(
        &self,
        process: &Process<'_>,
        wanted: ModeRights,
        node: Handle,
    ) -> Result<bool, Error> {
        let mut locked = self.lock();
        let rnode = locked.node(node)?.rnode;
        process::may(process, wanted, &rnode, || {
            let list = stored::xattr(&*locked.shard.table, rnode.ino, ACL_ACCESS)?;
            list.map_or(Ok(None), |list| Acl::decode(&list).map_err(|_| Code::Corrupt.into()))
        })
    }
}

/// Returns the directories that have a name of this file.
fn dirs_of(locked: &mut Locked<'_>, node: &Node) -> Result<Vec<InodeId>, Error> {
    let ino = node.rnode.ino;
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

/// Returns a directory and those above it. The first steps, which suffice for most paths, use the
/// cached parents under the lock; the rest of a long path reads the table without it.
fn climb(shard: &Shard, dir: InodeId) -> Result<Ancestors, Error> {
    let mut upwards = vec![dir];
    let mut here = dir;
    let mut locked = shard.lock();
    for _ in 0..limits::CLIMB_STEPS {
        if here == InodeId::ROOT {
            return Ok(Ancestors::new(upwards, true));
        }
        here = match locked.parent_of(here) {
            Err(error) if error.code == Code::Elsewhere => {
                return Ok(Ancestors::new(upwards, false));
            }
            parent => parent?,
        };
        upwards.push(here);
    }
    drop(locked);
    let mut steps = CycleFinder::from(here);
    while here != InodeId::ROOT {
        here = match stored::first_name_of(&*shard.table, here)? {
            Some((parent, _, _)) => parent,
            None if shard.without_a_name() == Code::Elsewhere => {
                return Ok(Ancestors::new(upwards, false));
            }
            None => return Err(Code::Stale.into()),
        };
        if steps.has_looped(here) {
            tracing::error!(ino = %here, "a directory is below itself; run `pelago check`");
            return Err(Code::Corrupt.into());
        }
        upwards.push(here);
        if upwards.len() == ANCESTORS {
            return Ok(Ancestors::new(upwards, false));
        }
    }
    Ok(Ancestors::new(upwards, true))
}

impl Ancestors {
    fn new(mut upwards: Vec<InodeId>, is_complete: bool) -> Self {
        upwards.reverse();
        Self { dirs: upwards, is_complete }
    }
}
