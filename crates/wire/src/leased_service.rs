//! A service whose answers may be kept: it says of each what is under a lease, and recalls that.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::attr::Attr;
use crate::error::Error;
use crate::id::{InodeId, OpenId};
use crate::leases::Granted;
use crate::local_cache::{Then, Touched};
use crate::name::Name;
use crate::reply::Reply;
use crate::request::Request;
use crate::service::{Bulk, Context, Service};

/// A callback that gets an answer, exactly once.
pub type LeasedDone = Box<dyn FnOnce(Result<Reply, Error>, Granted) + Send>;

/// A service whose answers may be kept under leases.
pub trait LeasedService: Service {
    /// Carries out a request, and calls `done` with the answer: before this returns, or from any
    /// thread.
    fn ask_leased(&self, context: &Context, request: Request, bulk: Bulk<'_>, done: LeasedDone);

    /// As [`LeasedService::ask_leased`], before requests that wait for their turn: a change by
    /// another session waits for this one. There are few at a time.
    fn ask_first(&self, context: &Context, request: Request, bulk: Bulk<'_>, done: LeasedDone);

    /// Returns how long all leases last, unless they are recalled; zero if they have ended.
    fn lease_left(&self) -> Duration;

    /// Returns whether a lock was lost that a program had set through this open: what the program
    /// writes through it must fail, and is not kept back.
    fn has_lost_lock(&self, open: OpenId) -> bool;

    /// Sets what keeps the answers. A second call does nothing.
    fn set_holder(&self, holder: Weak<dyn LeaseHolder>);
}

/// What keeps answers under leases.
pub trait LeaseHolder: Send + Sync {
    /// Something is about to be changed by another session: what is kept of it goes, and so does
    /// what is answered to requests that were sent before. Calls `then` exactly once when that is
    /// done, on any thread; the change waits for it.
    fn recalled(&self, touched: Arc<[Touched]>, then: Then);

    /// All leases have ended. Returns when nothing that was kept is used any more.
    fn lost(&self);

    /// Sends the bytes of writes that were answered under leases which have ended. Calls `then`
    /// exactly once when the service has answered all of them, on any thread.
    fn flush(&self, then: Then);
}

/// How long a cache in the client's process may keep what the holder has answered.
pub trait LeaseTimes: Send + Sync {
    /// Returns for how long the attributes of a node hold that were answered last; zero if they are
    /// not leased.
    fn attr_left(&self, ino: InodeId) -> Duration;

    /// Returns for how long these attributes hold; zero if they are not leased, or not the ones
    /// that were answered last.
    fn attr_holds(&self, attr: &Attr) -> Duration;

    /// Returns for how long it holds what a name was answered to lead to, or that it does not
    /// exist; zero if that is not leased.
    fn name_left(&self, dir: InodeId, name: &Name) -> Duration;
}
