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

use pelago_store::sync::Mutex;
use pelago_store::table::Snapshot;
use pelago_wire::id_map::IdMap;
use pelago_wire::{InodeId, limits};

use crate::row_cache::Node;

/// How long a file can be brought back.
const HOLDS: Duration = Duration::from_secs(limits::REMOVED_SECONDS);

/// The files that were removed a moment ago. They are added under the shard's lock, and removed
/// without it. A leaf.
#[derive(Default)]
pub(super) struct RemovedFiles {
    inner: Mutex<Inner>,
    /// Files are remembered at all.
    pub(super) is_on: AtomicBool,
    count: AtomicUsize,
    /// The worker is to be told that there are some.
    pub(super) is_news: AtomicBool,
}

#[derive(Default)]
struct Inner {
    /// The oldest first.
    order: VecDeque<(Instant, InodeId)>,
    files: IdMap<InodeId, Rows>,
    /// Some were forgotten since the worker was told, and have left an orphan row.
    any_forgotten: bool,
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

impl Rows {
    /// Returns whether there is an orphan row, so that the worker `orphans` has work.
    const fn have_orphan(&self) -> bool {
        match self {
            Self::Gone(gone) => gone.has_xattr_rows || gone.node.rnode.generation.is_some(),
            Self::There => true,
        }
    }
}

impl fmt::Debug for RemovedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemovedFiles({})", self.count.load(Ordering::Relaxed))
    }
}

impl RemovedFiles {
    /// Adds a file whose rows were deleted.
    pub(super) fn add(&self, gone: Box<GoneFile>) {
        self.insert(gone.node.rnode.ino, Rows::Gone(gone));
    }

    /// Adds a file without a name that was closed, unless it is there: opening it again and again
    /// does not keep it. Returns whether it is there.
    pub(super) fn closed(&self, ino: InodeId) -> bool {
        let is_on = self.is_on.load(Ordering::Acquire);
        if is_on && !self.contains(ino) {
            self.insert(ino, Rows::There);
        }
        is_on
    }

    fn insert(&self, ino: InodeId, rows: Rows) {
        let mut inner = self.inner.lock();
        let is_first = inner.order.is_empty();
        let before = inner.files.insert(ino, rows);
        if before.is_none() {
            inner.order.push_back((Instant::now(), ino));
        }
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
        inner.any_forgotten |= inner.files.values().any(Rows::have_orphan);
        inner.order.clear();
        let files = std::mem::take(&mut inner.files);
        self.count.store(0, Ordering::Release);
        drop(inner);
        drop(files);
        any
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Takes what is kept of a file that is gone: it is about to be back.
    pub(super) fn take_gone(&self, ino: InodeId) -> Option<Box<GoneFile>> {
        let mut inner = self.inner.lock();
        match std::mem::replace(inner.files.get_mut(&ino)?, Rows::There) {
            Rows::Gone(gone) => Some(gone),
            Rows::There => None,
        }
    }

    /// Calls `with` with what is kept of a file that is gone.
    pub(super) fn with_gone<T>(
        &self,
        ino: InodeId,
        with: impl FnOnce(&GoneFile) -> T,
    ) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        match self.inner.lock().files.get(&ino)? {
            Rows::Gone(gone) => Some(with(gone)),
            Rows::There => None,
        }
    }

    pub(super) fn expire(&self, now: Instant) -> (bool, Option<Duration>) {
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
    fn forget_oldest(&mut self) -> Option<Rows> {
        let (_, ino) = self.order.pop_front()?;
        let rows = self.files.remove(&ino);
        self.any_forgotten |= rows.as_ref().is_some_and(Rows::have_orphan);
        rows
    }
}
