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
    end: PathEnd,
}

/// The question where the path from `dir` upwards ends, and whether `above` is on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Path {
    above: InodeId,
    dir: InodeId,
    /// [`State::directory_moves`](super::State) before the first step.
    directory_moves: u64,
}

/// Where a path upwards ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathEnd {
    /// At the directory that is looked for.
    Above,
    /// At the root.
    Root,
    /// At this directory, whose name is at another site.
    Left(InodeId),
}

/// A path upwards, as far as it was climbed.
enum Ascent {
    Known(PathEnd),
    Long(Climb),
}

/// Makes sure that a node that moves to `to` does not come to be below itself. Returns the path
/// that is left to climb, if the answer is not known yet.
///
/// A path that leaves this site is not climbed further: the directories there may move meanwhile.
/// It makes no loop if the old name's path leaves at the same directory, because what is above that
/// is above the node already.
///
/// # Errors
/// `WouldLoop`; `CrossHome` if the path leaves this site elsewhere than the old one.
pub(super) fn expect_no_loop(
    locked: &mut Locked<'_>,
    from: &DirEntryKey,
    node: &Node,
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
    let left = match climb_from(locked, ino, to.dir, climbed)? {
        Ascent::Long(way) => return Ok(Some(way)),
        Ascent::Known(PathEnd::Above) => return Err(Code::WouldLoop.into()),
        Ascent::Known(PathEnd::Root) => return Ok(None),
        Ascent::Known(PathEnd::Left(top)) => top,
    };
    match climb_from(locked, ino, from.dir, climbed)? {
        Ascent::Long(way) => Ok(Some(way)),
        Ascent::Known(PathEnd::Left(top)) if top == left => Ok(None),
        Ascent::Known(_) => Err(Code::CrossHome.into()),
    }
}

/// Climbs from `dir`, unless that was done without the lock.
fn climb_from(
    locked: &mut Locked<'_>,
    above: InodeId,
    dir: InodeId,
    climbed: &[Climbed],
) -> Result<Ascent, Error> {
    let path = Path { above, dir, directory_moves: locked.state.directory_moves };
    match climbed.iter().find(|climbed| climbed.path == path) {
        Some(climbed) => Ok(Ascent::Known(climbed.end)),
        None => climb_near(locked, path),
    }
}

fn climb_near(locked: &mut Locked<'_>, path: Path) -> Result<Ascent, Error> {
    let mut here = path.dir;
    for _ in 0..limits::CLIMB_STEPS {
        if here == path.above {
            return Ok(Ascent::Known(PathEnd::Above));
        }
        if here == InodeId::ROOT {
            return Ok(Ascent::Known(PathEnd::Root));
        }
        here = match locked.parent_of(here) {
            Err(error) if error.code == Code::Elsewhere => {
                return Ok(Ascent::Known(PathEnd::Left(here)));
            }
            parent => parent?,
        };
    }
    Ok(Ascent::Long(Climb { path, here }))
}

/// Climbs the rest of a path, without the lock.
///
/// # Errors
/// `Stale` if a directory on it is gone; `Corrupt` if it never ends.
pub(super) fn climb(shard: &Shard, climb: Climb) -> Result<Climbed, Error> {
    let Climb { path, mut here } = climb;
    let mut steps = CycleFinder::from(here);
    while here != InodeId::ROOT && here != path.above {
        here = match stored::first_name_of(&*shard.table, here)? {
            Some((parent, _, _)) => parent,
            None if shard.without_a_name() == Code::Elsewhere => {
                return Ok(Climbed { path, end: PathEnd::Left(here) });
            }
            None => return Err(Code::Stale.into()),
        };
        if steps.has_looped(here) {
            tracing::error!(ino = %here, "a directory is below itself; run `pelago check`");
            return Err(Code::Corrupt.into());
        }
    }
    let end = if here == path.above { PathEnd::Above } else { PathEnd::Root };
    Ok(Climbed { path, end })
}

impl Climbed {
    /// Whether a directory has moved to another one since.
    pub(super) fn is_outdated(&self, state: &State) -> bool {
        self.path.directory_moves != state.directory_moves
    }
}
