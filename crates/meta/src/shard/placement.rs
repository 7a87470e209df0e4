//! The position of a node in the tree, the names there, and the check that it has stayed there.
//!
//! A caller that may use only some directories finds the position of a node before an operation and
//! again after it. Both results are equal only if neither the node nor a directory above it has
//! moved in between, not even away and back.

use std::ops::ControlFlow;

use pelago_store::cycle::CycleFinder;
use pelago_store::key::{self, Key};
use pelago_store::report::table_failed;
use pelago_wire::xattr::ACL_ACCESS;
use pelago_wire::{Code, Error, FileKind, Handle, InodeId, ModeRights, Name, limits};
use smallvec::{SmallVec, smallvec};

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
    pub dirs: SmallVec<[InodeId; 2]>,
    /// The version of a file: each change of its names counts it up. `None` for a directory.
    pub version: Option<u64>,
    /// Its handle, with the place of its row.
    handle: Handle,
    /// True if its last name counts, because the caller has it open.
    has_it_open: bool,
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
    /// True if they are too many.
    pub has_more: bool,
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
        // Without a copy of the cached node.
        let cached = locked.state.rows.node(node.ino);
        if let Some(placement) =
            cached.and_then(|found| in_one_directory(found, has_it_open, directory_moves))
        {
            return Ok(placement);
        }
        let found = locked.node(node)?;
        placement_of(&mut locked, &found, has_it_open)
    }

    /// Returns the directory above a directory, and its name there; the root is above itself, and
    /// has no name.
    ///
    /// # Errors
    /// `Stale` if it has no name; errors of the table.
    pub fn name_of_dir(&self, dir: InodeId) -> Result<(InodeId, Option<Name>), Error> {
        if dir == InodeId::ROOT {
            return Ok((dir, None));
        }
        let found = stored::first_name_of(&*self.table, dir)?;
        let (above, _, name) = found.ok_or(Code::Stale)?;
        Ok((above, Some(name)))
    }

    /// Returns the position, in this directory alone, of the file to which a name leads, or of
    /// anything else that is no directory. Nothing is recalled for it.
    ///
    /// # Errors
    /// `Stale` if there is no such file.
    pub fn placement_of_name(&self, dir: InodeId, name: &Name) -> Result<Placement, Error> {
        let key = self.entry_key(dir, name);
        let mut locked = self.lock();
        let found = locked.find_entry(&key).map_err(|error| match error.code {
            Code::NotFound | Code::NotDirectory | Code::Elsewhere => Code::Stale.into(),
            _ => error,
        })?;
        if found.rnode.kind == FileKind::Directory {
            return Err(Code::Stale.into());
        }
        Ok(Placement { dirs: smallvec![dir], ..placement_of(&mut locked, &found, false)? })
    }

    /// Returns the names that a file has in one of its directories: its last name if it has none
    /// and the caller has it open, and nothing for a directory.
    ///
    /// # Errors
    /// `Busy` if the file has changed since; `Stale` if there is no such file.
    pub fn names_in(&self, position: &Placement, dir: InodeId) -> Result<Vec<Name>, Error> {
        let Some(version) = position.version else { return Ok(Vec::new()) };
        let mut locked = self.lock();
        let found = locked.node(position.handle)?;
        if found.rnode.version != version {
            return Err(Code::Busy.into());
        }
        let mut names = names_of(&mut locked, &found)?;
        if names.is_empty() && position.has_it_open {
            let last = self.open_inodes.last_name(position.ino);
            names.extend(last.and_then(|(dir, name)| Some((dir, name?))));
        }
        Ok(names.into_iter().filter(|(of, _)| *of == dir).map(|(_, name)| name).collect())
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

    /// Returns the number of moves of directories so far.
    #[must_use]
    pub fn directory_moves(&self) -> u64 {
        self.lock().state.directory_moves
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

/// Returns the position of a directory, or of a file with its row under its only name; `None` for
/// any other.
fn in_one_directory(found: &Node, has_it_open: bool, directory_moves: u64) -> Option<Placement> {
    let ino = found.rnode.ino;
    let (dir, version) = match &found.location {
        _ if found.rnode.kind == FileKind::Directory => (ino, None),
        RowLocation::Name { dir, .. } => (*dir, Some(found.rnode.version)),
        RowLocation::Own | RowLocation::Elsewhere => return None,
    };
    let dirs = smallvec![dir];
    let handle = found.handle();
    Some(Placement { ino, dirs, version, handle, has_it_open, directory_moves })
}

/// Returns the position of a node that was found.
fn placement_of(
    locked: &mut Locked<'_>,
    found: &Node,
    has_it_open: bool,
) -> Result<Placement, Error> {
    let directory_moves = locked.state.directory_moves;
    if let Some(placement) = in_one_directory(found, has_it_open, directory_moves) {
        return Ok(placement);
    }
    let handle = found.handle();
    let ino = found.rnode.ino;
    let mut dirs = SmallVec::new();
    each_name(locked, ino, &mut |dir, _| dirs.push(dir))?;
    if dirs.is_empty() && has_it_open {
        dirs.extend(locked.shard.open_inodes.last_name(ino).map(|(dir, _)| dir));
    }
    let version = Some(found.rnode.version);
    Ok(Placement { ino, dirs, version, handle, has_it_open, directory_moves })
}

/// Returns the names of this file, each with its directory.
fn names_of(locked: &mut Locked<'_>, node: &Node) -> Result<Vec<(InodeId, Name)>, Error> {
    if let RowLocation::Name { dir, name, .. } = &node.location {
        return Ok(vec![(*dir, name.clone())]);
    }
    let mut names = Vec::new();
    each_name(locked, node.rnode.ino, &mut |dir, name| {
        names.extend(Name::new(name).ok().map(|name| (dir, name)));
    })?;
    Ok(names)
}

/// Calls `visit` for the first names of a file that has a row of its own.
fn each_name(
    locked: &Locked<'_>,
    ino: InodeId,
    visit: &mut dyn FnMut(InodeId, &[u8]),
) -> Result<(), Error> {
    let range = key::parent_pointers_of(ino);
    let mut visited_names = 0;
    let visited = locked.shard.table.scan(&range.from, &range.to, &mut |key, _| {
        if let Some(Key::ParentPointer { dir, name, .. }) = Key::parse(key) {
            visit(dir, name);
            visited_names += 1;
        }
        match visited_names < NAMES {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    visited.map_err(|error| table_failed("seeking names", &error))
}

/// Returns a directory and those above it. The first steps, which suffice for most paths, use the
/// cached parents under the lock; the rest of a long path reads the table without it.
fn climb(shard: &Shard, dir: InodeId) -> Result<Ancestors, Error> {
    let mut upwards = vec![dir];
    let mut here = dir;
    let mut locked = shard.lock();
    for _ in 0..limits::CLIMB_STEPS {
        if here == InodeId::ROOT {
            return Ok(Ancestors::new(upwards, Top::Root));
        }
        here = match locked.parent_of(here) {
            Err(error) if error.code == Code::Elsewhere => {
                return Ok(Ancestors::new(upwards, Top::OtherSite));
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
                return Ok(Ancestors::new(upwards, Top::OtherSite));
            }
            None => return Err(Code::Stale.into()),
        };
        if steps.has_looped(here) {
            tracing::error!(ino = %here, "a directory is below itself; run `pelago check`");
            return Err(Code::Corrupt.into());
        }
        upwards.push(here);
        if upwards.len() == ANCESTORS {
            return Ok(Ancestors::new(upwards, Top::Unknown));
        }
    }
    Ok(Ancestors::new(upwards, Top::Root))
}

/// The end of a climb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Top {
    /// The root of the volume.
    Root,
    /// A directory whose parent is at another site.
    OtherSite,
    /// A directory below too many others.
    Unknown,
}

impl Ancestors {
    fn new(mut upwards: Vec<InodeId>, top: Top) -> Self {
        upwards.reverse();
        let is_complete = top == Top::Root;
        Self { dirs: upwards, is_complete, has_more: top == Top::Unknown }
    }
}
