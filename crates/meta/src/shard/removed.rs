//! Recently removed files: they lost their last name, are not open, and can be brought back for a
//! while.
//!
//! A kernel may refer to such a file without an open: by a mount of that single file, a descriptor
//! opened with `O_PATH`, or a call that has resolved its path and uses the file next. The server
//! does not know to which files kernels refer; for most removed files no reference exists. So the
//! rows are deleted with the name, and nothing else is written; but the rnode, and a snapshot of
//! the table from before the removal, are kept here for [`limits::REMOVED_SECONDS`]. A request with
//! the handle of the file in that time brings it back: then its rows are those of a file that was
//! open when it lost its name. The worker `orphans` does not remove its content file until then. A
//! file that was open when it lost its name still has its rows when it is closed, and keeps them
//! for the same time.
//!
//! FORGET by the kernel of the server's own mount ends that time, if there is no other session.
//! None of this survives the process: then files that were not brought back are lost.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, mem};

use pelago_store::rows::Rnode;
use pelago_store::sync::Mutex;
use pelago_store::table::Snapshot;
use pelago_wire::id_map::IdMap;
use pelago_wire::{InodeId, limits};

/// The shortest time for which a file can be brought back, unless it is forgotten before.
const KEPT: Duration = Duration::from_secs(limits::REMOVED_SECONDS);
/// The shortest time between two recorded looks. A file is kept longer by at most this time.
const SLACK: Duration = Duration::from_millis(250);

/// The number of newest files that a lookup compares one by one: most often a kernel forgets a file
/// right after its removal.
const NEAR: usize = 8;
/// The capacity that an empty queue keeps.
const SMALL: usize = 64;

/// The recently removed files. They are added under the shard's lock, and removed without it. A
/// leaf lock.
///
/// Each removal adds a file, and very few files are brought back. So adding a file is a copy to the
/// end of a queue: it reads no clock, allocates nothing, and changes no map.
#[derive(Default)]
pub(super) struct RemovedFiles {
    inner: Mutex<Inner>,
    /// True if removed files are recorded at all.
    pub(super) is_on: AtomicBool,
    count: AtomicUsize,
    /// True if the worker must be notified of new files.
    pub(super) is_news: AtomicBool,
}

/// The state under the lock. Files have consecutive numbers, in the order in which they were added.
#[derive(Default)]
struct Inner {
    /// The oldest first.
    files: VecDeque<(InodeId, Rows)>,
    /// The number of the oldest.
    first: u64,
    /// The numbers of the files below `indexed`. The others are added by the next lookup.
    numbers: IdMap<InodeId, u64>,
    indexed: u64,
    /// The recorded looks of the worker, the oldest first. A look is kept while files are there
    /// that were added before it.
    looks: VecDeque<Look>,
    /// True if files with an orphan row were forgotten since the last look of the worker.
    any_forgotten: bool,
    /// True if the worker will look by itself, or is about to be notified.
    worker_knows: bool,
}

/// A look of the worker at the files: its time, and the number of the first file that was added
/// after it.
struct Look {
    time: Instant,
    end: u64,
}

#[expect(clippy::large_enum_variant, reason = "nearly all files are gone, and a box costs more")]
enum Rows {
    Gone(GoneFile),
    /// They exist: they were brought back, or never deleted.
    There,
    /// The file was forgotten. Its entry stays until all older ones are removed.
    Forgotten,
}

/// The data with which a file whose rows were deleted can be brought back.
pub(super) struct GoneFile {
    /// The rnode after the last name was removed.
    pub(super) rnode: Rnode,
    /// The table before the removal; `None` if no row other than the rnode is needed.
    pub(super) before: Option<Snapshot>,
    /// True if the rows of its extended attributes, except access control lists, are still there.
    pub(super) has_xattr_rows: bool,
}

