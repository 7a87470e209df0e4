//! The service of a server in its own process, where all requests come in.
//!
//! [`LocalService`] is the interface; the modules below are the steps between a request and its
//! reply: who may ask ([`guests`]), which site and which sessions it waits for ([`elsewhere`],
//! [`starting`], [`leases`], [`shared`]), on which thread it runs ([`dispatch`]), and what it does
//! ([`execute`]).

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, RwLock};
use pelago_data::{OpError, OpenFiles, OpenKey, Space, WakeWorker};
use pelago_meta::durability::Durability;
use pelago_meta::reply_cache::ExpectedNodes;
use pelago_meta::shard::Shard;
use pelago_proto::locks::LockRequest;
use pelago_search::SearchIndex;
use pelago_store::content::ContentStore;
use pelago_store::table::SharedTable;
use pelago_wire::{
    Bulk, Code, Connections, Context, Done, Error, InodeId, RecordedPeer, Reply, Request,
    RequestId, Served, Service, SessionId, SessionRecord,
};

use crate::completion::CancelKey;
use crate::find_by_id::FindById;
use crate::grace::Grace;
use crate::group_gate::GroupGate;
use crate::leases::Leases;
use crate::locks::Locks;
use crate::mirror::{Awaited, Mirror};
use crate::other_sessions::OtherSessions;
use crate::ownership::Ownership;
use crate::policy::{Asker, Policy};
use crate::pool::Pool;
use crate::replaced::ReplacedFiles;
use crate::sites::Sites;

use self::charter::PassedOn;

mod access;
mod audit;
mod bytes;
mod charter;
mod dispatch;
mod elsewhere;
pub(crate) mod epochs;
mod execute;
pub(crate) mod groups;
mod guests;
mod leases;
mod levels;
mod locks;
mod names;
mod origins;
mod replay;
mod session_end;
mod sessions;
mod shared;
mod starting;
mod stays;
mod store;
mod touches;

/// The parts over which a service is built.
pub(crate) struct Parts {
    /// Names and attributes.
    pub(crate) shard: Arc<Shard>,
    /// Bytes of open files.
    pub(crate) opens: Arc<OpenFiles>,
    /// Bytes of large files, for searches.
    pub(crate) content: Arc<ContentStore>,
    /// The search index.
    pub(crate) index: Arc<SearchIndex>,
    /// The table, for its write pressure, for syncs, and to see whether it has stopped.
    pub(crate) table: SharedTable,
    /// The record of done and safe batches.
    pub(crate) durability: Arc<Durability>,
    /// The account of free space, which accepts or refuses new data.
    pub(crate) space: Arc<Space>,
    /// Threads for requests that may block.
    pub(crate) pool: Arc<Pool>,
    /// The facts that a session gets when it begins; also whether the volume is read-only.
    pub(crate) served: Served,
    /// Wakes the worker `orphans`: called when a file that is not open has lost its last name, and
    /// when the sessions of the last run are back.
    pub(crate) notify_orphans: WakeWorker,
    /// Files that a rename has replaced.
    pub(crate) replaced: Arc<ReplacedFiles>,
    /// The sessions of the last run.
    pub(crate) earlier: Vec<(SessionId, SessionRecord)>,
    /// The wait for those sessions.
    pub(crate) grace: Arc<Grace>,
    /// The limit of leases of all sessions together.
    pub(crate) leases: usize,
    /// The guests and their grants.
    pub(crate) policy: Arc<Policy>,
    /// The sites of the volume, and the connection to each.
    pub(crate) sites: Arc<Sites>,
    /// `None` unless the volume lies on a shared store.
    pub(crate) ownership: Option<Arc<Ownership>>,
    /// The mirror of the volume; `None` in tests of the service alone.
    pub(crate) mirror: Option<Arc<Mirror>>,
    /// `None` unless the requests are those of a mirror's readers.
    pub(crate) groups: Option<Arc<GroupGate>>,
}

