//! Invalidation of the kernel's cache below a mount, for changes by other sessions. The server in
//! the same process reports them, or the holder of leases.
//!
//! A change is handled in this order:
//!
//! 1. The nodes and names that it touches are marked, and replies that were decided before are
//!    awaited ([`Lifetimes`]).
//! 2. Attributes are invalidated, which waits for no lock. If the kernel has no inode of a
//!    directory, it has no name in it. Under leases an entry may be on its way to the kernel with a
//!    lifetime: its invalidation is repeated until the kernel has installed the inode.
//! 3. Names are invalidated by threads of their own (FUSE_NOTIFY_INVAL_ENTRY). Linux takes the lock
//!    of the directory for it, and holds this lock over CREATE, UNLINK, RENAME and the like until
//!    their reply: sent by the thread that must reply, the notice would be a deadlock. A lookup
//!    holds the lock until its entry is installed, so when the notice returns, entries from before
//!    it are installed; only one that the kernel looks up again because its lifetime was over is
//!    perhaps not, but has no name any more. Attributes are then invalidated once more.
//! 4. If that takes longer than `PATIENCE`, all names are invalidated at once, which takes no lock
//!    (FUSE_NOTIFY_INC_EPOCH, Linux 6.16). Linux detaches what is mounted below a name that it
//!    finds invalid. So this notice is not sent while something is mounted below, nor more often
//!    than each `EPOCH_PAUSE`; then the change waits for its own names. Under leases it waits at
//!    most until the lifetimes of these names are over.
//! 5. The change is carried out. Then pages are dropped by a thread of its own, which readers of
//!    the file and the reply to the change await, and attributes and access control lists are
//!    invalidated once more: the kernel may have read old ones meanwhile.
//!
//! The reply awaits the pages because the kernel discards attributes that it has requested before
//! an invalidation and gets after it. A read that begins after the reply would stop at the old end
//! of the file.
//!
//! If all leases of a mount have ended ([`KernelCache::drop_all`]), changes are reported no more,
//! and everything in the kernel's cache is invalidated at once.
//!
//! Directories of other sites are changed and invalidated on their own ([`elsewhere`]).
//!
//! [`Lifetimes`]: crate::lifetimes::Lifetimes

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use pelago_fuse::ids::NodeId;
use pelago_fuse::{Errno, Notifier};
use pelago_wire::{InodeId, LocalCache, Then, Touched};

use crate::dir_attrs::DirAttrs;
use crate::init::{INSTALLS, LEASED_TTL};
use crate::installing;
use crate::mountinfo;
use crate::notices::{Counts, DirEntryKey, Notices};
use crate::state::State;

use work::{InstallingInode, QueuedName, Waiting, Work};

mod elsewhere;
mod installer;
mod work;

/// Threads that invalidate names; each waits for one directory at a time.
const THREADS: usize = 8;
/// Time after the begin of the first session in which the invalidation of an inode is repeated that
/// the kernel did not have: an entry with a lifetime may have been on its way to it.
const DOUBT: Duration = Duration::from_secs(10);
/// Times after which such an invalidation is repeated.
const REPEAT_AFTER: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(10),
];
/// Limit of repeated invalidations in the queue.
const MOST_REPEATS: usize = 4096;

/// The kernel's cache below a mount. It may outlive the mount; then its methods do nothing.
pub(crate) struct KernelCache {
    state: Weak<State>,
    invalidator: Arc<Invalidator>,
    /// Invalidates directories of other sites: each of its threads may wait for another site, and
    /// changes of own files must not wait for one of these.
    elsewhere: Arc<Invalidator>,
}

/// The state that the invalidating threads share.
struct Invalidator {
    state: Weak<State>,
    /// The mount point. All names at once are invalidated only if nothing is mounted below it.
    point: PathBuf,
    /// A leaf lock.
    work: Mutex<Work>,
    /// Notified after each name that is queued, and at the end.
    names: Condvar,
    /// Notified after inodes are queued that are being installed, and at the end.
    installs: Condvar,
    /// Notified after each change that waits, and at the end.
    waits: Condvar,
    counts: Counts,
}

