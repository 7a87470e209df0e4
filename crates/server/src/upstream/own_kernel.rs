//! The kernel below the own mount, which keeps directories of other sites: their names and their
//! attributes, under the leases that this server has on them.
//!
//! It is told of each recall before that is answered, and of the end of the time in which a site
//! was silent. Of changes that this server passes on no
//! recall comes, as the leases are its own: it is told of those of other sessions before they are
//! sent. Its own changes it knows.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::RwLock;
use pelago_wire::{
    Attr, Done, InodeId, LeaseTimes, LocalCache, Name, Reply, Request, SessionId, Touched, Touches,
};

use super::{Upstream, is_own_mount};

/// The cache of the own mount, once there is one.
pub(crate) type OwnKernel = Arc<OnceLock<Arc<dyn LocalCache>>>;

/// The time for which the kernel keeps what is answered while another site is silent. It ends
/// before the first answer of that site is passed on ([`LocalCache::end_stale`]).
const STALE: Duration = Duration::from_secs(2);

/// The leases on what has its home at other sites.
pub(crate) struct LeasesElsewhere {
    pub(crate) upstreams: Weak<RwLock<HashMap<u16, Arc<Upstream>>>>,
}

impl LeasesElsewhere {
    /// Returns the time that `left` tells of the leases at a site; [`STALE`] while it is silent.
    /// Never waits: a thread that has the lock may wait for the reply that is being sent.
    fn left(&self, site: u16, left: impl FnOnce(&dyn LeaseTimes) -> Duration) -> Duration {
        let Some(upstreams) = self.upstreams.upgrade() else { return Duration::ZERO };
        let upstream = upstreams.try_read().and_then(|all| all.get(&site).cloned());
        match upstream {
            None => Duration::ZERO,
            Some(upstream) if upstream.holder.may_answer_stale() => STALE,
            Some(upstream) => left(&*upstream.holder),
        }
    }
}

impl LeaseTimes for LeasesElsewhere {
    fn attr_left(&self, ino: InodeId) -> Duration {
        self.left(ino.site(), |leases| leases.attr_left(ino))
    }

    fn attr_holds(&self, attr: &Attr) -> Duration {
        self.left(attr.ino.site(), |leases| leases.attr_holds(attr))
    }

    fn name_left(&self, dir: InodeId, name: &Name) -> Duration {
        self.left(dir.site(), |leases| leases.name_left(dir, name))
    }
}

/// A change of another session that the kernel is told of.
pub(super) struct Announced {
    kernel: Arc<dyn LocalCache>,
    changes: Arc<[Touched]>,
}

impl Announced {
    /// Returns what the kernel is told of a request; `None` if it has nothing of it, or has sent it
    /// itself.
    pub(super) fn of(kernel: &OwnKernel, session: SessionId, request: &Request) -> Option<Self> {
        let kernel = kernel.get().filter(|_| !is_own_mount(session))?;
        let changes = changes(request.touches());
        let kernel = Arc::clone(kernel);
        (!changes.is_empty()).then(|| Self { kernel, changes: changes.into() })
    }

    /// Calls `then` once the kernel has dropped what changes, and may keep nothing of it, with the
    /// callback for the answer: the kernel may keep it again before `done` is called.
    pub(super) fn begin(self, done: Done, then: impl FnOnce(Done) + Send + 'static) {
        let Self { kernel, changes } = self;
        let of_end = Arc::clone(&kernel);
        let ended = Arc::clone(&changes);
        let answered: Done = Box::new(move |result| {
            let moved = result.as_ref().map_or_else(|_| Vec::new(), moved_nodes);
            if !moved.is_empty() {
                let moved: Arc<[Touched]> = moved.into();
                of_end.begin(&moved, Box::new(|| {}));
                of_end.end(&moved);
            }
            of_end.end(&ended);
            done(result);
        });
        kernel.begin(&changes, Box::new(move || then(answered)));
    }
}

/// Returns the directories and the names of directories that a request changes. A new name is the
/// name of none before.
fn changes(touches: Touches<'_>) -> Vec<Touched> {
    match touches {
        // The kernel keeps nothing of files.
        Touches::Nothing | Touches::Contents(_) | Touches::Bytes(_) | Touches::Release(_) => {
            Vec::new()
        }
        Touches::Node(ino) => vec![Touched::Node(ino)],
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
fn moved_nodes(reply: &Reply) -> Vec<Touched> {
    match reply {
        Reply::Removed(attr) => vec![Touched::Node(attr.ino)],
        Reply::Renamed { moved, replaced } => {
            let replaced = replaced.as_ref().map(|replaced| replaced.attr.ino);
            [Some(moved.ino), replaced].into_iter().flatten().map(Touched::Node).collect()
        }
        _ => Vec::new(),
    }
}
