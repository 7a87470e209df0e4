//! Whether one directory is above another: what keeps a rename from making a loop.
//!
//! Directories have no depth and no limit of it. The first few steps upwards are taken under the
//! shard's lock; the rest of a long way is read without it, and counts if no directory has moved
//! to another one meanwhile ([`State::moves`](super::State)). Only such a move changes what is
//! above what.

use pelago_wire::{Code, Error, FileKind, InodeId, limits};

use super::txn::DirEntryKey;
use super::{Shard, State};
use crate::directory::Directory;
use crate::row_cache::Node;
use pelago_store::cycle::CycleFinder;

/// A way upwards that is too long for one hold of the lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Climb {
    way: Way,
    /// How far it came.
    here: InodeId,
}

/// What a long way upwards has shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Climbed {
    way: Way,
    /// The directory was met on it.
    met: bool,
}

/// From `dir` upwards, looking for `above`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    above: InodeId,
    dir: InodeId,
    /// Moves of directories before it began.
    moves: u64,
}

impl Shard {
    /// Makes sure that a node that moves to `to` does not come to be below itself. Answers the way
    /// that is left to look at; `None`: it does not.
    ///
    /// # Errors
    /// `WouldLoop`.
    pub(super) fn expect_no_loop(
        &self,
        state: &mut State,
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
        if state.directories.get(ino).is_some_and(Directory::is_surely_empty) {
            return Ok(None);
        }
        let way = Way { above: ino, dir: to.dir, moves: state.moves };
        match climbed.iter().find(|climbed| climbed.way == way) {
            Some(Climbed { met: true, .. }) => Err(Code::WouldLoop.into()),
            Some(_) => Ok(None),
            None => self.climb_near(state, way),
        }
    }

    fn climb_near(&self, state: &mut State, way: Way) -> Result<Option<Climb>, Error> {
        let mut here = way.dir;
        for _ in 0..limits::CLIMB_STEPS {
            if here == way.above {
                return Err(Code::WouldLoop.into());
            }
            if here == InodeId::ROOT {
                return Ok(None);
            }
            here = self.parent_of(state, here)?;
        }
        Ok(Some(Climb { way, here }))
    }

    /// Goes the rest of a way, without the lock.
    ///
    /// # Errors
    /// `Stale` where a directory on it is gone; `Corrupt` where it never ends.
    pub(super) fn climb(&self, climb: Climb) -> Result<Climbed, Error> {
        let Climb { way, mut here } = climb;
        let mut steps = CycleFinder::from(here);
        while here != InodeId::ROOT && here != way.above {
            (here, _, _) = self.first_name_of(here)?.ok_or(Code::Stale)?;
            if steps.come_back(here) {
                tracing::error!(ino = %here, "a directory is below itself; run `pelago check`");
                return Err(Code::Corrupt.into());
            }
        }
        Ok(Climbed { way, met: here == way.above })
    }
}

impl Climbed {
    /// Whether a directory has moved since.
    pub(super) fn is_outdated(&self, state: &State) -> bool {
        self.way.moves != state.moves
    }
}
