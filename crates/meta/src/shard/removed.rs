//! Files that were removed a moment ago: they have lost their last name, and are not open.
//!
//! A kernel may refer to such a file without an open: by a mount of that single file, a descriptor
//! made with `O_PATH`, or a call that has resolved its path and uses the file next. The server does
//! not know what kernels refer to, and most often nothing does. So the rows go with the name, and
//! nothing is written for it; but the rnode, and a snapshot of the table from before, are kept here
//! for [`limits::REMOVED_SECONDS`]. Who names the file by its handle in that time, brings it back:
//! then its rows are what they would be had it been open when it lost its name. The worker
//! `orphans` leaves its content file alone until then. A file that was open when it lost its name
//! has its rows still when it is closed, and keeps them for as long.
//!
//! Nothing of it survives the process: a file that was not brought back is gone then.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pelago_store::key;
use pelago_store::report::{row_damaged, table_failed};
use pelago_store::rows::{Inline, Row};
use pelago_store::sync::Mutex;
use pelago_store::table::{Snapshot, TableRead};
use pelago_wire::id_map::IdMap;
use pelago_wire::{Attr, Code, Error, FileKind, InodeId, limits};

use super::txn::Txn;
use super::{Shard, xattr};
use crate::row_cache::{Node, RowLocation};

/// How long a file can be brought back.
const HOLDS: Duration = Duration::from_secs(limits::REMOVED_SECONDS);

/// The files that were removed a moment ago. They are added under the shard's lock, and removed
/// without it. A leaf.
#[derive(Default)]
pub(super) struct RemovedFiles {
    inner: Mutex<Inner>,
    /// Files are remembered at all.
    is_on: AtomicBool,
    count: AtomicUsize,
    /// The worker is to be told that there are some.
    is_news: AtomicBool,
}

#[derive(Default)]
struct Inner {
    /// The oldest first. A file that was closed again is there once more.
    order: VecDeque<(Instant, InodeId)>,
    files: IdMap<InodeId, RemovedFile>,
    /// Some were forgotten since the worker was told.
    any_forgotten: bool,
}

struct RemovedFile {
    since: Instant,
    rows: Rows,
}

enum Rows {
    Gone(Box<GoneFile>),
    /// They were brought back, or never went.
    There,
}

/// What is kept of a file whose rows are gone.
pub(super) struct GoneFile {
    /// As it was after its last name was removed.
    pub(super) node: Node,
    /// The table from before; `None` if no row beside the rnode is needed.
    pub(super) before: Option<Snapshot>,
    /// The rows of its extended attributes, except access control lists, are still there.
    pub(super) has_xattr_rows: bool,
}

impl fmt::Debug for RemovedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemovedFiles({})", self.count.load(Ordering::Relaxed))
    }
}

impl Shard {
    /// Sets whether files that have lost their last name can be brought back for a while. If not,
    /// those that could are forgotten, so that the worker `orphans` may remove their bytes. Returns
    /// whether there were any.
    pub fn remember_removed(&self, remember: bool) -> bool {
        self.removed.is_on.store(remember, Ordering::Release);
        !remember && self.removed.clear()
    }

    /// Forgets the files that were removed too long ago. Returns whether any were forgotten since
    /// the last call, and how long the oldest of the others is kept.
    pub fn expire_removed(&self, now: Instant) -> (bool, Option<Duration>) {
        self.removed.expire(now)
    }

    /// Returns whether the worker `orphans` is to be notified that files are remembered which it
    /// does not know of; it is told once.
    pub fn has_removed_news(&self) -> bool {
        self.removed.is_news.load(Ordering::Acquire)
            && self.removed.is_news.swap(false, Ordering::AcqRel)
    }

    /// Returns whether a file was removed a moment ago and can be brought back.
    #[must_use]
    pub fn can_bring_back(&self, ino: InodeId) -> bool {
        self.removed.with_gone(ino, |_| ()).is_some()
    }

    /// Returns the attributes of a file that was removed a moment ago.
    #[must_use]
    pub fn removed_attr(&self, ino: InodeId) -> Option<Attr> {
        self.removed.with_gone(ino, |gone| gone.node.rnode.attr())
    }

