//! Rows of what was seen of other sites: the directories there that are ancestors of own ones.
//!
//! They are no part of the tree: a row that is old or missing costs an answer while the other site
//! is away, and nothing else.

use std::ops::ControlFlow;

use pelago_store::key::{self, Key, RowKind};
use pelago_store::report::{row_damaged, table_failed};
use pelago_store::rows::{AncestryRow, Row as _};
use pelago_wire::{Error, InodeId, limits};

use super::Shard;

impl Shard {
    /// Returns the directories of other sites that are recorded, at most [`limits::ANCESTRY_DIRS`].
    /// A damaged row is left out and logged.
    ///
    /// # Errors
    /// Those of the table.
    pub fn ancestry(&self) -> Result<Vec<(InodeId, AncestryRow)>, Error> {
        let mut dirs = Vec::new();
        let range = key::all(RowKind::Ancestry);
        let visited = self.table.scan(&range.from, &range.to, &mut |row_key, value| {
            match (Key::parse(row_key), AncestryRow::decode(value)) {
                (Some(Key::Ancestry { ino }), Ok((_, row))) => dirs.push((ino, row)),
                (_, Err(error)) => drop(row_damaged(row_key, error)),
                (_, Ok(_)) => {}
            }
            match dirs.len() < limits::ANCESTRY_DIRS {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        visited.map_err(|error| table_failed("reading directories of other sites", &error))?;
        Ok(dirs)
    }

    /// Writes the rows of directories of other sites, and deletes those of `None`, as one batch.
    ///
    /// # Errors
    /// Those of the table.
    pub fn put_ancestry(&self, rows: &[(InodeId, Option<AncestryRow>)]) -> Result<(), Error> {
        let mut txn = self.begin_upkeep();
        for (ino, row) in rows {
            match row {
                Some(row) => txn.put(key::ancestry(*ino), row),
                None => txn.delete(key::ancestry(*ino)),
            }
        }
        txn.commit().map(drop)
    }
}
