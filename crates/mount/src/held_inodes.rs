//! Unlinked files that the kernel still refers to without an open.
//!
//! A bind mount of a single file refers to it in this way (container engines mount files of
//! settings so), and so does a descriptor of `O_PATH`, which can be opened later through
//! `/proc/self/fd`. On a local file system both stay usable. The kernel sends FORGET once nothing
//! refers to an inode, most often within microseconds of the removal of its name. So a thread looks
//! [`TICK`] to twice that after a removal whether FORGET has come. If not, it opens the file until
//! FORGET: the server can bring the file back for that long (`limits::REMOVED_SECONDS`). An
//! ordinary removal costs no message, and the thread rests while nothing is removed.
//!
//! If another mount removes the name, the change names both the name and its inode to this mount,
//! but does not say whether the inode has other names. If the kernel still has the inode after its
//! invalidation, it is asked to forget inodes that only its cache of names refers to
//! ([`crate::prune`]), and the server is asked how many names the others have. A mount under leases
//! gets the recall before the name is removed. So while it gets no lease on the attributes, the
//! removal may still be to come, and it asks again. The kernel's cache may still have the name of a
//! file that was opened here: the kernel is asked now and then to forget it, so that FORGET comes.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pelago_wire::{InodeId, limits};

/// Time between two looks.
const TICK: Duration = Duration::from_millis(250);
/// Time between two requests to the kernel to forget files that others have removed.
const PRUNE: Duration = Duration::from_secs(5);

/// The queue of the thread that looks.
#[derive(Default)]
pub(crate) struct HeldInodes(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// The thread looks, or is about to.
    is_awake: AtomicBool,
    /// A leaf lock.
    work: Mutex<Work>,
    wake: Condvar,
}

#[derive(Default)]
struct Work {
    /// Inodes whose names others have changed.
    changed: VecDeque<ChangedInode>,
    /// Files that were opened here, the oldest at the front. Some were released since.
    opened: VecDeque<HeldInode>,
    has_thread: bool,
    ended: bool,
}

/// An inode whose names others have changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangedInode {
    pub(crate) ino: InodeId,
    /// The tick at which the server is asked.
    pub(crate) due: u32,
    /// Count of requests to the server about it.
    pub(crate) questions: u32,
}

/// A file that was opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeldInode {
    pub(crate) ino: InodeId,
    pub(crate) by: Remover,
}

/// The remover of a file's last name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remover {
    /// This mount: its kernel has dropped the name.
    This,
    /// Another session: this kernel may still cache the name.
    Other,
}

impl HeldInodes {
    /// Wakes the thread that looks, unless it is about to look; `start` starts it.
    pub(crate) fn wake(&self, start: impl FnOnce(Looks) -> io::Result<()>) {
        if self.0.is_awake.load(Ordering::SeqCst) {
            return;
        }
        let mut work = self.0.work.lock();
        self.0.is_awake.store(true, Ordering::SeqCst);
        if !work.has_thread {
            match start(Looks(Arc::clone(&self.0))) {
                Ok(()) => work.has_thread = true,
                Err(error) => tracing::warn!(%error, "what the kernel holds may be lost"),
            }
        }
        drop(work);
        self.0.wake.notify_one();
    }

    /// Adds inodes whose names others have changed. If there are too many, the oldest are dropped.
    pub(crate) fn add(&self, inodes: impl Iterator<Item = ChangedInode>) {
        let mut work = self.0.work.lock();
        work.changed.extend(inodes);
        let extra = work.changed.len().saturating_sub(limits::HELD_INODES);
        work.changed.drain(..extra);
    }

    /// Takes the inodes that are due. Returns also whether others are left.
    pub(crate) fn due(&self, tick: u32) -> (Vec<ChangedInode>, bool) {
        let mut work = self.0.work.lock();
        let (due, later) = work.changed.drain(..).partition(|changed| changed.due <= tick);
        work.changed = later;
        (due.into(), !work.changed.is_empty())
    }

    /// Adds a file that was opened. If there are too many, returns the oldest, which the caller
    /// must release; `is_held` returns whether a file is still open.
    pub(crate) fn opened(
        &self,
        held: HeldInode,
        is_held: impl Fn(InodeId) -> bool,
    ) -> Vec<InodeId> {
        let mut work = self.0.work.lock();
        work.opened.push_back(held);
        let mut oldest = Vec::new();
        if work.opened.len() > limits::HELD_INODES {
            work.opened.retain(|held| is_held(held.ino));
            let extra = work.opened.len().saturating_sub(limits::HELD_INODES);
            oldest.extend(work.opened.drain(..extra).map(|held| held.ino));
        }
        drop(work);
        if held.by == Remover::Other {
            self.0.wake.notify_one();
        }
        oldest
    }

    /// Returns the files that are open here and whose names others have removed.
    pub(crate) fn removed_by_others(&self, is_held: impl Fn(InodeId) -> bool) -> Vec<InodeId> {
        let mut work = self.0.work.lock();
        work.opened.retain(|held| is_held(held.ino));
        let held = work.opened.iter().filter(|held| held.by == Remover::Other);
        held.map(|held| held.ino).collect()
    }
}

impl Drop for HeldInodes {
    fn drop(&mut self) {
        self.0.work.lock().ended = true;
        self.0.wake.notify_one();
    }
}

/// The thread that looks.
pub(crate) struct Looks(Arc<Shared>);

impl Looks {
    /// Calls `look` for each look, with true if it is time to prune, until the mount ends. `look`
    /// returns whether more will be left to look at; `None` ends the thread.
    pub(crate) fn run(self, mut look: impl FnMut(bool) -> Option<bool>) {
        let mut pruned = Instant::now();
        while self.0.wait(pruned + PRUNE) {
            // Before the look: a removal from here on wakes the thread again.
            self.0.is_awake.store(false, Ordering::SeqCst);
            let prunes = pruned.elapsed() >= PRUNE;
            match look(prunes) {
                None => return,
                Some(true) => self.0.is_awake.store(true, Ordering::SeqCst),
                Some(false) => {}
            }
            if prunes {
                pruned = Instant::now();
            }
        }
    }
}

impl Shared {
    /// Waits for a removal, and then for a tick; at most until `prune`, if a file is open here
    /// whose name others have removed. Returns false once the mount has ended.
    fn wait(&self, prune: Instant) -> bool {
        let mut work = self.work.lock();
        while !work.ended && !self.is_awake.load(Ordering::SeqCst) {
            match work.opened.iter().any(|held| held.by == Remover::Other) {
                false => self.wake.wait(&mut work),
                true if self.wake.wait_until(&mut work, prune).timed_out() => return !work.ended,
                true => {}
            }
        }
        let until = Instant::now() + TICK;
        while !work.ended && !self.wake.wait_until(&mut work, until).timed_out() {}
        !work.ended
    }
}