/// The part of a change that waits for the kernel.
#[derive(Default)]
struct Invalidation {
    /// Names to invalidate.
    names: Vec<DirEntryKey>,
    /// When their lifetimes are over, if they are under leases.
    expires: Option<Instant>,
    /// Inodes that the kernel is perhaps about to install.
    installing: Vec<InodeId>,
    /// Inodes that are invalidated once more after each name.
    nodes: Vec<InodeId>,
    /// No notice is sent for one name: an invalidation of all is waited for, or `expires`.
    is_of_all: bool,
}

impl KernelCache {
    pub(crate) fn new(state: &Arc<State>, point: PathBuf) -> Self {
        let invalidator = Arc::new(Invalidator::new(state, point.clone()));
        let elsewhere = Arc::new(Invalidator::new(state, point));
        let of_state = Arc::downgrade(&elsewhere);
        let all_names = move || of_state.upgrade().is_some_and(|all| all.invalidate_all_names());
        let _only_once = state.invalidate_all_names.set(Box::new(all_names));
        Self { state: Arc::downgrade(state), invalidator, elsewhere }
    }
}

impl KernelCache {
    /// Returns the table of the attributes of directories, as long as the mount serves.
    pub(crate) fn dir_attrs(&self) -> Option<Arc<DirAttrs>> {
        self.state.upgrade().map(|state| Arc::clone(&state.dir_attrs))
    }

    /// Returns how many notices were sent.
    pub(crate) fn notices(&self) -> Notices {
        let counts = [&self.invalidator.counts, &self.elsewhere.counts];
        let sum = |count: fn(&Counts) -> &AtomicU64| {
            counts.iter().map(|counts| count(counts).load(Ordering::Relaxed)).sum()
        };
        Notices { names: sum(|counts| &counts.names), epochs: sum(|counts| &counts.epochs) }
    }
}

impl LocalCache for KernelCache {
    fn set_shared(&self, shared: bool) {
        let Some(state) = self.state.upgrade() else { return };
        if shared {
            // Entries that were sent before have a lifetime, and are perhaps not installed yet.
            self.invalidator.work.lock().in_doubt_until = Some(Instant::now() + DOUBT);
        }
        state.lifetimes.set_shared(shared);
    }

    fn begin(&self, changes: &Arc<[Touched]>, then: Then) {
        let Some(state) = self.state.upgrade() else { return then() };
        state.lifetimes.mark(changes);
        state.others_change(changes);
        let Some(kernel) = state.kernel.get() else { return then() };
        let mut nodes = Vec::new();
        let mut unknown = Vec::new();
        let mut installing = Vec::new();
        for change in &**changes {
            if let Touched::Node(ino) = change {
                match invalidate(kernel, *ino) {
                    true => nodes.push(*ino),
                    false if installing::may_be(&state, *ino) => installing.push(*ino),
                    false => unknown.push(*ino),
                }
            }
        }
        if !unknown.is_empty() {
            self.invalidator.enqueue_repeats(&unknown);
        }
        // Without leases a change of a name also names its directory, and if the kernel has no
        // inode of that it has no names in it. A recall may name the name alone.
        let is_known =
            |dir| nodes.contains(dir) || (state.lifetimes.is_leased() && !unknown.contains(dir));
        let names = changes.iter().filter_map(|change| match change {
            Touched::Name { dir, name }
                if is_known(dir) && state.lifetimes.may_keep(*dir, name) =>
            {
                Some(DirEntryKey { dir: *dir, name: name.clone() })
            }
            _ => None,
        });
        let names: Vec<_> = names.collect();
        if names.is_empty() && installing.is_empty() {
            return then();
        }
        let hold = state.lifetimes.is_leased().then_some(LEASED_TTL + INSTALLS);
        let expires = hold.map(|hold| Instant::now() + hold);
        self.invalidator
            .enqueue(Invalidation { names, expires, installing, nodes, is_of_all: false }, then);
    }

