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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pelago_client::Opened;
use pelago_fuse::Notifier;
use pelago_fuse::ids::NodeId;
use pelago_wire::{Attr, Context, FileKind, InodeId, OpenFlags, Touched, limits};

use crate::kernel_cache::invalidate;
use crate::open_ids::OpenPath;
use crate::prune;
use crate::state::State;
use crate::unlinked::Retained;

/// Between two looks.
const TICK: Duration = Duration::from_millis(250);
/// After which the kernel is asked again to forget what others have removed and only it refers to.
const PRUNE: Duration = Duration::from_secs(5);
/// Ticks from a notice to the question for the names, the first time.
const FIRST: u32 = 2;
/// How often the server is asked, each time after twice as long.
const QUESTIONS: u32 = 5;

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
struct Told {
    ino: InodeId,
    /// The tick at which the server is asked.
    due: u32,
    /// How often it was asked.
    questions: u32,
}

/// A file that was opened.
#[derive(Debug, Clone, Copy)]
struct HeldInode {
    ino: InodeId,
    by: Remover,
}

/// Who has removed the name of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Remover {
    /// This mount: its kernel has dropped the name.
    This,
    Other,
}

impl HeldInodes {
    /// Has the thread look, unless it is about to.
    fn wake(&self, state: &Arc<State>) {
        if self.0.is_awake.load(Ordering::SeqCst) {
            return;
        }
        let mut work = self.0.work.lock();
        self.0.is_awake.store(true, Ordering::SeqCst);
        if !work.has_thread {
            let (shared, state) = (Arc::clone(&self.0), Arc::downgrade(state));
            match pelago_threads::spawn("fuse-held", move || shared.look(&state)) {
                Ok(_) => work.has_thread = true,
                Err(error) => tracing::warn!(%error, "what the kernel holds may be lost"),
            }
        }
        drop(work);
        self.0.wake.notify_one();
    }

    /// Adds inodes whose names others have changed; the oldest go if there are too many.
    fn add(&self, inodes: impl Iterator<Item = Told>) {
        let mut work = self.0.work.lock();
        work.told.extend(inodes);
        let extra = work.told.len().saturating_sub(limits::HELD_INODES);
        work.told.drain(..extra);
    }

    /// Takes what is due. Returns also whether there is more.
    fn due(&self, tick: u32) -> (Vec<Told>, bool) {
        let mut work = self.0.work.lock();
        let (due, later) = work.told.drain(..).partition(|told| told.due <= tick);
        work.told = later;
        (due.into(), !work.told.is_empty())
    }
}

impl Drop for HeldInodes {
    fn drop(&mut self) {
        self.0.work.lock().ended = true;
        self.0.wake.notify_one();
    }
}

impl Shared {
    /// Looks as long as the mount lasts.
    fn look(&self, state: &Weak<State>) {
        let mut pruned = Instant::now();
        while self.wait(pruned + PRUNE) {
            let Some(state) = state.upgrade() else { return };
            // Before it looks: what is removed from here on wakes it.
            self.is_awake.store(false, Ordering::SeqCst);
            if state.look_at_held() {
                self.is_awake.store(true, Ordering::SeqCst);
            }
            if pruned.elapsed() >= PRUNE {
                state.prune_held();
                pruned = Instant::now();
            }
        }
    }

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

impl State {
    /// This mount has removed names: what the kernel holds is looked at soon.
    pub(crate) fn has_removed(self: &Arc<Self>) {
        self.held_inodes.wake(self);
    }

    /// Others have made these changes, or are about to: perhaps they remove names. `known`: nodes of
    /// them that the kernel has behind the notices.
    pub(crate) fn note_known(self: &Arc<Self>, changes: &[Touched], known: &[InodeId]) {
        let dirs = changes.iter().filter_map(|change| match change {
            Touched::Name { dir, .. } => Some(*dir),
            Touched::Node(_) | Touched::Bytes(_) => None,
        });
        let dirs: Vec<InodeId> = dirs.collect();
        let mut files = known.iter().filter(|ino| !dirs.contains(ino)).peekable();
        if dirs.is_empty() || files.peek().is_none() {
            return;
        }
        let due = self.unlinked.tick() + FIRST;
        self.held_inodes.add(files.map(|ino| Told { ino: *ino, due, questions: 0 }));
        self.held_inodes.wake(self);
    }

