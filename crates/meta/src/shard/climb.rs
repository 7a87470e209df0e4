//! The climb from a directory to the root, which proves that a rename makes no loop (I-11).
//!
//! Directories do not record their depth, and it has no limit. The first steps upwards are taken
//! under the shard's lock. The rest of a long path is read without it; the result is valid if no
//! directory has got another parent meanwhile ([`State::directory_moves`](super::State)).

use pelago_store::cycle::CycleFinder;
use pelago_wire::{Code, Error, FileKind, InodeId, limits};

use super::locked::Locked;
use super::txn::DirEntryKey;
use super::{Shard, State, stored};
use crate::directory::Directory;
use crate::row_cache::Node;

/// A climb that is too long for one hold of the lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Climb {
    path: Path,
    /// The directory at which the steps under the lock ended.
    here: InodeId,
}

/// The result of a long climb.
#[derive(Debug, Clone, Copy)]
pub(super) struct Climbed {
    path: Path,
    end: PathEnd,
}

/// A path from `dir` upwards: to `above`, if that is on it, or to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Path {
    above: InodeId,
    dir: InodeId,
    /// The value of [`State::directory_moves`](super::State) before the first step.
    directory_moves: u64,
}

/// The end of a path upwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathEnd {
    /// The directory `above` of the path.
    Above,
    /// The root.
    Root,
    /// This directory, whose name is at another site.
    Left(InodeId),
}

/// The result of a climb under the lock.
enum Ascent {
    Known(PathEnd),
    Long(Climb),
}

/// Checks that a node which moves to `to` does not get below itself. Returns the climb that is
/// left, if the result is not known yet.
///
/// A path that leaves this site is not climbed further: the directories there may move meanwhile.
/// The move makes no loop if the path of the old name leaves this site at the same directory,
/// because all directories above that one are above the node already.
///
/// # Errors
/// `WouldLoop`; `CrossHome` if the path leaves this site at another directory than the old path.
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

/// Climbs from `dir`, unless one of the `climbed` results is of this path.
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
/// `Stale` if a directory on the path was removed; `Corrupt` if the path never ends.
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
    /// Returns whether a directory has got another parent since.
    pub(super) fn is_outdated(&self, state: &State) -> bool {
        self.path.directory_moves != state.directory_moves
    }
}