    fn end(&self, changes: &[Touched]) {
        let Some(state) = self.state.upgrade() else { return };
        state.others_change(changes);
        for change in changes {
            match change {
                Touched::Bytes(ino) => drop_pages(&state, *ino),
                // The kernel caches a listing in pages of the directory.
                Touched::Name { dir, .. } => state.stale_pages.add(*dir, 0, u64::MAX),
                Touched::Node(_) => {}
            }
        }
        if let Some(kernel) = state.kernel.get() {
            let nodes = changes.iter().filter_map(|change| match change {
                Touched::Node(ino) => Some(*ino),
                Touched::Name { .. } | Touched::Bytes(_) => None,
            });
            let known: Vec<InodeId> = nodes.filter(|ino| invalidate(kernel, *ino)).collect();
            state.note_known(changes, &known);
        }
        state.lifetimes.unmark(changes);
    }

    fn bytes_changed(&self, ino: InodeId) {
        if let Some(state) = self.state.upgrade() {
            drop_pages(&state, ino);
        }
    }

    fn drop_all(&self, nodes: &[InodeId]) {
        let Some(state) = self.state.upgrade() else { return };
        state.lifetimes.lose();
        state.page_versions.forget_all();
        state.changed(nodes.iter().copied());
        for ino in nodes {
            drop_pages(&state, *ino);
        }
        if let Some(kernel) = state.kernel.get() {
            // Also inodes that the holder has forgotten meanwhile.
            let mut missed = Vec::new();
            state.inodes.all(|ino| {
                if !invalidate(kernel, ino) {
                    missed.push(ino);
                }
            });
            installing::wait_for_all(&state, missed, |ino| invalidate(kernel, ino));
        }
        if !self.invalidator.invalidate_all_names() {
            // The notice was not possible; but no name holds for longer than this.
            thread::sleep(LEASED_TTL);
        }
    }

    fn when_dropped(&self, changes: &[Touched], then: Then) {
        let Some(state) = self.state.upgrade() else { return then() };
        let files = changes.iter().filter_map(|change| match change {
            Touched::Bytes(ino) => Some(*ino),
            _ => None,
        });
        let after_all = files.fold(then, |then, ino| {
            let state = Arc::clone(&state);
            Box::new(move || state.stale_pages.when_clean(ino, then))
        });
        after_all();
    }
}

impl Drop for KernelCache {
    fn drop(&mut self) {
        self.invalidator.end();
        self.elsewhere.end();
    }
}

/// Has the pages of a file dropped, unless the kernel does not have the inode.
fn drop_pages(state: &State, ino: InodeId) {
    if state.kernel.get().is_some_and(|kernel| invalidate(kernel, ino)) {
        state.stale_pages.add(ino, 0, u64::MAX);
    }
}

/// Invalidates attributes and access control lists of an inode. Waits for no lock: with a negative
/// offset Linux touches no page. Returns whether the kernel has the inode.
pub(crate) fn invalidate(kernel: &Notifier, ino: InodeId) -> bool {
    match kernel.inval_inode(NodeId(ino.raw()), -1, 0) {
        Ok(()) => true,
        Err(error) => {
            if Errno::from_io_error(&error) != Some(Errno::NOENT) {
                tracing::debug!(%error, %ino, "an inode cannot be invalidated");
            }
            false
        }
    }
}

impl Invalidator {
    fn new(state: &Arc<State>, point: PathBuf) -> Self {
        Self {
            state: Arc::downgrade(state),
            point,
            work: Mutex::default(),
            names: Condvar::new(),
            installs: Condvar::new(),
            waits: Condvar::new(),
            counts: Counts::default(),
        }
    }

