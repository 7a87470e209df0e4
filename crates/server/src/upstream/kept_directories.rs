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
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
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
    /// Held while the kernel drops them.
    dropping: Mutex<()>,
}

impl KeptDirectories {
    pub(crate) fn new(site: u16, kernel: OwnKernel) -> Self {
        let [stale, dropped] = [AtomicU64::new(0), AtomicU64::new(0)];
        Self { site, kernel, stale, dropped, dropping: Mutex::default() }
    }

    /// Records that a request is about to be answered from what was known before. Called before
    /// that is looked up: the answer of the site either ends it before, or finds this record.
    pub(crate) fn answers_stale(&self) {
        self.stale.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns whether the kernel may have such an answer.
    fn may_be_stale(&self) -> bool {
        self.stale.load(Ordering::SeqCst) != self.dropped.load(Ordering::SeqCst)
    }

    /// Returns once the kernel has dropped all such answers. Called with each answer of the site.
    pub(crate) fn end_stale(&self) {
        if !self.may_be_stale() {
            return;
        }
        // Others wait, too: their answers are newer as well.
        let _dropping = self.dropping.lock();
        if self.may_be_stale() {
            let stale = self.stale.load(Ordering::SeqCst);
            self.drop_all();
            self.dropped.store(stale, Ordering::SeqCst);
        }
    }

    /// Returns once the kernel has dropped all directories of the site: the leases on them have
    /// ended.
    pub(crate) fn drop_all(&self) {
        if let Some(kernel) = self.kernel.get() {
            kernel.drop_site(self.site);
        }
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
    fn left(&self, site: u16, left: impl FnOnce(&Upstream) -> Duration) -> Duration {
        let Some(upstreams) = self.upstreams.upgrade() else { return Duration::ZERO };
        let upstream = upstreams.try_read().and_then(|all| all.get(&site).cloned());
        let Some(upstream) = upstream else { return Duration::ZERO };
        if upstream.kept.may_be_stale() && upstream.holder.may_answer_stale() {
            return STALE;
        }
        left(&upstream)
    }
}

impl DirectoryLeases for LeasesElsewhere {
    fn attr_holds(&self, attr: &Attr) -> Duration {
        // What is answered to others than this server must not be kept, and is marked so.
        let as_leased = Attr { volatile: false, ..*attr };
        self.left(attr.ino.site(), |upstream| upstream.holder.attr_holds(&as_leased))
    }

    fn name_holds(&self, dir: InodeId, name: &Name, target: InodeId) -> Duration {
        self.left(dir.site(), |upstream| upstream.holder.name_holds(dir, name, target))
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
            let moved: Arc<[Touched]> = result.as_ref().map_or_else(|_| Vec::new(), moved).into();
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

/// Returns the nodes whose names a removal or a move has changed.
fn moved(reply: &Reply) -> Vec<Touched> {
    match reply {
        Reply::Removed(attr) => vec![Touched::Node(attr.ino)],
        Reply::Renamed { moved, replaced } => {
            let replaced = replaced.as_ref().map(|replaced| replaced.attr.ino);
            [Some(moved.ino), replaced].into_iter().flatten().map(Touched::Node).collect()
        }
        _ => Vec::new(),
    }
}
