//! The kernel's cache below a mount, as it is told of changes by other sessions: by the server in
//! the same process, or by what keeps answers under leases.
//!
//! A change is told in this order:
//!
//! 1. What it touches is marked, and replies that were decided before are awaited ([`Lifetimes`]).
//! 2. Attributes are invalidated, which waits for no lock. If the kernel knows no inode of a
//!    directory it knows no name in it. Under leases an inode may be on its way to the kernel with
//!    attributes that hold: its invalidation is repeated until the kernel has installed it.
//! 3. Names are invalidated by threads of their own: the kernel takes the directory's lock, which a
//!    program of this mount may hold until the server has answered it. So a lookup that is under
//!    way has installed what it found when the notice returns. Attributes are then invalidated once
//!    more.
//! 4. If that takes longer than `PATIENCE`, all names are invalidated at once, which takes no
//!    lock (`FUSE_NOTIFY_INC_EPOCH`). It detaches what is mounted below the mount; so it is not
//!    used then, and not more often than `EPOCH_PAUSE`, and the change waits. Under leases it
//!    waits until the kernel uses no name any more that it was answered before.
//! 5. The change is carried out. Then pages are dropped by a thread of its own, which readers of
//!    the file and the answer to the change await, and attributes and access control lists are
//!    invalidated once more: the kernel may have read old ones meanwhile.
//!
//! If nothing was told because all leases have ended ([`KernelCache::drop_all`]), all of that is
//! dropped at once.
//!
//! The answer awaits the pages because the kernel discards attributes that it has asked for before
//! an invalidation and gets after it. A read that begins after the answer would stop at the old end
//! of the file.
//!
//! [`Lifetimes`]: crate::lifetimes::Lifetimes

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use pelago_fuse::ids::NodeId;
use pelago_fuse::{Errno, Notifier};
use pelago_wire::{InodeId, LocalCache, Then, Touched};

use crate::dir_attrs::DirAttrs;
use crate::init::LEASED_TTL;
use crate::installing::{self, INSTALLS};
use crate::mountinfo;
use crate::notices::{Counts, DirEntryKey, Notices};
use crate::state::State;

use work::{InstallingInode, QueuedName, Waiting, Work};

mod installer;
mod work;

/// Threads that invalidate names; each waits for one directory at a time.
const THREADS: usize = 8;
/// For how long after the first session began an inode is told again that the kernel did not know.
const DOUBT: Duration = Duration::from_secs(10);
/// When an inode is told again within that time.
const AGAIN: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(10),
];
/// Inodes that are to be told again.
const AGAIN_NODES: usize = 4096;

/// The kernel's cache below a mount. It outlives the mount; then there is nothing to tell.
pub(crate) struct KernelCache {
    state: Weak<State>,
    teller: Arc<Teller>,
}

/// What the threads share that tell the kernel.
struct Teller {
    state: Weak<State>,
    /// The mount point: what is mounted below it is detached with all names.
    point: PathBuf,
    /// A leaf lock.
    work: Mutex<Work>,
    /// Notified with each name to invalidate, and at the end.
    names: Condvar,
    /// Notified with inodes that are being installed, and at the end.
    installs: Condvar,
    /// Notified with each change that waits, and at the end.
    waits: Condvar,
    counts: Counts,
}

impl KernelCache {
    pub(crate) fn new(state: &Arc<State>, point: PathBuf) -> Self {
        let names_hold = state.lifetimes.is_leased().then_some(LEASED_TTL + INSTALLS);
        let state = Arc::downgrade(state);
        let teller = Arc::new(Teller {
            state: Weak::clone(&state),
            point,
            work: Mutex::new(Work { names_hold, ..Work::default() }),
            names: Condvar::new(),
            installs: Condvar::new(),
            waits: Condvar::new(),
            counts: Counts::default(),
        });
        Self { state, teller }
    }
}

impl KernelCache {
    /// Returns where the attributes of directories are told, as long as the mount serves.
    pub(crate) fn dir_attrs(&self) -> Option<Arc<DirAttrs>> {
        self.state.upgrade().map(|state| Arc::clone(&state.dir_attrs))
    }

    /// Returns how many notices were sent.
    pub(crate) fn notices(&self) -> Notices {
        let Counts { names, epochs } = &self.teller.counts;
        Notices { names: names.load(Ordering::Relaxed), epochs: epochs.load(Ordering::Relaxed) }
    }
}

impl LocalCache for KernelCache {
    fn set_shared(&self, shared: bool) {
        let Some(state) = self.state.upgrade() else { return };
        if shared {
            // Entries that were answered before are perhaps not installed yet, with a lifetime.
            self.teller.work.lock().in_doubt_until = Some(Instant::now() + DOUBT);
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
            self.teller.tell_again(&unknown);
        }
        // A recall of a name need not be one of its directory.
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
        self.teller.tell(names, installing, nodes, then);
    }