    /// Brings back a file that was removed a moment ago, without a name: it is removed again unless
    /// it is opened. Returns whether it is there.
    ///
    /// # Errors
    /// If the table fails, or was opened again since; `TooBig` if its extended attributes are more
    /// than [`limits::REMOVED_XATTR_BYTES`].
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

/// Puts the rows again that went with the last name of a file, and its orphan row.
fn put_back(txn: &mut Txn<'_>, gone: &GoneFile) -> Result<(), Error> {
    let mut node = gone.node.clone();
    node.location = RowLocation::Own;
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
    /// Takes what is needed to bring a file back whose rows this batch deletes. Returns whether it
    /// can be.
    pub(super) fn remember(&mut self, mut node: Node, has_xattr_rows: bool) -> bool {
        let is_on = self.shard.removed.is_on.load(Ordering::Acquire);
        if !is_on || node.rnode.kind != FileKind::Regular {
            return false;
        }
        let flags = &node.rnode.flags;
        let before = match flags.inline || flags.has_xattrs {
            false => None,
            true => match self.shard.table.snapshot() {
                Ok(before) => Some(before),
                Err(_) => return false,
            },
        };
        node.rnode.deleted_at = self.now;
        self.file_removed(GoneFile { node, before, has_xattr_rows });
        true
    }
}

impl RemovedFiles {
    /// Adds a file whose rows were deleted.
    pub(super) fn add(&self, gone: Box<GoneFile>) {
        self.insert(gone.node.rnode.ino, Rows::Gone(gone));
    }

    /// Adds a file without a name that was closed. Returns whether it is added.
    pub(super) fn closed(&self, ino: InodeId) -> bool {
        let is_on = self.is_on.load(Ordering::Acquire);
        if is_on {
            self.insert(ino, Rows::There);
        }
        is_on
    }

    fn insert(&self, ino: InodeId, rows: Rows) {
        let since = Instant::now();
        let mut inner = self.inner.lock();
        let is_first = inner.order.is_empty();
        inner.order.push_back((since, ino));
        let before = inner.files.insert(ino, RemovedFile { since, rows });
        let oldest = match inner.order.len() > limits::REMOVED_FILES {
            true => inner.forget_oldest(),
            false => None,
        };
        self.count.store(inner.order.len(), Ordering::Release);
        drop(inner);
        drop((before, oldest));
        if is_first {
            self.is_news.store(true, Ordering::Release);
        }
    }

    /// Returns whether the worker must leave a file alone.
    pub(super) fn contains(&self, ino: InodeId) -> bool {
        !self.is_empty() && self.inner.lock().files.contains_key(&ino)
    }

    /// Forgets all files. Returns whether there were any.
    pub(super) fn clear(&self) -> bool {
        let mut inner = self.inner.lock();
        let any = !inner.order.is_empty();
        inner.any_forgotten |= any;
        inner.order.clear();
        let files = std::mem::take(&mut inner.files);
        self.count.store(0, Ordering::Release);
        drop(inner);
        drop(files);
        any
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Takes what is kept of a file that is gone: it is about to be back.
    fn take_gone(&self, ino: InodeId) -> Option<Box<GoneFile>> {
        let mut inner = self.inner.lock();
        match std::mem::replace(&mut inner.files.get_mut(&ino)?.rows, Rows::There) {
            Rows::Gone(gone) => Some(gone),
            Rows::There => None,
        }
    }

    /// Calls `with` with what is kept of a file that is gone.
    fn with_gone<T>(&self, ino: InodeId, with: impl FnOnce(&GoneFile) -> T) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        match &self.inner.lock().files.get(&ino)?.rows {
            Rows::Gone(gone) => Some(with(gone)),
            Rows::There => None,
        }
    }

    fn expire(&self, now: Instant) -> (bool, Option<Duration>) {
        let mut forgotten = Vec::new();
        let mut inner = self.inner.lock();
        while inner.order.front().is_some_and(|(since, _)| now.duration_since(*since) >= HOLDS) {
            forgotten.extend(inner.forget_oldest());
        }
        self.count.store(inner.order.len(), Ordering::Release);
        let next =
            inner.order.front().map(|(since, _)| HOLDS.saturating_sub(now.duration_since(*since)));
        let any_forgotten = std::mem::take(&mut inner.any_forgotten);
        drop(inner);
        (any_forgotten, next)
    }
}

impl Inner {
    fn forget_oldest(&mut self) -> Option<RemovedFile> {
        let (since, ino) = self.order.pop_front()?;
        if self.files.get(&ino)?.since != since {
            return None;
        }
        self.any_forgotten = true;
        self.files.remove(&ino)
    }
}
