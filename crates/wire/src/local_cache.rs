//! What a server tells the cache in its own process: the kernel's, below the server's own mount.
//!
//! That cache keeps names and attributes for a long time, because it sees every change that passes
//! through it. A change by another session does not. So the server tells the cache before it
//! carries such a change out, and once more afterwards.

use std::sync::Arc;

use crate::id::InodeId;
use crate::name::Name;

/// One thing that a request changes, as far as a cache may have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touched {
    /// Attributes and access control lists of an inode; of a directory also its listing.
    Node(InodeId),
    /// What a name leads to, or that it does not exist.
    Name {
        /// The directory of the name.
        dir: InodeId,
        /// The name in `dir`.
        name: Name,
    },
    /// The bytes of a file.
    Bytes(InodeId),
}

/// What is to be done once a cache was told.
pub type Then = Box<dyn FnOnce() + Send>;

/// A cache in the server's process that keeps what it was answered.
///
/// No method waits for a request of the cache's own session.
pub trait LocalCache: Send + Sync {
    /// Says whether any other session exists. While there is none nothing else is told.
    fn set_shared(&self, shared: bool);

    /// Begins a change by another session: until [`LocalCache::end`] the cache keeps nothing that
    /// the change touches. Calls `then` exactly once, when it has dropped what it had: before this
    /// returns if that takes no time, else from a thread of its own, which must not be held up.
    fn begin(&self, changes: &Arc<[Touched]>, then: Then);

    /// Ends a change that was carried out, or has failed; called before the change is answered.
    fn end(&self, changes: &[Touched]);

    /// Says that bytes of a file were changed whose attributes the cache does not keep, because a
    /// change of [`Touched::Node`] has begun and not ended; called before the change is answered.
    fn bytes_changed(&self, ino: InodeId);

    /// Nothing holds any more that the cache was told it may keep: the attributes of these nodes,
    /// and all names. Returns when it has dropped them.
    fn drop_all(&self, nodes: &[InodeId]);

    /// Calls `then` exactly once, when it has dropped the bytes of the files that
    /// [`LocalCache::end`] and [`LocalCache::bytes_changed`] were told of: before this returns, or
    /// from a thread of its own, which must not be held up. Only then the change is answered.
    fn when_dropped(&self, changes: &[Touched], then: Then);
}