impl Rows {
    /// Returns whether the file has an orphan row, so that the worker `orphans` has work.
    const fn have_orphan(&self) -> bool {
        match self {
            Self::Gone(gone) => gone.has_xattr_rows || gone.rnode.generation.is_some(),
            Self::There => true,
            Self::Forgotten => false,
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

    /// Adds a closed file without a name, unless it is there already: repeated opens do not extend
    /// its time. Returns whether it is there.
    pub(super) fn closed(&self, ino: InodeId) -> bool {
        let is_on = self.is_on.load(Ordering::Acquire);
        if is_on && !self.contains(ino) {
            self.push(ino, Rows::There);
        }
        is_on
    }

    fn push(&self, ino: InodeId, rows: Rows) {
        let mut inner = self.inner.lock();
        let is_news = !mem::replace(&mut inner.worker_knows, true);
        inner.files.push_back((ino, rows));
        let snapshot = match inner.files.len() > limits::REMOVED_FILES {
            true => inner.forget_oldest(),
            false => None,
        };
        self.count.store(inner.files.len(), Ordering::Release);
        drop(inner);
        drop(snapshot);
        if is_news {
            self.is_news.store(true, Ordering::Release);
        }
    }

    /// Returns whether a file is there, so that the worker must not remove it.
    pub(super) fn contains(&self, ino: InodeId) -> bool {
        !self.is_empty() && self.inner.lock().find(ino).is_some()
    }

    /// Forgets a file. Returns whether it was there and has an orphan row.
    pub(super) fn forget(&self, ino: InodeId) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut inner = self.inner.lock();
        let Some(rows) = inner.find(ino) else { return false };
        let forgotten = mem::replace(rows, Rows::Forgotten);
        while let Some((_, Rows::Forgotten)) = inner.files.front() {
            inner.forget_oldest();
        }
        self.count.store(inner.files.len(), Ordering::Release);
        drop(inner);
        forgotten.have_orphan()
    }

    /// Forgets all files. Returns whether there were any.
    pub(super) fn clear(&self) -> bool {
        let mut inner = self.inner.lock();
        let first = inner.first + inner.files.len() as u64;
        let any_forgotten =
            inner.any_forgotten || inner.files.iter().any(|(_, rows)| rows.have_orphan());
        let forgotten = mem::replace(
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

    /// Takes the data of a file whose rows were deleted, in order to bring it back.
    pub(super) fn take_gone(&self, ino: InodeId) -> Option<GoneFile> {
        match mem::replace(self.inner.lock().find(ino)?, Rows::There) {
            Rows::Gone(gone) => Some(gone),
            Rows::There | Rows::Forgotten => None,
        }
    }

    /// Calls `with` with the data of a file whose rows were deleted.
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
            Rows::There | Rows::Forgotten => None,
        }
    }

    /// Forgets the files that were added too long before `now`. Returns whether any file with an
    /// orphan row was forgotten since the last call, and the time until the next call.
    pub(super) fn expire(&self, now: Instant) -> (bool, Option<Duration>) {
        // Snapshots are dropped without the lock.
        let mut snapshots = Vec::new();
        let mut inner = self.inner.lock();
        let is_over = |look: &mut Look| now.duration_since(look.time) >= KEPT;
        while let Some(look) = inner.looks.pop_front_if(is_over) {
            while inner.first < look.end && !inner.files.is_empty() {
                snapshots.extend(inner.forget_oldest());
            }
        }
        let unseen = !inner.note_look(now);
        self.count.store(inner.files.len(), Ordering::Release);
        let oldest = inner.looks.front();
        let next = oldest.map(|look| KEPT.saturating_sub(now.duration_since(look.time)));
        let next = next.map(|next| if unseen { next.min(SLACK) } else { next });
        inner.worker_knows = next.is_some();
        let any_forgotten = mem::take(&mut inner.any_forgotten);
        drop(inner);
        (any_forgotten, next)
    }
}

impl Inner {
    /// Returns the entry of a file, unless it was forgotten.
    fn find(&mut self, ino: InodeId) -> Option<&mut Rows> {
        let near = self.files.iter().rev().take(NEAR).position(|(other, _)| *other == ino);
        let index = match near {
            Some(from_the_end) => self.files.len() - 1 - from_the_end,
            None => self.index_of(ino)?,
        };
        match self.files.get_mut(index)? {
            (_, Rows::Forgotten) => None,
            (_, rows) => Some(rows),
        }
    }

    /// Returns the position of a file in the queue, after adding the numbers of all files to the
    /// map.
    fn index_of(&mut self, ino: InodeId) -> Option<usize> {
        let known = usize::try_from(self.indexed - self.first).ok()?;
        for (number, (ino, _)) in (self.indexed..).zip(self.files.iter().skip(known)) {
            self.numbers.insert(*ino, number);
        }
        self.indexed = self.first + self.files.len() as u64;
        usize::try_from(self.numbers.get(&ino)? - self.first).ok()
    }

    /// Forgets the oldest file. Returns its snapshot, to be dropped without the lock.
    fn forget_oldest(&mut self) -> Option<Snapshot> {
        let (ino, rows) = self.files.front_mut()?;
        self.any_forgotten |= rows.have_orphan();
        let snapshot = match rows {
            Rows::Gone(gone) => gone.before.take(),
            Rows::There | Rows::Forgotten => None,
        };
        if self.first < self.indexed && self.numbers.get(ino) == Some(&self.first) {
            self.numbers.remove(ino);
        }
        self.files.pop_front();
        self.first += 1;
        self.indexed = self.indexed.max(self.first);
        if self.files.is_empty() && self.files.capacity() > SMALL {
            self.files = VecDeque::new();
        }
        snapshot
    }

    /// Records a look if files were added since the last one, unless that was less than [`SLACK`]
    /// ago. Returns whether all files were added before a recorded look.
    fn note_look(&mut self, now: Instant) -> bool {
        let end = self.first + self.files.len() as u64;
        let is_seen = match self.looks.back() {
            Some(last) => last.end == end,
            None => self.files.is_empty(),
        };
        if is_seen {
            return true;
        }
        let is_time = self.looks.back().is_none_or(|last| now.duration_since(last.time) >= SLACK);
        if is_time {
            self.looks.push_back(Look { time: now, end });
        }
        is_time
    }
}