/// The service of a server in its own process.
pub(crate) struct LocalService {
    dispatcher: Arc<Dispatcher>,
}

/// Runs requests and completes them. Jobs of the pool share it.
struct Dispatcher {
    parts: Parts,
    find_by_id: FindById,
    others: OtherSessions,
    leases: Leases,
    locks: Locks,
    /// Sessions that have ended, but whose rows could not be deleted. A leaf lock.
    undeleted: Mutex<Vec<SessionId>>,
    /// The connections of the other sessions.
    connections: OnceLock<Weak<dyn Connections>>,
    /// The last stop of the table of which the log has a failed request. Stops are counted from 1
    /// by [`Durability::invalidations`].
    logged_stop: AtomicU64,
    /// True once the service has stopped. Locked for reading while a request runs on its caller's
    /// thread. Taken before all other locks.
    stopped: RwLock<bool>,
}

/// The caller of a request, and the condition under which it is carried out.
#[derive(Clone)]
struct Call {
    context: Context,
    /// The nodes to which its names must lead; see `OpContext::expected`.
    expected: Option<ExpectedNodes>,
    /// The sessions of guests that were announced a change of their rights.
    barred: Arc<[SessionId]>,
}

impl From<&Context> for Call {
    fn from(context: &Context) -> Self {
        Self { context: *context, expected: None, barred: Arc::default() }
    }
}

/// The reply to a request that succeeded, and the condition for sending it.
enum Outcome {
    /// It is sent now.
    Reply(Reply),
    /// It is sent when everything that is done at this moment is safe. If that will never be, the
    /// caller gets the error, which is recorded as reported.
    WhenSafe(Reply, ErrorReport),
    /// It is sent when everything that is done at this moment is safe, and has left the relay or is
    /// at the mirror.
    WhenMirrored(Awaited, Reply, ErrorReport),
    /// It is sent when the mirror is not too far behind any more.
    WhenCaughtUp(Reply),
    /// It is sent when everything that is done at this moment is safe, and no guest uses anything
    /// any more by a right that has ended, here and at each site that can be reached.
    WhenRevoked(PassedOn),
    /// It is sent when the first site has said what is in force, and that is in force.
    WhenCurrent,
    /// It is sent when the file with this id is found.
    WhenFound(InodeId),
    /// It is sent when the lock is set. The number names the request to [`Service::cancel`].
    WhenLocked(LockRequest, RequestId),
}

/// The object for which a writeback error counts as reported after a request has returned it: as
/// with `errseq_t`, each open and each directory reports an error once.
#[derive(Debug, Clone, Copy)]
enum ErrorReport {
    /// An open of a file.
    Open(OpenKey),
    /// A directory.
    Directory(InodeId),
    /// None: the caller has no open yet.
    Untracked,
    /// None. The caller takes an error for the word that nothing was changed, and the change may
    /// be safe all the same: it gets `Io`.
    Undecided,
}

impl ErrorReport {
    /// Returns the error of a request whose changes may never become safe, because of `cause`.
    fn error(self, opens: &OpenFiles, cause: Error) -> Error {
        match self {
            Self::Open(open) => opens.open_error(open, cause),
            Self::Directory(dir) => opens.directory_error(dir, cause),
            Self::Untracked => cause,
            Self::Undecided => Code::Io.into(),
        }
    }
}

impl From<Reply> for Outcome {
    fn from(reply: Reply) -> Self {
        Self::Reply(reply)
    }
}

type OpResult = Result<Outcome, OpError>;

