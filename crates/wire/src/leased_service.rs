//! A service whose answers may be cached: each answer names its leases, and the service recalls
//! them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::attr::Attr;
use crate::error::Error;
use crate::id::{InodeId, OpenId, SessionId};
use crate::leases::Granted;
use crate::local_cache::{Then, Touched};
use crate::name::Name;
use crate::reply::Reply;
use crate::request::Request;
use crate::service::{Bulk, Context, Service};

/// A callback that gets an answer, exactly once.
pub type LeasedDone = Box<dyn FnOnce(Result<Reply, Error>, Granted) + Send>;

/// A service whose answers may be cached under leases.
pub trait LeasedService: Service {
    /// Carries out a request, and calls `done` with the answer: before this returns, or from any
    /// thread.
    fn ask_leased(&self, context: &Context, request: Request, bulk: Bulk<'_>, done: LeasedDone);

    /// As [`LeasedService::ask_leased`], but ahead of requests that wait for their turn: a change
    /// by another session waits for this request. There are few at a time.
    fn ask_first(&self, context: &Context, request: Request, bulk: Bulk<'_>, done: LeasedDone);

    /// Returns how long all leases last, unless they are recalled; zero if they have ended.
    fn lease_left(&self) -> Duration;

    /// Returns whether a lock was lost that a program had set through this open: its writes through
    /// the open must fail, and are not buffered.
    fn has_lost_lock(&self, open: OpenId) -> bool;

    /// Calls `then` once no request is under way any more that was answered with
    /// [`Granted::may_be_done`] before this call: it was carried out, or never will be.
    ///
    /// [`Granted::may_be_done`]: crate::Granted::may_be_done
    fn when_settled(&self, then: Then);

    /// Says that a session has ended for which the server of a site has passed on requests: its
    /// client repeats nothing. The message may be lost.
    fn end_origin(&self, _session: SessionId) {}

    /// Sets the holder of the leases. A second call does nothing.
    fn set_holder(&self, holder: Weak<dyn LeaseHolder>);
}

/// The holder of leases: it caches answers under them.
pub trait LeaseHolder: Send + Sync {
    /// Recalls leases, because another session is about to change these things. The holder drops
    /// what it has cached of them, caches no answer about them to a request that was sent before,
    /// and calls `then` exactly once when that is done, on any thread. The change waits for it.
    fn recalled(&self, touched: Arc<[Touched]>, then: Then);

    /// Ends all leases. Returns when nothing that was cached is used any more.
    fn lost(&self);

    /// Ends all leases, because the server refuses the session for good. Nothing that was cached is
    /// used any more, not even while the server is silent.
    fn refused(&self) {
        self.lost();
    }

    /// Ends all leases, because the rights of the session may change. The holder drops all that it
    /// has cached, writes back what it holds back, and calls `then` exactly once when that is done,
    /// on any thread. The change waits for it.
    fn everything_recalled(&self, then: Then) {
        self.lost();
        self.flush(then);
    }

    /// Sends the writes that were buffered under leases which have ended. Calls `then` exactly once
    /// when the service has answered all of them, on any thread.
    fn flush(&self, then: Then);
}

/// The time for which a cache in the client's process may keep the holder's answers.
pub trait LeaseTimes: Send + Sync {
    /// Returns for how long the last answered attributes of a node are valid; zero if they are not
    /// leased.
    fn attr_left(&self, ino: InodeId) -> Duration;

    /// Returns for how long these attributes are valid; zero if they are not leased, or not the
    /// last answered ones.
    fn attr_holds(&self, attr: &Attr) -> Duration;

    /// Returns for how long the last answer about a name is valid: its target, or its absence; zero
    /// if that is not leased.
    fn name_left(&self, dir: InodeId, name: &Name) -> Duration;
}
