//! Files that have lost their last name, and that the kernel still holds without an open.
//!
//! A mount of a single file holds it so, as container engines make one for a file of settings, and
//! so does a descriptor made with `O_PATH`, which is opened later through `/proc/self/fd`. On a
//! local file system both go on. The kernel says FORGET once nothing holds an inode, most often
//! within microseconds of the removal of its name. So a thread looks at what it has not forgotten
//! [`TICK`] to twice that later, and opens it, until FORGET. The server can bring the file back by
//! then (`limits::REMOVED_SECONDS`). An ordinary removal costs no message, and the thread rests
//! while nothing is removed.
//!
//! If another mount removes the name, a notice says so of the name and of its inode, and not if
//! that has other names. If the kernel still has the inode behind the notice, it is asked to forget
//! what only its cache of names refers to, and the server is asked for the names of what is left.
//! A mount under leases is told before the name is removed: as long as it is granted no lease on
//! the attributes, that may still come, and it asks again. Of what is opened so the kernel may have
//! the name still, in its cache: it is asked now and then to forget that, so that FORGET comes.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pelago_wire::{InodeId, limits};

/// Between two looks.
const TICK: Duration = Duration::from_millis(250);
/// After which the kernel is asked again to forget what others have removed and only it refers to.
const PRUNE: Duration = Duration::from_secs(5);

/// What the thread that looks needs beside the state of the mount.
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
    told: VecDeque<Told>,
    /// Files that were opened here; those at the front first. Some were released since.
    opened: VecDeque<HeldInode>,
    has_thread: bool,
    ended: bool,
}

/// An inode whose names others have changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told {
    pub(crate) ino: InodeId,
    /// The tick at which the server is asked.
    pub(crate) due: u32,
    /// How often it was asked.
    pub(crate) questions: u32,
}

/// A file that was opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeldInode {
    pub(crate) ino: InodeId,
    pub(crate) by: Remover,
}

/// Who has removed the name of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remover {
    /// This mount: its kernel has dropped the name.
    This,
    Other,
}

impl HeldInodes {
    /// Has the thread look, unless it is about to; `start` starts it.
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

    /// Adds inodes whose names others have changed; the oldest go if there are too many.
    pub(crate) fn add(&self, inodes: impl Iterator<Item = Told>) {
        let mut work = self.0.work.lock();
        work.told.extend(inodes);
        let extra = work.told.len().saturating_sub(limits::HELD_INODES);
        work.told.drain(..extra);
    }

    /// Takes what is due. Returns also whether there is more.
    pub(crate) fn due(&self, tick: u32) -> (Vec<Told>, bool) {
        let mut work = self.0.work.lock();
        let (due, later) = work.told.drain(..).partition(|told| told.due <= tick);
        work.told = later;
        (due.into(), !work.told.is_empty())
    }

    /// Adds a file that was opened. Returns those that are to be released, the oldest, if there are
    /// too many; `is_held` says which were not released since.
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

    /// Returns those that are held and whose names others have removed.
    pub(crate) fn removed_by_others(&self, is_held: impl Fn(InodeId) -> bool) -> Vec<InodeId> {
        let mut work = self.0.work.lock();
        work.opened.retain(|held| is_held(held.ino));
        let told = work.opened.iter().filter(|held| held.by == Remover::Other);
        told.map(|held| held.ino).collect()
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
    /// Calls `look` for each look, with whether it is time to prune, as long as the mount lasts and
    /// it returns whether there will be more to look at.
    pub(crate) fn run(self, mut look: impl FnMut(bool) -> Option<bool>) {
        let mut pruned = Instant::now();
        while self.0.wait(pruned + PRUNE) {
            // Before it looks: what is removed from here on wakes it.
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
    /// Waits for something to look at, and then for a tick; at most until `prune`, if others have
    /// removed what is held. Returns whether the mount lasts.
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
