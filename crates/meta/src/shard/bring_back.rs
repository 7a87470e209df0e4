//! Bringing back recently removed files, which are in [`RemovedFiles`].
//!
//! [`RemovedFiles`]: super::removed::RemovedFiles

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pelago_store::key;
use pelago_store::report::{row_damaged, table_failed};
use pelago_store::rows::{Inline, Rnode, Row};
use pelago_store::table::TableRead;
use pelago_wire::{Attr, Code, Error, FileKind, InodeId};

use super::removed::GoneFile;
use super::txn::Txn;
use super::{Shard, xattr};
use crate::row_cache::{Node, RowLocation};

impl Shard {
    /// Sets whether files that lose their last name can be brought back for a while. If not,
    /// forgets the files that could be, so that the worker `orphans` may remove their bytes.
    /// Returns whether there were any.
    pub fn remember_removed(&self, remember: bool) -> bool {
        self.removed.is_on.store(remember, Ordering::Release);
        !remember && self.removed.clear()
    }

    /// Forgets the files that were removed too long ago. Returns whether any file that has an
    /// orphan row was forgotten since the last call, and the time until the oldest of the other
    /// files is forgotten.
    pub fn expire_removed(&self, now: Instant) -> (bool, Option<Duration>) {
        self.removed.expire(now)
    }

    /// Forgets a removed file to which nothing refers any more. Returns whether it could be brought
    /// back and has an orphan row, so that the worker `orphans` has work.
    pub fn forget_removed(&self, ino: InodeId) -> bool {
        self.removed.forget(ino)
    }

    /// Returns whether the worker `orphans` must be notified of removed files that it does not
    /// know. Returns true once for these files.
    pub fn has_removed_news(&self) -> bool {
        self.removed.is_news.load(Ordering::Acquire)
            && self.removed.is_news.swap(false, Ordering::AcqRel)
    }

    /// Returns whether a file was removed recently and can be brought back.
    #[must_use]
    pub fn can_bring_back(&self, ino: InodeId) -> bool {
        self.removed.with_gone(ino, |_| ()).is_some()
    }

    /// Returns the attributes of a recently removed file.
    #[must_use]
    pub fn removed_attr(&self, ino: InodeId) -> Option<Attr> {
        self.removed.with_gone(ino, |gone| gone.rnode.attr())
    }

    /// Brings back a recently removed file, without a name: it is removed again unless it is
    /// opened. Returns whether the file exists now.
    ///
    /// # Errors
    /// If the table fails, or was opened again since; `TooBig` if its extended attributes are more
    /// than [`pelago_wire::limits::REMOVED_XATTR_BYTES`].
    pub fn bring_back(&self, ino: InodeId) -> Result<bool, Error> {
        if self.removed.is_empty() {
            return Ok(false);
        }
        let mut txn = self.begin_upkeep();
        let Some(gone) = self.removed.take_gone(ino) else {
            return Ok(self.removed.contains(ino));
        };
        put_back(&mut txn, &gone)?;
        txn.commit()?;
        Ok(true)
    }
}

/// Restores the rows that were deleted with the last name of a file, and adds its orphan row.
fn put_back(txn: &mut Txn<'_>, gone: &GoneFile) -> Result<(), Error> {
    let mut node = Node { rnode: gone.rnode.clone(), location: RowLocation::Own };
    node.rnode.flags.moved = false;
    let ino = node.rnode.ino;
    if let Some(before) = &gone.before {
        let before = &**before;
        if node.rnode.flags.inline {
            put_inline(txn, before, ino)?;
        }
        if node.rnode.flags.has_xattrs {
            xattr::put_back(txn, before, &node, gone.has_xattr_rows)?;
        }
    }
    txn.put_unnamed(node);
    Ok(())
}

fn put_inline(txn: &mut Txn<'_>, before: &dyn TableRead, ino: InodeId) -> Result<(), Error> {
    let key = key::inline(ino);
    let value = before.get(&key).map_err(|error| table_failed("reading", &error))?;
    let value = value.ok_or(Code::Corrupt)?;
    let (_, row) = Inline::decode(&value).map_err(|error| row_damaged(&key, error))?;
    txn.put(key.clone(), &row);
    Ok(())
}

impl Txn<'_> {
    /// Records a file whose rows this batch deletes, so that it can be brought back. Returns
    /// whether it can be.
    pub(super) fn remember(&mut self, mut rnode: Rnode, has_xattr_rows: bool) -> bool {
        let is_on = self.shard.removed.is_on.load(Ordering::Acquire);
        if !is_on || rnode.kind != FileKind::Regular {
            return false;
        }
        let flags = &rnode.flags;
        let before = match flags.inline || flags.has_xattrs {
            false => None,
            true => match self.shard.table.snapshot() {
                Ok(before) => Some(before),
                Err(_) => return false,
            },
        };
        rnode.deleted_at = self.now;
        self.file_removed(GoneFile { rnode, before, has_xattr_rows });
        true
    }
}