    /// Ends all threads, and lets all changes go on.
    fn end(&self) {
        let waiting = {
            let mut work = self.work.lock();
            work.ended = true;
            work.queue.clear();
            std::mem::take(&mut work.changes)
        };
        self.names.notify_all();
        self.installs.notify_all();
        self.waits.notify_all();
        waiting.into_values().filter_map(|waiting| waiting.then).for_each(|then| then());
    }

    /// Queues names, and inodes that are to be invalidated once they are installed. Calls `then`
    /// when all are invalidated, or have expired; for the names an invalidation of all names at
    /// once suffices.
    fn enqueue(self: &Arc<Self>, invalidation: Invalidation, then: Then) {
        let Invalidation { names, expires, installing, nodes, is_of_all } = invalidation;
        let mut work = self.work.lock();
        let starts = (names.is_empty() || self.start_threads(&mut work, names.len()))
            && (installing.is_empty() || self.start_installer(&mut work))
            && (!is_of_all || self.start_watch(&mut work));
        if work.ended || !starts {
            drop(work);
            return then();
        }
        work.last += 1;
        let number = work.last;
        let since = Instant::now();
        let waiting = Waiting {
            since,
            names: names.len() + usize::from(is_of_all),
            installing: installing.len(),
            are_names_invalid: names.is_empty() && !is_of_all,
            nodes,
            expires,
            is_of_all,
            then: Some(then),
        };
        work.changes.insert(number, waiting);
        work.queue.extend(names.into_iter().map(|key| QueuedName { change: number, key }));
        let installing = installing.into_iter();
        work.installing.extend(installing.map(|ino| InstallingInode {
            change: number,
            ino,
            since,
        }));
        drop(work);
        self.installs.notify_one();
        self.names.notify_all();
        self.waits.notify_one();
    }

    /// Queues inodes that the kernel does not have, if it may be about to install them.
    fn enqueue_repeats(self: &Arc<Self>, nodes: &[InodeId]) {
        let mut work = self.work.lock();
        let now = Instant::now();
        if work.in_doubt_until.is_none_or(|until| until < now) || work.ended {
            return;
        }
        for (pause, node) in
            REPEAT_AFTER.iter().flat_map(|pause| nodes.iter().map(move |node| (pause, node)))
        {
            if work.repeats.len() < MOST_REPEATS {
                work.repeats.push_back((now + *pause, *node));
            }
        }
        work.repeats.make_contiguous().sort_by_key(|(when, _)| *when);
        self.start_threads(&mut work, 0);
        drop(work);
        self.waits.notify_one();
    }

    /// Starts threads for `names` more names, and the one that watches. Returns whether names will
    /// be invalidated.
    fn start_threads(self: &Arc<Self>, work: &mut MutexGuard<'_, Work>, names: usize) -> bool {
        self.start_watch(work);
        let wanted = (work.threads + names.saturating_sub(work.idle)).min(THREADS);
        while work.threads < wanted {
            let invalidator = Arc::clone(self);
            let spawned = pelago_threads::spawn("fuse-names", move || invalidator.work());
            if !started(spawned) {
                break;
            }
            work.threads += 1;
        }
        work.threads > 0
    }

    /// Starts the thread that watches, unless it runs. Returns whether it does.
    fn start_watch(self: &Arc<Self>, work: &mut MutexGuard<'_, Work>) -> bool {
        if !work.watched {
            let invalidator = Arc::clone(self);
            let spawned = pelago_threads::spawn("fuse-watch", move || invalidator.watch());
            work.watched = started(spawned);
        }
        work.watched
    }

    /// Invalidates names until the end.
    fn work(&self) {
        let mut work = self.work.lock();
        while !work.ended {
            let Some(QueuedName { change, key }) = work.queue.pop_front() else {
                work.idle += 1;
                self.names.wait(&mut work);
                work.idle -= 1;
                continue;
            };
            let has_expired = work.has_expired(change, Instant::now());
            drop(work);
            // Also if all names were invalidated meanwhile: a listing may have installed the name
            // since then, and Linux then takes it for new (`fuse_direntplus_link`).
            if !has_expired {
                self.invalidate_name(&key);
            }
            let nodes = self.work.lock().changes.get(&change).map(|waiting| waiting.nodes.clone());
            if let Some(state) = self.state.upgrade()
                && let Some(kernel) = state.kernel.get()
            {
                for node in nodes.into_iter().flatten() {
                    invalidate(kernel, node);
                }
            }
            work = self.work.lock();
            if let Some(then) = work.name_invalidated(change) {
                drop(work);
                then();
                work = self.work.lock();
            }
        }
    }

