//! Nodes that have the bytes of files of other sites.
//!
//! Bytes that are written here into a new or emptied file of another site stay here. They are in a
//! node of this site that has no name, and a row that says to which file they belong. All else is
//! as for an ordinary file of this site: its size after a crash, its content file, its removal.

use std::ops::ControlFlow;

use pelago_store::key::{self, Key, RowKind};
use pelago_store::report::{row_damaged, table_failed};
use pelago_store::rows::{Rnode, Row as _, StayRow};
use pelago_store::volume::Owner;
use pelago_wire::{Code, Context, Error, FileKind, Handle, InodeId, Time};

use super::Shard;
use super::create::new_id;
use crate::reply_cache::OpContext;
use crate::row_cache::{Node, RowLocation};

/// The most nodes that are remembered whose bytes may not be needed any more. The sites that have
/// others ask by themselves.
const FREED_MAX: usize = 1 << 16;

/// A node of another site, and the file that had its bytes there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreedBytes {
    /// The node.
    pub node: InodeId,
    /// The file of this site, with the place that its row had.
    pub file: Handle,
}

impl Shard {
    /// Returns the nodes that have bytes of files of other sites. A damaged row is left out and
    /// logged.
    ///
    /// # Errors
    /// Those of the table.
    pub fn stays(&self) -> Result<Vec<(InodeId, StayRow)>, Error> {
        let mut stays = Vec::new();
        let range = key::all(RowKind::Stay);
        let visited = self.table.scan(&range.from, &range.to, &mut |row_key, value| {
            match (Key::parse(row_key), StayRow::decode(value)) {
                (Some(Key::Stay { ino }), Ok((_, row))) => stays.push((ino, row)),
                (_, Err(error)) => drop(row_damaged(row_key, error)),
                (_, Ok(_)) => {}
            }
            ControlFlow::Continue(())
        });
        visited.map_err(|error| table_failed("reading bytes of files of other sites", &error))?;
        Ok(stays)
    }

    /// Makes an empty node for bytes of a file of another site, and its row, in one batch.
    ///
    /// # Errors
    /// `NoSpace`; those of the table.
    pub fn make_stay(&self, row: &StayRow, now: Time) -> Result<InodeId, Error> {
        let context = Context::direct(0, 0);
        let mut txn = self.begin(OpContext::by(&context, now));
        let ino = new_id(&mut txn, &context)?;
        let like = Rnode::root(Owner::default(), now);
        let rnode = Rnode { ino, kind: FileKind::Regular, mode: 0o600, ..like };
        txn.put_node(Node { rnode, location: RowLocation::Own });
        txn.put(key::stay(ino), row);
        txn.commit()?;
        Ok(ino)
    }

    /// Writes the row of such a node.
    ///
    /// # Errors
    /// Those of the table.
    pub fn put_stay(&self, node: InodeId, row: &StayRow) -> Result<(), Error> {
        let mut txn = self.begin_upkeep();
        // Also on a full disk: the row is there already.
        txn.batch.allow_reserve();
        txn.put(key::stay(node), row);
        txn.commit().map(drop)
    }

    /// Has such a node removed, with its bytes, once it is not open. Returns whether the worker
    /// `orphans` has work now.
    ///
    /// # Errors
    /// `Stale`; those of the table.
    pub fn end_stay(&self, node: InodeId, now: Time) -> Result<bool, Error> {
        let mut txn = self.begin_removal(OpContext::by(&Context::direct(0, 0), now));
        let mut found = txn.node(Handle::own(node))?;
        found.rnode.links = 0;
        found.rnode.deleted_at = now;
        // Before the batch is written: a release meanwhile waits for it, and then reports it.
        let is_open = self.open_inodes.set_unnamed(node, InodeId::ROOT, None);
        txn.put_unnamed(found);
        txn.delete(key::stay(node));
        txn.batch.allow_reserve();
        txn.commit()?;
        Ok(!is_open)
    }

    /// Returns the nodes of other sites whose bytes may not be needed any more, each with the file
    /// that had them: the rows of the file are being deleted, or were.
    pub fn take_freed(&self) -> Vec<FreedBytes> {
        std::mem::take(&mut self.freed.lock())
    }

    /// Records again that the bytes in a node of another site may not be needed any more.
    pub fn put_freed(&self, freed: FreedBytes) {
        let mut all = self.freed.lock();
        if all.len() < FREED_MAX {
            all.push(freed);
        }
    }

    /// Records that the rows of a file are being deleted, if its bytes are at another site.
    pub(super) fn note_freed(&self, rnode: &Rnode, file: Handle) {
        if let Some(node) = rnode.bytes_at {
            self.put_freed(FreedBytes { node, file });
        }
    }

    /// Returns whether a file is gone, and cannot come back.
    ///
    /// # Errors
    /// Those of the table.
    pub fn is_gone(&self, file: Handle) -> Result<bool, Error> {
        match self.stored_node(file) {
            Ok(_) => Ok(false),
            Err(error) if error.code == Code::Stale => Ok(!self.can_bring_back(file.ino)),
            Err(error) => Err(error),
        }
    }
}
