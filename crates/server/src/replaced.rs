//! Files that a rename of another session has replaced, and that can still be opened for a while.
//!
//! The kernel of a mount resolves a path first and opens the inode later. If a rename removes the
//! last name of that inode in between, the file would be gone, and the open would fail with
//! `ESTALE`, although the name existed at every moment. The kernel then resolves the path once
//! more, which is enough unless a second rename comes in between again: on a far mount each of the
//! two steps is a round trip.
//!
//! So a file that a rename of a session replaces is held open for [`limits::REPLACED_SECONDS`], and
//! the target of a symbolic link is held in memory for the same time. A later open resolves its
//! path again, and fails only if it is that late twice in a row. No client requests this, so a
//! rename is one request, and opens of all mounts profit. The held files do not survive the server:
//! an open that a restart interrupts resolves its path again too. (The server's own mount holds
//! open the files that it replaces itself, until its kernel has forgotten them.)

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_data::{MayBlock, OpError, OpenFiles, OpenKey, WakeWorker};
use pelago_wire::{Handle, InodeId, OpenFlags, OpenId, SessionId, limits};

/// The time for which a file is held.
const HOLD_TIME: Duration = Duration::from_secs(limits::REPLACED_SECONDS);
/// The number of held files above which the oldest are released early. There is room for more until
/// that is done.
const HELD_MAX: usize = limits::REPLACED_FILES / 2;
/// Number of files that are released in one piece of work.
const RELEASED_AT_ONCE: usize = 64;
/// The session of these opens. Sessions of clients count from 1.
const HOLDER: SessionId = SessionId(u64::MAX);

/// The files that are held.
pub(crate) struct ReplacedFiles {
    opens: Arc<OpenFiles>,
    notify: WakeWorker,
    last_open: AtomicU64,
    /// The held files, the oldest first.
    files: Mutex<VecDeque<ReplacedFile>>,
}

/// A file that is held, or about to be.
#[derive(Debug)]
pub(crate) struct ReplacedFile {
    ino: InodeId,
    until: Instant,
    what: Retained,
}

#[derive(Debug)]
enum Retained {
    /// The file itself, open.
    Open(OpenKey),
    /// The target of a symbolic link.
    Target(Vec<u8>),
}

impl fmt::Debug for ReplacedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplacedFiles({})", self.files.lock().len())
    }
}

impl ReplacedFiles {
    /// Returns an empty list of held files; `notify` wakes the worker `replaced`.
    #[must_use]
    pub(crate) fn new(opens: Arc<OpenFiles>, notify: WakeWorker) -> Self {
        Self { opens, notify, last_open: AtomicU64::new(0), files: Mutex::default() }
    }

    /// Counts the files that are held open.
    pub(crate) fn open_count(&self) -> usize {
        let files = self.files.lock();
        files.iter().filter(|file| matches!(file.what, Retained::Open(_))).count()
    }

    /// Returns whether one more file can be held.
    pub(crate) fn has_room(&self) -> bool {
        self.files.lock().len() < limits::REPLACED_FILES
    }

    /// Opens a regular file that is about to be replaced.
    ///
    /// # Errors
    /// [`OpError::WouldBlock`]; and those of an open.
    pub(crate) fn open(&self, node: Handle, may_block: MayBlock) -> Result<ReplacedFile, OpError> {
        let open = OpenId(self.last_open.fetch_add(1, Ordering::Relaxed) + 1);
        let key = OpenKey { session: HOLDER, open };
        self.opens.open(key, node, OpenFlags::READ, may_block)?;
        Ok(ReplacedFile::new(node.ino, Retained::Open(key)))
    }

    /// Ends the preparation of a rename: `file` is held if it is the one that was replaced.
    pub(crate) fn settle(&self, file: ReplacedFile, replaced: Option<InodeId>) {
        let now = Instant::now();
        let is_held = replaced == Some(file.ino);
        let until = if is_held { now + HOLD_TIME } else { now };
        let file = ReplacedFile { until, ..file };
        let mut files = self.files.lock();
        match is_held {
            true => files.push_back(file),
            false => files.push_front(file),
        }
        let must_wake = !is_held || files.len() == 1 || files.len() > HELD_MAX;
        drop(files);
        if must_wake {
            (self.notify)();
        }
    }

    /// Returns the target of a symbolic link that was replaced.
    pub(crate) fn target(&self, ino: InodeId) -> Option<Vec<u8>> {
        let files = self.files.lock();
        files.iter().find(|file| file.ino == ino).and_then(|file| match &file.what {
            Retained::Target(target) => Some(target.clone()),
            Retained::Open(_) => None,
        })
    }

    /// Releases some of the files whose time is over. Returns their number, and the end of the next
    /// file's time. Blocks on the disk.
    pub(crate) fn release_due(&self, now: Instant) -> (usize, Option<Instant>) {
        let mut due = Vec::new();
        let mut files = self.files.lock();
        while due.len() < RELEASED_AT_ONCE
            && let Some(file) = files.front()
            && (file.until <= now || files.len() > HELD_MAX)
        {
            due.extend(files.pop_front());
        }
        let next = files.front().map(|file| file.until);
        drop(files);
        let count = due.len();
        due.into_iter().for_each(|file| self.release(file));
        (count, next)
    }

    /// Releases all files. Blocks on the disk.
    pub(crate) fn release_all(&self) {
        let files = std::mem::take(&mut *self.files.lock());
        files.into_iter().for_each(|file| self.release(file));
    }

    fn release(&self, file: ReplacedFile) {
        let Retained::Open(open) = file.what else { return };
        if let Err(error) = self.opens.release(open, MayBlock::Yes) {
            tracing::warn!(inode = file.ino.raw(), ?error, "a replaced file is not released");
        }
    }
}

impl ReplacedFile {
    fn new(ino: InodeId, what: Retained) -> Self {
        Self { ino, until: Instant::now(), what }
    }

    /// Returns a symbolic link that is about to be replaced.
    pub(crate) fn symlink(ino: InodeId, target: Vec<u8>) -> Self {
        Self::new(ino, Retained::Target(target))
    }
}
