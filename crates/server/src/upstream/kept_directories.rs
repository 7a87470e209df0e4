//! Directories of another site in the kernel below the own mount, which keeps them under the leases
//! that this server has on them ([`pelago_wire::DirectoryCache`]).
//!
//! The kernel is told of each recall before that is answered. Of changes that this server passes on
//! no recall comes, as the leases are its own: the kernel is told of those of other sessions before
//! they are sent. What its own programs change it knows.
//!
//! While the other site is silent the kernel also keeps what is answered from what was known
//! before, until the first answer of that site. That is passed on only once the kernel has dropped
//! all of it: nothing older is seen beside something newer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use pelago_holder::Holder;
use pelago_wire::{
    Attr, DirectoryCache, DirectoryLeases, Done, InodeId, LeaseTimes, Name, Reply, Request, Then,
    Touched, Touches,
};

use super::Upstream;

/// The cache of directories in the kernel below the own mount, once there is one.
pub(crate) type OwnKernel = Arc<OnceLock<Arc<dyn DirectoryCache>>>;

/// The time for which the kernel keeps what is answered while another site is silent.
const STALE: Duration = Duration::from_secs(2);

/// The directories of one other site in the kernel below the own mount.
pub(crate) struct KeptDirectories {
    site: u16,
    kernel: OwnKernel,
    /// Number of answers from what was known before the site was silent.
    stale: AtomicU64,
    /// The count of these answers up to which the kernel has dropped them.
    dropped: AtomicU64,
    /// The callbacks of answers that wait while the kernel drops them; `None` while it does not. A
    /// leaf lock.
    waiting: Mutex<Option<Vec<Then>>>,
}

impl KeptDirectories {
    pub(crate) fn new(site: u16, kernel: OwnKernel) -> Self {
        let stale = AtomicU64::new(0);
        let dropped = AtomicU64::new(0);
        Self { site, kernel, stale, dropped, waiting: Mutex::default() }
    }

    /// Records that a request is about to be answered from what was known before. Called before
    /// that is looked up: the answer of the site either ends it before, or finds this record.
    pub(crate) fn answers_stale(&self) {
        self.stale.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns whether the kernel may have such an answer.
    pub(crate) fn may_be_stale(&self) -> bool {
        self.stale.load(Ordering::SeqCst) != self.dropped.load(Ordering::SeqCst)
    }

    /// Calls `then` once the kernel has dropped all such answers: an answer of the site is passed
    /// on.
    pub(crate) fn end_stale(self: &Arc<Self>, then: Then) {
        let mut waiting = self.waiting.lock();
        if !self.may_be_stale() {
            drop(waiting);
            return then();
        }
        if let Some(waiting) = &mut *waiting {
            // This answer is newer as well.
            waiting.push(then);
            return;
        }
        *waiting = Some(vec![then]);
        drop(waiting);
        let stale = self.stale.load(Ordering::SeqCst);
        let this = Arc::clone(self);
        let dropped = move || {
            let mut waiting = this.waiting.lock();
            this.dropped.store(stale, Ordering::SeqCst);
            let ready = waiting.take();
            drop(waiting);
            ready.into_iter().flatten().for_each(|then| then());
        };
        self.drop_all(Box::new(dropped));
    }

    /// Calls `then` once the kernel has dropped all directories of the site: the leases on them
    /// have ended.
    pub(crate) fn drop_all(&self, then: Then) {
        match self.kernel.get() {
            Some(kernel) => kernel.drop_site(self.site, then),
            None => then(),
        }
    }

    /// Waits until the kernel has dropped all directories of the site, or their lifetimes are over:
    /// three seconds at most.
    pub(crate) fn wait_until_dropped(&self) {
        let (sender, dropped) = mpsc::channel();
        self.drop_all(Box::new(move || {
            let _waits_no_more = sender.send(());
        }));
        let _was_called = dropped.recv();
    }

    /// Announces a recall, and calls `then` once the kernel has dropped what it names.
    pub(crate) fn begin(&self, changes: &Arc<[Touched]>, then: Then) {
        match self.kernel.get() {
            Some(kernel) => kernel.begin(changes, then),
            None => then(),
        }
    }

    /// Ends a recall.
    pub(crate) fn end(&self, changes: &[Touched]) {
        if let Some(kernel) = self.kernel.get() {
            kernel.end(changes);
        }
    }

    /// Returns the announcement of a request that does not come from the kernel; `None` if it
    /// changes no directory.
    pub(super) fn announced(&self, request: &Request) -> Option<Announced> {
        let kernel = self.kernel.get()?;
        let changes = changes(request.touches());
        let kernel = Arc::clone(kernel);
        (!changes.is_empty()).then(|| Announced { kernel, changes: changes.into() })
    }
}

/// The leases on what has its home at other sites.
pub(crate) struct LeasesElsewhere {
    pub(crate) upstreams: Weak<RwLock<HashMap<u16, Arc<Upstream>>>>,
}

impl LeasesElsewhere {
    /// Returns the time that `left` tells of the leases at a site; [`STALE`] while it is silent and
    /// requests are answered from what was known before. Never waits: a thread that has the lock
    /// may wait for the reply that is being sent.
    fn left(&self, site: u16, left: impl FnOnce(&Holder) -> Duration) -> Duration {
        let left = self.with(site, |Upstream { holder, kept, .. }| match kept.kernel.get() {
            // It would not be told of the end.
            None => Duration::ZERO,
            Some(_) if kept.may_be_stale() && holder.may_answer_stale() => STALE,
            Some(_) => left(holder),
        });
        left.unwrap_or_default()
    }

