//! The cache in the server's own process, below its own mount: the kernel's.
//!
//! It caches names and attributes for a long time, because each change of its own session passes
//! through it. A change by another session does not: the server announces it to the cache, carries
//! it out, and says that it has ended.

use std::sync::Arc;

use crate::id::InodeId;
use crate::name::Name;

/// One thing that a request changes, as far as a cache may have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touched {
    /// Attributes and access control lists of an inode; of a directory also its listing.
    Node(InodeId),
    /// The target of a name, or its absence.
    Name {
        /// The directory of the name.
        dir: InodeId,
        /// The name in `dir`.
        name: Name,
    },
    /// The bytes of a file.
    Bytes(InodeId),
}

/// What a recall names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recalled {
    /// These nodes and names.
    Things(Vec<Touched>),
    /// Everything that the session has cached: its rights may have changed.
    Everything,
}

/// A callback that is called once a cache, or a holder of leases, is done.
pub type Then = Box<dyn FnOnce() + Send>;

/// A cache of answers, in the process of the server.
///
/// No method waits for a request of the cache's own session.
pub trait LocalCache: Send + Sync {
    /// Says whether another session exists. No other method is called while none does.
    fn set_shared(&self, shared: bool);

    /// Announces a change by another session: until [`LocalCache::end`] nothing that the change
    /// touches is cached. The cache calls `then` exactly once, when it has dropped what it had:
    /// before this returns if that takes no time, otherwise from a thread of its own, which must
    /// not be held up.
    fn begin(&self, changes: &Arc<[Touched]>, then: Then);

    /// Ends a change that was carried out, or has failed. Called before the change is answered.
    fn end(&self, changes: &[Touched]);

    /// Says that bytes of a file were changed. Its attributes are not cached, because a change of
    /// [`Touched::Node`] has begun and not ended. Called before the change is answered.
    fn bytes_changed(&self, ino: InodeId);

    /// Ends the validity of all cached answers: of the attributes of these nodes, and of all names.
    /// Returns when the cache has dropped them.
    fn drop_all(&self, nodes: &[InodeId]);

    /// Returns whether the cache may have answers from the time in which a server was silent.
    fn may_be_stale(&self) -> bool {
        false
    }

    /// Ends the validity of such answers. Calls `then` exactly once, when the cache has dropped
    /// them.
    fn end_stale(&self, then: Then) {
        then();
    }

    /// Calls `then` exactly once, when the cache has dropped the bytes of the files that
    /// [`LocalCache::end`] and [`LocalCache::bytes_changed`] have named: before this returns, or
    /// from a thread of its own, which must not be held up. The change is answered only then.
    fn when_dropped(&self, changes: &[Touched], then: Then);

    /// Tells the server what was changed under leases that an earlier run of it has granted, and
    /// calls `then` after the last answer. A cache that has no such changes calls it at once.
    fn flush(&self, then: Then) {
        then();
    }
}
