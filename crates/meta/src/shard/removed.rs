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

use pelago_store::rows::Rnode;
use pelago_store::sync::Mutex;
use pelago_store::table::Snapshot;
use pelago_wire::id_map::IdMap;
use pelago_wire::{InodeId, limits};

/// How long a file can be brought back, at least.
const KEPT: Duration = Duration::from_secs(limits::REMOVED_SECONDS);
/// How much longer, at most, if the worker comes in time.
const SLACK: Duration = Duration::from_millis(250);

/// The files that were removed a moment ago. They are added under the shard's lock, and removed
/// without it. A leaf.
///
/// Each removal adds one, and next to none is ever looked up. So adding one is a copy to the end of
/// a queue: it reads no clock, allocates nothing, and enters no map.
#[derive(Default)]
pub(super) struct RemovedFiles {
    inner: Mutex<Inner>,
    /// Files are remembered at all.
    pub(super) is_on: AtomicBool,
    count: AtomicUsize,
    /// The worker is to be told that there are some.
    pub(super) is_news: AtomicBool,
}

/// The files have consecutive numbers, in the order in which they were added.
#[derive(Default)]
struct Inner {
    /// The oldest first.
    files: VecDeque<(InodeId, Rows)>,
    /// The number of the oldest.
    first: u64,
    /// The numbers of those that are below `indexed`. The others follow with the next look-up.
    numbers: IdMap<InodeId, u64>,
    indexed: u64,
    /// The oldest first.
    marks: VecDeque<Mark>,
    /// Some were forgotten since the worker was told, and have left an orphan row.
    any_forgotten: bool,
}

/// A time, and the number of the first file that was added after it.
struct Mark {
    time: Instant,
    end: u64,
}

enum Rows {
    Gone(GoneFile),
    /// They were brought back, or never went.
    There,
}

/// What is kept of a file whose rows are gone.
pub(super) struct GoneFile {
    /// As it was after its last name was removed.
    pub(super) rnode: Rnode,
    /// The table from before; `None` if no row beside the rnode is needed.
    pub(super) before: Option<Snapshot>,
    /// The rows of its extended attributes, except access control lists, are still there.
    pub(super) has_xattr_rows: bool,
}

impl Rows {
    /// Returns whether there is an orphan row, so that the worker `orphans` has work.
    const fn have_orphan(&self) -> bool {
        match self {
            Self::Gone(gone) => gone.has_xattr_rows || gone.rnode.generation.is_some(),
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
    pub(super) fn add(&self, gone: GoneFile) {
        self.push(gone.rnode.ino, Rows::Gone(gone));
    }

    /// Adds a file without a name that was closed, unless it is there: opening it again and again
    /// does not keep it. Returns whether it is there.
    pub(super) fn closed(&self, ino: InodeId) -> bool {
        let is_on = self.is_on.load(Ordering::Acquire);
        if is_on && !self.contains(ino) {
            self.push(ino, Rows::There);
        }
        is_on
    }

    fn push(&self, ino: InodeId, rows: Rows) {
        let mut inner = self.inner.lock();
        let is_first = inner.files.is_empty();
        inner.files.push_back((ino, rows));
        let snapshot = match inner.files.len() > limits::REMOVED_FILES {
            true => inner.forget_oldest(),
            false => None,
        };
        self.count.store(inner.files.len(), Ordering::Release);
        drop(inner);
        drop(snapshot);
        if is_first {
            self.is_news.store(true, Ordering::Release);
        }
    }

    /// Returns whether the worker must leave a file alone.
    pub(super) fn contains(&self, ino: InodeId) -> bool {
        !self.is_empty() && self.inner.lock().find(ino).is_some()
    }

    /// Forgets all files. Returns whether there were any.
    pub(super) fn clear(&self) -> bool {
        let mut inner = self.inner.lock();
        let first = inner.first + inner.files.len() as u64;
        let any_forgotten =
            inner.any_forgotten || inner.files.iter().any(|(_, rows)| rows.have_orphan());
        let forgotten = std::mem::replace(
            &mut *inner,
            Inner { first, indexed: first, any_forgotten, ..Inner::default() },
        );
        self.count.store(0, Ordering::Release);
        drop(inner);
        !forgotten.files.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Takes what is kept of a file that is gone: it is about to be back.
    pub(super) fn take_gone(&self, ino: InodeId) -> Option<GoneFile> {
        match std::mem::replace(self.inner.lock().find(ino)?, Rows::There) {
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
        match self.inner.lock().find(ino)? {
            Rows::Gone(gone) => Some(with(gone)),
            Rows::There => None,
        }
    }

    /// Forgets the files that were added too long before `now`. Returns whether any were forgotten
    /// since the last call that have left an orphan row, and when to call again.
    pub(super) fn expire(&self, now: Instant) -> (bool, Option<Duration>) {
        // They are dropped without the lock.
        let mut snapshots = Vec::new();
        let mut inner = self.inner.lock();
        let is_over = |mark: &mut Mark| now.duration_since(mark.time) >= KEPT;
        while let Some(mark) = inner.marks.pop_front_if(is_over) {
            while inner.first < mark.end && !inner.files.is_empty() {
                snapshots.extend(inner.forget_oldest());
            }
        }
        let unmarked = !inner.mark(now);
        self.count.store(inner.files.len(), Ordering::Release);
        let oldest = inner.marks.front();
        let next = oldest.map(|mark| KEPT.saturating_sub(now.duration_since(mark.time)));
        let next = next.map(|next| if unmarked { next.min(SLACK) } else { next });
        let any_forgotten = std::mem::take(&mut inner.any_forgotten);
        drop(inner);
        (any_forgotten, next)
    }
}

impl Inner {
    /// Returns what is kept of a file.
    fn find(&mut self, ino: InodeId) -> Option<&mut Rows> {
        let known = usize::try_from(self.indexed - self.first).unwrap_or(usize::MAX);
        for (number, (ino, _)) in (self.indexed..).zip(self.files.iter().skip(known)) {
            self.numbers.insert(*ino, number);
        }
        self.indexed = self.first + self.files.len() as u64;
        let index = usize::try_from(self.numbers.get(&ino)? - self.first).ok()?;
        self.files.get_mut(index).map(|(_, rows)| rows)
    }

    /// Forgets the oldest file in place. Returns its snapshot, to be dropped without the lock.
    fn forget_oldest(&mut self) -> Option<Snapshot> {
        let (ino, rows) = self.files.front_mut()?;
        self.any_forgotten |= rows.have_orphan();
        let snapshot = match rows {
            Rows::Gone(gone) => gone.before.take(),
            Rows::There => None,
        };
        if self.first < self.indexed && self.numbers.get(ino) == Some(&self.first) {
            self.numbers.remove(ino);
        }
        self.files.pop_front();
        self.first += 1;
        self.indexed = self.indexed.max(self.first);
        if self.files.is_empty() {
            self.files = VecDeque::new();
        }
        snapshot
    }

    /// Notes the time for the files that were added since it was noted last, unless that was a
    /// moment ago. Returns whether all have one.
    fn mark(&mut self, now: Instant) -> bool {
        let end = self.first + self.files.len() as u64;
        let is_marked = match self.marks.back() {
            Some(last) => last.end == end,
            None => self.files.is_empty(),
        };
        if is_marked {
            return true;
        }
        let is_time = self.marks.back().is_none_or(|last| now.duration_since(last.time) >= SLACK);
        if is_time {
            self.marks.push_back(Mark { time: now, end });
        }
        is_time
    }
}
