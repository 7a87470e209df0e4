//! A reading of all rows, and what an index has after it.

use std::time::Instant;

use pelago_index::{Covered, Origin};
use pelago_meta::row_cache::Node;
use pelago_meta::tree::{ReadFile, Tree};
use pelago_store::rows::Stamp;
use pelago_wire::{Error, Handle, Time};

use crate::search_index::Halves;
use crate::undamaged::undamaged;

/// A reading of rows under way.
pub(super) struct Reading {
    pub(super) part: Part,
    /// Only files that changed after this batch are read; all if there is none.
    pub(super) after: Option<Stamp>,
    /// The key at which it continues.
    pub(super) from: Option<Vec<u8>>,
    /// What the index has once all is read.
    pub(super) begun: Moment,
    pub(super) followed: Instant,
    /// Files that have been given to the index since its last commit.
    pub(super) uncommitted: usize,
}

/// The half of the index that is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Names,
    Texts,
}

/// A batch, and the time when it was the newest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) stamp: Stamp,
    pub(super) as_of: Time,
}

impl Reading {
    pub(super) fn begin(part: Part, after: Option<Stamp>, begun: Moment) -> Self {
        Self { part, after, from: None, begun, followed: Instant::now(), uncommitted: 0 }
    }

    /// Returns what a commit covers before the reading has ended: no more than the last one.
    pub(super) fn covered_so_far(&self, halves: &Halves) -> Covered {
        let first = Covered { is_complete: false, ..self.begun.covered() };
        let covered = match self.part {
            Part::Names => halves.names.covered(),
            Part::Texts => halves.texts.covered(),
        };
        covered.unwrap_or(first)
    }
}

impl Moment {
    pub(super) fn covered(&self) -> Covered {
        let Stamp { epoch, sequence } = self.stamp;
        // The commit has its origin.
        let origin = Origin::default();
        Covered { origin, epoch: epoch.into(), sequence, as_of: self.as_of, is_complete: true }
    }
}

/// Returns a file that a reading came to; `None` if it is gone or damaged.
pub(super) fn read(tree: &Tree, file: ReadFile) -> Result<Option<Node>, Error> {
    match file {
        ReadFile::Named(node) => Ok(Some(node)),
        ReadFile::Own(ino) => undamaged(tree.node(Handle::own(ino))),
    }
}

/// Returns the batch up to which an index has everything; `None` if it never had.
pub(super) fn newest(covered: Option<Covered>) -> Option<Stamp> {
    let covered = covered.filter(|covered| covered.is_complete)?;
    let epoch = u32::try_from(covered.epoch).ok()?;
    Some(Stamp { epoch, sequence: covered.sequence })
}
