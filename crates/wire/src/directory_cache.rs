//! Directories of other sites in the kernel's cache, below the mount of a site's server.
//!
//! Each path to an own directory leads through some of them. The server has leases on what it knows
//! of another site, and the kernel keeps these directories for the rest of such a lease. It asks
//! for that time with each reply ([`DirectoryLeases`]), and is told when a lease ends before
//! ([`DirectoryCache`]).

use std::sync::Arc;
use std::time::Duration;

use crate::attr::Attr;
use crate::id::InodeId;
use crate::local_cache::{Then, Touched};
use crate::name::Name;

/// The leases of a site's server on directories of other sites.
///
/// The methods are called while a reply is sent, and those of [`DirectoryCache`] wait for replies
/// that are being sent: so the former must not wait for one of the latter.
pub trait DirectoryLeases: Send + Sync {
    /// Returns for how long these attributes of a directory are valid; zero if they are not leased,
    /// or not the last answered ones.
    fn attr_holds(&self, attr: &Attr) -> Duration;

    /// Returns for how long a name leads to this directory; zero if that is not leased.
    fn name_holds(&self, dir: InodeId, name: &Name, target: InodeId) -> Duration;

    /// Returns whether the last answer about a name, its target or its absence, is leased: then the
    /// server is told of each change of a name in this directory.
    fn has_names(&self, dir: InodeId, name: &Name) -> bool;
}

/// The kernel's cache of directories of other sites. It keeps nothing else of these sites.
///
/// No method waits for a request of the cache's own mount. The cache calls each `then` exactly
/// once: before the method returns if that takes no time, otherwise from a thread of its own, which
/// must not be held up.
pub trait DirectoryCache: Send + Sync {
    /// Announces a change that does not come from this mount: until [`DirectoryCache::end`] nothing
    /// that it touches is cached. Calls `then` when the cache has dropped what it had.
    fn begin(&self, changes: &Arc<[Touched]>, then: Then);

    /// Ends a change that was carried out, or has failed. Called before the change is answered.
    fn end(&self, changes: &[Touched]);

    /// Ends the validity of all that is cached of a site. Calls `then` when the cache has dropped
    /// it.
    fn drop_site(&self, site: u16, then: Then);
}