impl LocalService {
    /// Returns a service that accepts requests.
    #[must_use]
    pub(crate) fn new(parts: Parts) -> Self {
        let find_by_id = FindById::new(Arc::clone(&parts.shard), parts.groups.clone());
        let locks = Locks::new(Arc::clone(&parts.opens));
        let logged_stop = AtomicU64::new(0);
        let stopped = RwLock::new(false);
        let others = OtherSessions::default();
        let leases = Leases::new(parts.leases);
        for (session, record) in &parts.earlier {
            if let RecordedPeer::Site(peer) = record.peer {
                parts.sites.begin(*session, peer);
            }
            if let RecordedPeer::Guest(_) = record.peer {
                parts.policy.expect(*session);
            }
            others.begin(*session);
            parts.opens.begin_session(*session, record.peer);
        }
        others.set_eras(parts.earlier.iter().map(|(session, record)| (*session, record.era)));
        let dispatcher = Dispatcher {
            parts,
            find_by_id,
            others,
            leases,
            locks,
            undeleted: Mutex::default(),
            connections: OnceLock::new(),
            logged_stop,
            stopped,
        };
        let dispatcher = Arc::new(dispatcher);
        if !dispatcher.parts.served.read_only {
            // Those of the last run.
            dispatcher.finish_all(Vec::new());
            if !dispatcher.parts.sites.stays.is_empty() {
                dispatcher.watch_stays();
            }
        }
        let weak = Arc::downgrade(&dispatcher);
        dispatcher.parts.sites.stays.set_tell(Box::new(move |file, then| match weak.upgrade() {
            Some(dispatcher) => dispatcher.tell(file, then),
            None => then(Err(Code::Unavailable.into())),
        }));
        Self { dispatcher }
    }

    /// Returns the file locks.
    pub(crate) fn locks(&self) -> &Locks {
        &self.dispatcher.locks
    }

    /// Returns the search index.
    #[cfg(test)]
    pub(crate) fn index(&self) -> &Arc<SearchIndex> {
        &self.dispatcher.parts.index
    }

    /// Returns the sessions besides the direct one.
    pub(crate) fn others(&self) -> &OtherSessions {
        &self.dispatcher.others
    }

    /// Stops the service: from now on every request gets `Unavailable`, also one that waits for a
    /// thread or a lock. Returns when no request runs.
    pub(crate) fn stop(&self) {
        *self.dispatcher.stopped.write() = true;
        starting::stop(&self.dispatcher.parts.grace, Code::Unavailable);
        self.dispatcher.parts.pool.stop();
        self.dispatcher.leases.stop();
        self.dispatcher.parts.sites.gate.stop();
        self.dispatcher.find_by_id.stop();
        self.dispatcher.locks.stop();
    }
}

impl Service for LocalService {
    fn ask(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let submission = Submission { request, bulk, later };
        match self.dispatcher.parts.policy.asker(context.session) {
            Asker::Trusted if self.dispatcher.parts.sites.is_alone() => {
                self.dispatcher.dispatch_local(context, submission)
            }
            Asker::Trusted => match context.origin {
                Some(origin) => self.dispatcher.dispatch_for_origin(origin, context, submission),
                None => self.dispatcher.dispatch_to_home(context, submission),
            },
            Asker::Guest(guest) => self.dispatcher.dispatch_for_guest(guest, context, submission),
            Asker::AbsentGuest => Some(Err(Code::Stale.into())),
        }
    }

    fn cancel(&self, context: &Context) {
        let grace = &self.dispatcher.parts.grace;
        if !grace.is_over()
            && let Some(parked) = grace.cancel(context)
        {
            (parked.done)(Err(Code::Interrupted.into()));
            return;
        }
        if !self.dispatcher.parts.sites.is_alone() && self.dispatcher.parts.sites.cancel(context) {
            return;
        }
        if !self.dispatcher.leases.cancel(CancelKey::from(context)) {
            self.dispatcher.locks.cancel(context.session, context.request);
        }
    }

    fn forgotten(&self, removed: InodeId) {
        self.dispatcher.forget_removed(removed);
    }

    fn losses(&self) -> u64 {
        self.dispatcher.parts.durability.writeback_errors.count()
    }
}

/// A request as a caller hands it in; see [`Service::ask`].
struct Submission<'a> {
    request: Request,
    bulk: Bulk<'a>,
    /// Returns the callback that gets a reply which comes later.
    later: &'a mut dyn FnMut() -> Done,
}

#[cfg(test)]
mod tests;
