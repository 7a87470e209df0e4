//! Whether one directory is above another, so that no rename makes a loop (I-11).
//!
//! Directories have no depth and no limit of it. The first steps upwards are taken under the
//! shard's lock; the rest of a long path is read without it, and counts if no directory has moved
//! to another one meanwhile ([`State::directory_moves`](super::State)). Only such a move changes
//! which directory is above which.

use pelago_store::cycle::CycleFinder;
use pelago_wire::{Code, Error, FileKind, InodeId, limits};

use super::locked::Locked;
use super::txn::DirEntryKey;
use super::{Shard, State, stored};
use crate::directory::Directory;
use crate::row_cache::Node;

/// A path upwards that is too long for one hold of the lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Climb {
    path: Path,
    /// Where the steps under the lock ended.
    here: InodeId,
}

/// The result of a long path upwards.
#[derive(Debug, Clone, Copy)]
pub(super) struct Climbed {
    path: Path,
    /// Whether [`Path::above`] is on it.
    met: bool,
}

/// The question whether `above` is on the path from `dir` to the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Path {
    above: InodeId,
    dir: InodeId,
    /// [`State::directory_moves`](super::State) before the first step.
    directory_moves: u64,
}

/// Makes sure that a node that moves to `to` does not come to be below itself. Returns the path
/// that is left to climb, if the answer is not known yet.
///
/// # Errors
/// `WouldLoop`.
pub(super) fn expect_no_loop(
    locked: &mut Locked<'_>,
    (from, node): (&DirEntryKey, &Node),
    to: &DirEntryKey,
    climbed: &[Climbed],
) -> Result<Option<Climb>, Error> {
    let ino = node.rnode.ino;
    if node.rnode.kind != FileKind::Directory || from.dir == to.dir {
        return Ok(None);
    }
    if ino == to.dir {
        return Err(Code::WouldLoop.into());
    }
    if locked.state.directories.get(ino).is_some_and(Directory::is_surely_empty) {
        return Ok(None);
    }
    let path = Path { above: ino, dir: to.dir, directory_moves: locked.state.directory_moves };
    match climbed.iter().find(|climbed| climbed.path == path) {
        Some(Climbed { met: true, .. }) => Err(Code::WouldLoop.into()),
        Some(_) => Ok(None),
        None => climb_near(locked, path),
    }
}

fn climb_near(locked: &mut Locked<'_>, path: Path) -> Result<Option<Climb>, Error> {
    let mut here = path.dir;
    for _ in 0..limits::CLIMB_STEPS {
        if here == path.above {
            return Err(Code::WouldLoop.into());
        }
        if here == InodeId::ROOT {
            return Ok(None);
        }
        here = locked.parent_of(here)?;
    }
    Ok(Some(Climb { path, here }))
}

/// Climbs the rest of a path, without the lock.
///
/// # Errors
/// `Stale` if a directory on it is gone; `Corrupt` if it never ends.
pub(super) fn climb(shard: &Shard, climb: Climb) -> Result<Climbed, Error> {
    let Climb { path, mut here } = climb;
    let mut steps = CycleFinder::from(here);
    while here != InodeId::ROOT && here != path.above {
        (here, _, _) = stored::first_name_of(&*shard.table, here)?.ok_or(Code::Stale)?;
        if steps.has_looped(here) {
            tracing::error!(ino = %here, "a directory is below itself; run `pelago check`");
            return Err(Code::Corrupt.into());
        }
    }
    Ok(Climbed { path, met: here == path.above })
}

impl Climbed {
    /// Whether a directory has moved to another one since.
    pub(super) fn is_outdated(&self, state: &State) -> bool {
        self.path.directory_moves != state.directory_moves
    }
}
