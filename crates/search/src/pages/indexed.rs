//! The index, and beside it the files that it does not know as they are.

use std::sync::Arc;

use pelago_wire::id_map::IdMap;
use pelago_wire::{Error, Handle, InodeId, Time};

use super::Searched;
use crate::search_index::Halves;

/// The index as one page asks it. The files beside it are gathered first: a commit in between moves
/// files from here to there, so that none is missed.
pub(super) struct Indexed {
    pub(super) halves: Arc<Halves>,
    /// The files that the index does not know as they are now.
    pub(super) unknown: IdMap<InodeId, Handle>,
    /// The time of the last commit, if more files have changed since than are known.
    pub(super) behind_since: Option<Time>,
}

impl Indexed {
    /// Gathers what the index does not know.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub(super) fn gather(searched: Searched<'_>, halves: Arc<Halves>) -> Result<Self, Error> {
        let mut unknown = IdMap::default();
        let mut unplaced = Vec::new();
        let mut add = |file: Handle| {
            unknown.insert(file.ino, file);
        };
        let knows_all = searched.shard.visit_fed(&mut add, |ino| unplaced.push(ino));
        for ino in unplaced {
            let documents = halves.names.documents_of(ino);
            let documents = documents.map_err(|error| searched.index.failed(&error))?;
            documents.into_iter().for_each(|document| add(document.handle));
        }
        let covered = halves.names.covered().filter(|_| !knows_all);
        Ok(Self { halves, unknown, behind_since: covered.map(|covered| covered.as_of) })
    }
}