    /// Returns what `of` says of the connection to a site, if there is one. It is kept no longer
    /// than the lock: the last owner of a connection waits for its end.
    fn with<T>(&self, site: u16, of: impl FnOnce(&Upstream) -> T) -> Option<T> {
        let upstreams = self.upstreams.upgrade()?;
        let upstreams = upstreams.try_read()?;
        upstreams.get(&site).map(|upstream| of(upstream))
    }
}

impl DirectoryLeases for LeasesElsewhere {
    fn attr_holds(&self, attr: &Attr) -> Duration {
        // What is answered to others than this server must not be kept, and is marked so.
        let as_leased = Attr { volatile: false, ..*attr };
        self.left(attr.ino.site(), |holder| holder.attr_holds(&as_leased))
    }

    fn name_holds(&self, dir: InodeId, name: &Name, target: InodeId) -> Duration {
        self.left(dir.site(), |holder| holder.name_holds(dir, name, target))
    }

    fn has_names(&self, dir: InodeId, name: &Name) -> bool {
        self.with(dir.site(), |it| !it.holder.name_left(dir, name).is_zero()).unwrap_or(false)
    }
}

/// A change that does not come from the kernel, and that it is told of.
pub(super) struct Announced {
    kernel: Arc<dyn DirectoryCache>,
    changes: Arc<[Touched]>,
}

impl Announced {
    /// Calls `then` once the kernel has dropped what changes, and may keep nothing of it, with the
    /// callback for the answer: the kernel may keep it again before `done` is called.
    pub(super) fn begin(self, done: Done, then: impl FnOnce(Done) + Send + 'static) {
        let Self { kernel, changes } = self;
        let ended = Arc::clone(&changes);
        let of_end = Arc::clone(&kernel);
        let answered: Done = Box::new(move |result| {
            // Which nodes have lost or changed their names is known only now. This waits for no
            // lock of the kernel, as these are no names.
            let moved = result.as_ref().map_or_else(|_| Vec::new(), Reply::moved_nodes);
            let moved: Arc<[Touched]> = moved.into();
            if !moved.is_empty() {
                of_end.begin(&moved, Box::new(|| {}));
                of_end.end(&moved);
            }
            of_end.end(&ended);
            done(result);
        });
        kernel.begin(&changes, Box::new(move || then(answered)));
    }
}

/// Returns the directories and the names of directories that a request changes. The match has no
/// wildcard, so the compiler names a new kind of change here.
fn changes(touches: Touches<'_>) -> Vec<Touched> {
    match touches {
        // The kernel keeps nothing of files.
        Touches::Nothing | Touches::Contents(_) | Touches::Bytes(_) | Touches::Release(_) => {
            Vec::new()
        }
        Touches::Node(ino) => vec![Touched::Node(ino)],
        // The absence of a name is not kept.
        Touches::NewName { at, .. } => vec![Touched::Node(at.dir.ino)],
        Touches::OldName(at) => vec![Touched::Node(at.dir.ino), Touched::from(at)],
        Touches::Move { from, to } => vec![
            Touched::Node(from.dir.ino),
            Touched::Node(to.dir.ino),
            Touched::from(from),
            Touched::from(to),
        ],
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::{Handle, RenameFlags, SetAttr};

    use super::*;

    /// A kernel that records what it is told, and has not dropped a site before the test says so.
    #[derive(Default)]
    struct Kernel {
        told: Mutex<Vec<String>>,
        dropping: Mutex<Vec<Then>>,
    }

    impl DirectoryCache for Kernel {
        fn begin(&self, changes: &Arc<[Touched]>, then: Then) {
            self.told.lock().push(format!("begin {}", changes.len()));
            then();
        }

        fn end(&self, changes: &[Touched]) {
            self.told.lock().push(format!("end {}", changes.len()));
        }

        fn drop_site(&self, site: u16, then: Then) {
            self.told.lock().push(format!("drop {site}"));
            self.dropping.lock().push(then);
        }
    }

    fn kept() -> (Arc<Kernel>, Arc<KeptDirectories>) {
        let kernel = Arc::new(Kernel::default());
        let own = OwnKernel::default();
        assert!(own.set(Arc::clone(&kernel) as _).is_ok());
        (kernel, Arc::new(KeptDirectories::new(3, own)))
    }

    #[test]
    fn each_answer_of_the_site_waits_until_the_kernel_has_dropped_what_is_older() {
        let (kernel, kept) = kept();
        let answered = Arc::new(AtomicU64::new(0));
        let answer = || {
            let answered = Arc::clone(&answered);
            kept.end_stale(Box::new(move || {
                answered.fetch_add(1, Ordering::SeqCst);
            }));
        };
        answer();
        assert_eq!(answered.load(Ordering::SeqCst), 1, "nothing older was answered");
        kept.answers_stale();
        answer();
        answer();
        assert_eq!(answered.load(Ordering::SeqCst), 1);
        assert_eq!(*kernel.told.lock(), ["drop 3"]);
        let dropped: Vec<Then> = kernel.dropping.lock().drain(..).collect();
        dropped.into_iter().for_each(|then| then());
        assert_eq!(answered.load(Ordering::SeqCst), 3);
        answer();
        assert_eq!(answered.load(Ordering::SeqCst), 4);
        assert!(!kept.may_be_stale());
    }

    /// It is answered while the kernel drops what came before it.
    #[test]
    fn what_is_answered_while_the_kernel_drops_is_dropped_with_the_next_answer() {
        let (kernel, kept) = kept();
        kept.answers_stale();
        kept.end_stale(Box::new(|| {}));
        kept.answers_stale();
        let dropped: Vec<Then> = kernel.dropping.lock().drain(..).collect();
        dropped.into_iter().for_each(|then| then());
        assert!(kept.may_be_stale());
        kept.end_stale(Box::new(|| {}));
        assert_eq!(*kernel.told.lock(), ["drop 3", "drop 3"]);
    }

    #[test]
    fn a_change_of_another_session_is_told_before_it_is_sent_and_its_nodes_after_the_answer() {
        let (kernel, kept) = kept();
        let dir = Handle::own(InodeId::from_raw(9));
        let name = |text: &[u8]| Name::new(text).unwrap();
        let request = Request::Rename {
            from_dir: dir,
            from: name(b"from"),
            to_dir: dir,
            to: name(b"to"),
            flags: RenameFlags::NoReplace,
        };
        let of_done = Arc::clone(&kernel);
        let done: Done = Box::new(move |_| of_done.told.lock().push("done".to_owned()));
        let of_send = Arc::clone(&kernel);
        kept.announced(&request).unwrap().begin(done, move |done| {
            of_send.told.lock().push("sent".to_owned());
            done(Ok(Reply::Renamed { moved: dir, replaced: None }));
        });
        let told = ["begin 4", "sent", "begin 1", "end 1", "end 4", "done"];
        assert_eq!(*kernel.told.lock(), told);
    }

    #[test]
    fn what_changes_no_directory_is_not_told() {
        let (_kernel, kept) = kept();
        let node = Handle::own(InodeId::from_raw(9));
        assert!(kept.announced(&Request::GetAttr { node }).is_none());
        let set = SetAttr::default();
        assert!(kept.announced(&Request::SetAttr { node, open: None, set }).is_some());
        let nowhere = KeptDirectories::new(3, OwnKernel::default());
        assert!(nowhere.announced(&Request::SetAttr { node, open: None, set }).is_none());
    }
}