    /// Opens what the kernel has not forgotten in time. Returns whether there will be more to look
    /// at. Waits for nothing.
    fn look_at_held(self: &Arc<Self>) -> bool {
        let tick = self.unlinked.next_tick();
        let (unlinked, more_unlinked) = self.unlinked.due(tick);
        for ino in unlinked {
            self.hold(ino, Remover::This);
        }
        let (told, more_told) = self.held_inodes.due(tick);
        if let Some(kernel) = self.kernel.get()
            && !told.is_empty()
        {
            let nodes: Vec<NodeId> = told.iter().map(|told| NodeId(told.ino.raw())).collect();
            prune::ask_for(kernel, &nodes);
            for told in told {
                self.ask_for_names(kernel, told);
            }
        }
        more_unlinked || more_told
    }

    /// Opens a file that others have removed, if the kernel has it.
    fn ask_for_names(self: &Arc<Self>, kernel: &Notifier, told: Told) {
        if !invalidate(kernel, told.ino) {
            return;
        }
        let (state, handle) = (Arc::clone(self), self.inodes.handle(told.ino));
        let asked = self.files.get_attr(&Context::direct(0, 0), handle);
        asked.then(move |found| match found {
            Ok(attr) if attr.kind != FileKind::Regular => {}
            Ok(attr) if attr.links == 0 => state.is_removed(&attr),
            Ok(_) => state.ask_again(told),
            Err(error) => tracing::debug!(%error, ino = told.ino.raw(), "a held file is gone"),
        });
    }

    /// The name is still there. If nothing says so to the server, it may be about to go.
    fn ask_again(self: &Arc<Self>, told: Told) {
        let Told { ino, questions, .. } = told;
        let questions = questions + 1;
        let is_told = self.lifetimes.keeps_everything() || !self.lifetimes.keeps_nothing_of(ino);
        if is_told || questions == QUESTIONS {
            return;
        }
        let due = self.unlinked.tick() + (FIRST << questions);
        self.held_inodes.add([Told { ino, due, questions }].into_iter());
        self.held_inodes.wake(self);
    }

    fn is_removed(self: &Arc<Self>, attr: &Attr) {
        self.unlinked.add_looked_at(*attr);
        // What it forgets from here on is taken out there.
        match self.kernel.get().is_some_and(|kernel| invalidate(kernel, attr.ino)) {
            true => self.hold(attr.ino, Remover::Other),
            false => self.release_retained(self.unlinked.forget(attr.ino)),
        }
    }

    /// Opens an unlinked file until the kernel forgets it.
    fn hold(self: &Arc<Self>, ino: InodeId, by: Remover) {
        // The kernel does not know of this open, so any data path will do.
        let passthrough = self.passthrough.is_on();
        let read = OpenFlags { read: true, passthrough, ..OpenFlags::default() };
        let (state, handle) = (Arc::clone(self), self.inodes.handle(ino));
        self.files.open(&Context::direct(0, 0), handle, read).then(move |opened| match opened {
            Ok(opened) => state.is_held(HeldInode { ino, by }, &opened),
            Err(error) => tracing::debug!(%error, ino = ino.raw(), "a held file is gone"),
        });
    }

    fn is_held(&self, held: HeldInode, opened: &Opened) {
        let Opened { open, attr, .. } = opened;
        self.open_ids.add(*open, OpenPath::Cached, false);
        if attr.links > 0 || !self.unlinked.hold(held.ino, *open) {
            return self.release_retained(Some(Retained::Open(*open)));
        }
        let mut work = self.held_inodes.0.work.lock();
        let wakes = held.by == Remover::Other;
        work.opened.push_back(held);
        let oldest = match work.opened.len() > limits::HELD_INODES {
            true => {
                work.opened.retain(|held| self.unlinked.is_held(held.ino));
                let extra = work.opened.len().saturating_sub(limits::HELD_INODES);
                work.opened.drain(..extra).collect()
            }
            false => Vec::new(),
        };
        drop(work);
        if wakes {
            self.held_inodes.0.wake.notify_one();
        }
        oldest.into_iter().for_each(|held| {
            self.release_retained(self.unlinked.let_go(held.ino));
        });
    }

    /// Asks the kernel to forget those files that others have removed and nothing holds any more.
    fn prune_held(&self) {
        let mut work = self.held_inodes.0.work.lock();
        work.opened.retain(|held| self.unlinked.is_held(held.ino));
        let told = work.opened.iter().filter(|held| held.by == Remover::Other);
        let told: Vec<NodeId> = told.map(|held| NodeId(held.ino.raw())).collect();
        drop(work);
        if let Some(kernel) = self.kernel.get() {
            prune::ask_for(kernel, &told);
        }
    }
}