    fn invalidate_name(&self, key: &DirEntryKey) {
        let Some(state) = self.state.upgrade() else { return };
        let Some(kernel) = state.kernel.get() else { return };
        self.counts.names.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = key.invalidate(kernel)
            && Errno::from_io_error(&error) != Some(Errno::NOENT)
        {
            tracing::debug!(%error, dir = %key.dir, "a name cannot be invalidated");
        }
    }

    /// Invalidates all names if some take too long, and repeats invalidations of inodes, until the
    /// end.
    fn watch(&self) {
        let mut work = self.work.lock();
        while !work.ended {
            let now = Instant::now();
            if work.repeats.front().is_some_and(|(when, _)| *when <= now) {
                let (_, node) = work.repeats.pop_front().expect("it has a first one");
                MutexGuard::unlocked(&mut work, || {
                    if let Some(state) = self.state.upgrade()
                        && let Some(kernel) = state.kernel.get()
                    {
                        invalidate(kernel, node);
                    }
                });
                continue;
            }
            let expired = work.expired(now);
            if !expired.is_empty() {
                MutexGuard::unlocked(&mut work, || expired.into_iter().for_each(|then| then()));
                continue;
            }
            let overdue = work.next_epoch();
            if overdue.is_some_and(|at| at <= now) {
                MutexGuard::unlocked(&mut work, || {
                    self.invalidate_all_names();
                });
                continue;
            }
            let next_repeat = work.repeats.front().map(|(when, _)| *when);
            match overdue.into_iter().chain(next_repeat).chain(work.next_expiry()).min() {
                Some(at) => drop(self.waits.wait_until(&mut work, at)),
                None => self.waits.wait(&mut work),
            }
        }
    }

    /// Invalidates all names, unless something is mounted below, and lets all changes go on that
    /// wait for their names. Returns whether all names are invalid.
    fn invalidate_all_names(&self) -> bool {
        let Some(state) = self.state.upgrade() else { return true };
        let Some(kernel) = state.kernel.get() else { return true };
        let newest = self.work.lock().last;
        let has_mounts = mountinfo::below(&self.point).map_or(true, |below| !below.is_empty());
        let time = state.lifetimes.name_time();
        let sent = if has_mounts { None } else { Some(kernel.inc_epoch()) };
        if let Some(Ok(())) = sent {
            state.lifetimes.names_invalidated(time);
        }
        let mut work = self.work.lock();
        work.last_epoch = Some(Instant::now());
        match sent {
            None => return false,
            Some(Ok(())) => {}
            Some(Err(error)) => {
                tracing::debug!(%error, "names cannot be invalidated all at once");
                // Linux before 6.16 does not know this notice.
                work.lacks_epoch = Errno::from_io_error(&error) == Some(Errno::INVAL);
                return false;
            }
        }
        self.counts.epochs.fetch_add(1, Ordering::Relaxed);
        let ready = work.changes.range_mut(..=newest).filter_map(|(_, waiting)| {
            waiting.are_names_invalid = true;
            waiting.then.take_if(|_| waiting.installing == 0)
        });
        let ready: Vec<_> = ready.collect();
        work.forget_ended();
        drop(work);
        ready.into_iter().for_each(|then| then());
        true
    }
}

fn started(spawned: std::io::Result<thread::JoinHandle<()>>) -> bool {
    spawned.inspect_err(|error| tracing::error!(%error, "a thread does not start")).is_ok()
}