    fn end(&self, changes: &[Touched]) {
        let Some(state) = self.state.upgrade() else { return };
        state.others_change(changes);
        for change in changes {
            match change {
                Touched::Bytes(ino) => drop_pages(&state, *ino),
                // A listing is in pages, too.
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
            // Also those that the holder has forgotten meanwhile.
            let mut missed = Vec::new();
            state.inodes.all(|ino| {
                if !invalidate(kernel, ino) {
                    missed.push(ino);
                }
            });
            installing::wait_for_all(&state, missed, |ino| invalidate(kernel, ino));
        }
        if !self.teller.invalidate_all_names() {
            // It cannot do it here, and believes no name for longer than this.
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
        let waiting = {
            let mut work = self.teller.work.lock();
            work.ended = true;
            work.queue.clear();
            std::mem::take(&mut work.changes)
        };
        self.teller.names.notify_all();
        self.teller.installs.notify_all();
        self.teller.waits.notify_all();
        waiting.into_values().filter_map(|waiting| waiting.then).for_each(|then| then());
    }
}

/// Has the pages of a file dropped, unless the kernel does not know it.
fn drop_pages(state: &State, ino: InodeId) {
    if state.kernel.get().is_some_and(|kernel| invalidate(kernel, ino)) {
        state.stale_pages.add(ino, 0, u64::MAX);
    }
}

/// Invalidates attributes and access control lists. Returns whether the kernel knows the inode.
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

impl Teller {
    /// Invalidates names, and inodes once they are installed, and calls `then` when that is done;
    /// for the names it is also done once all names are invalid.
    fn tell(
        self: &Arc<Self>,
        names: Vec<DirEntryKey>,
        installing: Vec<InodeId>,
        nodes: Vec<InodeId>,
        then: Then,
    ) {
        let mut work = self.work.lock();
        let starts = (names.is_empty() || self.start_threads(&mut work, names.len()))
            && (installing.is_empty() || self.start_installer(&mut work));
        if work.ended || !starts {
            drop(work);
            return then();
        }
        work.last += 1;
        let number = work.last;
        let since = Instant::now();
        let waiting = Waiting {
            since,
            names: names.len(),
            installing: installing.len(),
            is_told_names: names.is_empty(),
            nodes,
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

    /// Notes inodes that the kernel does not know, if it may be about to install them.
    fn tell_again(self: &Arc<Self>, nodes: &[InodeId]) {
        let mut work = self.work.lock();
        let now = Instant::now();
        if work.in_doubt_until.is_none_or(|until| until < now) || work.ended {
            return;
        }
        for (pause, node) in
            AGAIN.iter().flat_map(|pause| nodes.iter().map(move |node| (pause, node)))
        {
            if work.again.len() < AGAIN_NODES {
                work.again.push_back((now + *pause, *node));
            }
        }
        work.again.make_contiguous().sort_by_key(|(when, _)| *when);
        self.start_threads(&mut work, 0);
        drop(work);
        self.waits.notify_one();
    }

    /// Starts threads for so many names more, and the one that watches. Returns whether names will
    /// be invalidated.
    fn start_threads(self: &Arc<Self>, work: &mut MutexGuard<'_, Work>, names: usize) -> bool {
        if !work.watched {
            let teller = Arc::clone(self);
            let spawned = pelago_threads::spawn("fuse-watch", move || teller.watch());
            work.watched = started(spawned);
        }
        let wanted = (work.threads + names.saturating_sub(work.idle)).min(THREADS);
        while work.threads < wanted {
            let teller = Arc::clone(self);
            let spawned = pelago_threads::spawn("fuse-names", move || teller.work());
            if !started(spawned) {
                break;
            }
            work.threads += 1;
        }
        work.threads > 0
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
            drop(work);
            // Also if all names were invalidated meanwhile: a listing may have installed it since.
            self.invalidate_name(&key);
            let nodes = self.work.lock().changes.get(&change).map(|waiting| waiting.nodes.clone());
            if let Some(state) = self.state.upgrade()
                && let Some(kernel) = state.kernel.get()
            {
                for node in nodes.into_iter().flatten() {
                    invalidate(kernel, node);
                }
            }
            work = self.work.lock();
            if let Some(then) = work.told_name(change) {
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

    /// Invalidates all names if some take too long, and tells inodes again, until the end.
    fn watch(&self) {
        let mut work = self.work.lock();
        while !work.ended {
            let now = Instant::now();
            if work.again.front().is_some_and(|(when, _)| *when <= now) {
                let (_, node) = work.again.pop_front().expect("it has a first one");
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
            let again = work.again.front().map(|(when, _)| *when);
            match overdue.into_iter().chain(again).chain(work.next_expiry()).min() {
                Some(at) => drop(self.waits.wait_until(&mut work, at)),
                None => self.waits.wait(&mut work),
            }
        }
    }

    /// Invalidates all names, unless something is mounted below, and lets all changes go on that
    /// wait for theirs. Returns whether none is left.
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
                work.lacks_epoch = Errno::from_io_error(&error) == Some(Errno::INVAL);
                return false;
            }
        }
        self.counts.epochs.fetch_add(1, Ordering::Relaxed);
        let told = work.changes.range_mut(..=newest).filter_map(|(_, waiting)| {
            waiting.is_told_names = true;
            waiting.then.take_if(|_| waiting.installing == 0)
        });
        let told: Vec<_> = told.collect();
        drop(work);
        told.into_iter().for_each(|then| then());
        true
    }
}

fn started(spawned: std::io::Result<thread::JoinHandle<()>>) -> bool {
    spawned.inspect_err(|error| tracing::error!(%error, "a thread does not start")).is_ok()
}
