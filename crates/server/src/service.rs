//! The service of a server in its own process: admits each request, chooses its thread, and
//! completes it.
//!
//! A request that needs only memory and the table runs on the thread of its caller, one that may
//! wait for the disk on a thread of the pool. Its reply comes later if something must be safe
//! first.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, RwLock};
use pelago_data::{MayBlock, OpError, OpenFiles, OpenKey, Space, WakeWorker};
use pelago_meta::durability::Durability;
use pelago_meta::reply_cache::ExpectedNodes;
use pelago_meta::shard::Shard;
use pelago_proto::locks::LockRequest;
use pelago_store::content::ContentStore;
use pelago_store::table::{self, Pressure, SharedTable};
use pelago_wire::{
    Bulk, Code, Connections, Context, Description, Done, Effect, Error, InodeId, Kind,
    RecordedPeer, Reply, Request, RequestId, Served, Service, SessionId, SessionRecord,
};

use crate::completion::{CancelKey, Completion};
use crate::find_by_id::FindById;
use crate::grace::Grace;
use crate::leases::Leases;
use crate::locks::Locks;
use crate::other_sessions::OtherSessions;
use crate::ownership::Ownership;
use crate::policy::Policy;
use crate::pool::{Caller, Invocation, Pool};
use crate::replaced::ReplacedFiles;
use crate::search_index::SearchIndex;
use crate::sites::Sites;

use execute::Executor;

mod bytes;
mod elsewhere;
pub(crate) mod epochs;
mod execute;
mod guests;
mod leases;
mod locks;
mod names;
mod replay;
mod session_end;
mod sessions;
mod shared;
mod starting;
mod touches;

/// What a service is built over.
pub(crate) struct Parts {
    /// Names and attributes.
    pub(crate) shard: Arc<Shard>,
    /// Bytes of open files.
    pub(crate) opens: Arc<OpenFiles>,
    /// Bytes of large files, for searches.
    pub(crate) content: Arc<ContentStore>,
    /// The search index.
    pub(crate) index: Arc<SearchIndex>,
    /// Asked only whether it falls behind with its writes.
    pub(crate) table: SharedTable,
    /// Which batches are safe.
    pub(crate) durability: Arc<Durability>,
    /// Free space, and whether new data is accepted.
    pub(crate) space: Arc<Space>,
    /// Threads for requests that may block.
    pub(crate) pool: Arc<Pool>,
    /// What sessions learn when they begin; says whether changes are refused.
    pub(crate) served: Served,
    /// Called when a file that is not open has lost its last name, and when the sessions of the
    /// last run are back.
    pub(crate) notify_orphans: WakeWorker,
    /// Files that a rename has replaced.
    pub(crate) replaced: Arc<ReplacedFiles>,
    /// The sessions of the last run.
    pub(crate) earlier: Vec<(SessionId, SessionRecord)>,
    /// Whether it still waits for some of them.
    pub(crate) grace: Arc<Grace>,
    /// The most leases of all sessions.
    pub(crate) leases: usize,
    /// Which guests there are, and what each may use.
    pub(crate) policy: Arc<Policy>,
    /// Which sites there are, and the way to each.
    pub(crate) sites: Arc<Sites>,
    /// `None` unless the volume lies on a shared store.
    pub(crate) ownership: Option<Arc<Ownership>>,
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
    /// Sessions that have ended, and whose rows could not be deleted. A leaf lock.
    undeleted: Mutex<Vec<SessionId>>,
    /// Those of the other sessions.
    connections: OnceLock<Weak<dyn Connections>>,
    /// Which stop of the table, counted from 1 by [`Durability::invalidations`], has a failed
    /// request in the log.
    logged_stop: AtomicU64,
    /// Locked for reading while a request runs on its caller's thread. Taken before all others.
    stopped: RwLock<bool>,
}

/// The caller of a request, and what must hold for it to be carried out.
#[derive(Clone, Copy)]
struct Call {
    context: Context,
    /// What its names must lead to; see `OpContext::expected`.
    expected: Option<ExpectedNodes>,
}

impl From<&Context> for Call {
    fn from(context: &Context) -> Self {
        Self { context: *context, expected: None }
    }
}

/// The reply of a request that succeeded, and when it is sent.
enum Outcome {
    /// Now.
    Reply(Reply),
    /// Once everything that is done at this moment is safe. If it becomes certain that this will
    /// not happen, the error goes to the caller and is noted as reported.
    WhenSafe(Reply, ErrorReport),
    /// Once the file with this id is found.
    WhenFound(InodeId),
    /// Once the lock is set. The number names the request to [`Service::cancel`].
    WhenLocked(LockRequest, RequestId),
}

/// For which object a writeback error counts as reported, once a request that waited has returned
/// it: as with `errseq_t`, each open and each directory reports an error once.
#[derive(Debug, Clone, Copy)]
enum ErrorReport {
    /// An open of a file.
    Open(OpenKey),
    /// A directory.
    Directory(InodeId),
    /// Neither: the caller has no open yet.
    Untracked,
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
        let find_by_id = FindById::new(Arc::clone(&parts.shard));
        let locks = Locks::new(Arc::clone(&parts.opens));
        let logged_stop = AtomicU64::new(0);
        let stopped = RwLock::new(false);
        let others = OtherSessions::default();
        let leases = Leases::new(parts.leases);
        for (session, record) in &parts.earlier {
            if let RecordedPeer::Site(peer) = record.peer {
                parts.sites.begin(*session, peer);
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
        Self { dispatcher: Arc::new(dispatcher) }
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

    /// Stops the service: every request gets `Unavailable` from now on, as do those that wait for a
    /// thread or a lock. Returns when no request runs any more.
    pub(crate) fn stop(&self) {
        *self.dispatcher.stopped.write() = true;
        starting::stop(&self.dispatcher.parts.grace, Code::Unavailable);
        self.dispatcher.parts.pool.stop();
        self.dispatcher.leases.stop();
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
        match self.dispatcher.parts.policy.guest(context.session) {
            None if self.dispatcher.parts.sites.is_alone() => {
                self.dispatcher.ask_as_session(context, request, bulk, later)
            }
            None => self.dispatcher.ask_among_sites(context, request, bulk, later),
            Some(guest) => self.dispatcher.ask_as_guest(guest, context, request, later),
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

/// The memory of a request's bytes.
struct Buffers<'a> {
    /// The bytes of the request.
    bytes: &'a [u8],
    /// Memory of the caller for the bytes of the reply.
    room: Option<&'a mut [u8]>,
}

impl<'a> Buffers<'a> {
    fn of(bulk: &'a mut Bulk<'_>) -> Self {
        let (bytes, room) = bulk.parts();
        Self { bytes, room }
    }
}

impl Dispatcher {
    /// Carries out a request that its session may make.
    #[inline]
    fn ask_as_session(
        self: &Arc<Self>,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        match self.parts.grace.is_over() {
            true => self.dispatch_and_await_writers(context, request, bulk, later),
            false => self.park_or_dispatch(context, request, bulk, later),
        }
    }

    /// Carries out a request, here or later on a thread of the pool; see [`Service::ask`].
    fn dispatch(
        self: &Arc<Self>,
        call: &Call,
        request: Request,
        mut bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let invalidations = self.parts.durability.invalidations();
        match self.run_here(call, &request, Buffers::of(&mut bulk), MayBlock::No) {
            Ok(Outcome::Reply(reply)) => return Some(Ok(reply)),
            Err(OpError::Failed(error)) => return Some(Err(error)),
            Err(OpError::WouldBlock) => {}
            outcome @ Ok(
                Outcome::WhenSafe(..) | Outcome::WhenFound(_) | Outcome::WhenLocked(..),
            ) => {
                self.complete(outcome, invalidations, Completion::new(later()));
                return None;
            }
        }
        let caller = Caller::from(&call.context);
        let done = Completion::new(later());
        let kept = payload_bytes(&request, bulk.bytes());
        let Some(permit) = self.parts.pool.permit_payload(caller, kept) else {
            // Decision 10: a payload that cannot be kept is written here, which slows its caller.
            let result = self.run_here(call, &request, Buffers::of(&mut bulk), MayBlock::Yes);
            self.complete(result, invalidations, done);
            return None;
        };
        let dispatcher = Arc::clone(self);
        let call = *call;
        let bytes = bulk.into_bytes();
        let job = move |invocation| match invocation {
            Invocation::Run => {
                let invalidations = dispatcher.parts.durability.invalidations();
                let buffers = Buffers { bytes: &bytes, room: None };
                let result = dispatcher.run(&call, &request, buffers, MayBlock::Yes);
                drop((bytes, permit));
                dispatcher.complete(result, invalidations, done);
            }
            Invocation::Cancelled => done.reply(Err(Code::Unavailable.into())),
        };
        self.parts.pool.submit(caller, Box::new(job));
        None
    }

    /// Carries out a request on the thread of its caller. [`LocalService::stop`] waits for it by
    /// the lock.
    fn run_here(
        &self,
        call: &Call,
        request: &Request,
        buffers: Buffers<'_>,
        may_block: MayBlock,
    ) -> OpResult {
        // Recursive: a reply may call in again on this thread while `stop` waits for the lock.
        let stopped = self.stopped.read_recursive();
        match *stopped {
            true => Err(Code::Unavailable.into()),
            false => self.run(call, request, buffers, may_block),
        }
    }

    /// Replies with the result of a request, now or later. `invalidations` is the count from before
    /// the request ran: if the table was reopened since, its changes may be lost.
    fn complete(&self, result: OpResult, invalidations: u64, done: Completion) {
        match result {
            Ok(Outcome::Reply(reply)) => done.reply(Ok(reply)),
            Ok(Outcome::WhenSafe(reply, report)) => {
                let opens = Arc::clone(&self.parts.opens);
                let durability = &self.parts.durability;
                let done = done.into_done();
                let tell = move |safe: Result<(), Error>| match safe {
                    Ok(()) => done(Ok(reply)),
                    Err(cause) => done(Err(match report {
                        ErrorReport::Open(open) => opens.open_error(open, cause),
                        ErrorReport::Directory(dir) => opens.directory_error(dir, cause),
                        ErrorReport::Untracked => cause,
                    })),
                };
                durability.when_safe(durability.done(), invalidations, Box::new(tell));
            }
            Ok(Outcome::WhenFound(ino)) => self.find_by_id.find(ino, done),
            Ok(Outcome::WhenLocked(request, number)) => {
                self.locks.set_or_wait(&request, number, done);
            }
            Err(OpError::Failed(error)) => done.reply(Err(error)),
            // Unreachable: only `MayBlock::No` may ask for a repetition, and `ask` repeats that.
            Err(OpError::WouldBlock) => done.reply(Err(Code::Bug.into())),
        }
    }

    /// Carries out a request. Every request passes here, reads too: what holds for all requests of
    /// one effect is decided here and nowhere else.
    fn run(
        &self,
        call: &Call,
        request: &Request,
        buffers: Buffers<'_>,
        may_block: MayBlock,
    ) -> OpResult {
        let Call { context, expected } = call;
        let Buffers { bytes, room } = buffers;
        let description = request.describe();
        // Its fields are evaluated only if the log has this level.
        let _span = tracing::debug_span!(
            "request",
            operation = description.operation.name(),
            inode = description.subjects.each_inode().next().map(InodeId::raw),
            open = description.subjects.each_open().next().map(|open| open.0),
            session = ?context.session,
        )
        .entered();
        let parts = &self.parts;
        let locks = &self.locks;
        let expected = *expected;
        let room = Cell::new(room);
        let connections = &self.connections;
        let executor =
            Executor { parts, locks, connections, context, expected, bytes, room, may_block };
        let result = match self.admit(context, &description, may_block)? {
            Some(reply) => executor.replay(request, reply),
            None => executor.execute(request),
        };
        let result = match result {
            Ok(Outcome::Reply(reply)) if self.builds_on_others(context, request, &description) => {
                Ok(Outcome::WhenSafe(reply, ErrorReport::Untracked))
            }
            result => result,
        };
        if let Err(OpError::Failed(error)) = result {
            self.note_failure(&description, context, error);
        }
        result
    }

    /// Tells others of a failure: the free space of a full disk, and the log of an I/O error or
    /// damage. The line that says the cause comes before, on the same thread, without the request.
    #[cold]
    fn note_failure(&self, description: &Description, context: &Context, error: Error) {
        let Description { operation, effect, subjects, .. } = description;
        if error.code == Code::NoSpace && effect.writes_rows() {
            self.parts.space.note_full();
        }
        if error.kind() != Kind::Corrupt || self.is_repeated_by_stop() {
            return;
        }
        tracing::error!(
            operation = operation.name(),
            inode = subjects.each_inode().next().map(InodeId::raw),
            open = subjects.each_open().next().map(|open| open.0),
            session = ?context.session,
            %error,
            "a request failed"
        );
    }

    /// Returns whether the table has stopped and a request that failed since is in the log. All
    /// requests fail until the table is reopened; only the first is worth a line.
    fn is_repeated_by_stop(&self) -> bool {
        if !matches!(self.parts.table.get(&[0]), Err(table::Error::Stopped)) {
            return false;
        }
        let stop = self.parts.durability.invalidations() + 1;
        self.logged_stop.swap(stop, Ordering::Relaxed) == stop
    }

    /// Decides whether a request with this effect may be carried out now. Returns the stored reply
    /// if it was carried out before.
    ///
    /// Only replies to sessions other than the direct one are stored.
    ///
    /// # Errors
    /// [`Code::ReadOnly`], [`Code::NoSpace`]; [`OpError::WouldBlock`] if the engine falls behind
    /// and the caller is an event loop.
    fn admit(
        &self,
        context: &Context,
        description: &Description,
        may_block: MayBlock,
    ) -> Result<Option<Reply>, OpError> {
        match description.effect {
            Effect::None | Effect::Once => return Ok(None),
            Effect::Commit => {}
            Effect::Change { .. } if self.parts.served.read_only => {
                return Err(Code::ReadOnly.into());
            }
            Effect::Change { grows, .. } => {
                if let Some(reply) = self.stored_reply(context, description.effect)? {
                    return Ok(Some(reply));
                }
                if context.replayed.is_some() && self.parts.grace.is_over() {
                    // It could undo what was done since.
                    return Err(Code::TimedOut.into());
                }
                if grows {
                    self.parts.space.admit()?;
                }
            }
        }
        if may_block == MayBlock::No && self.parts.table.pressure() == Pressure::High {
            return Err(OpError::WouldBlock);
        }
        Ok(None)
    }
}

/// Returns how many bytes a request that waits keeps in memory: those of its caller, and those of
/// its own arguments that may be large.
fn payload_bytes(request: &Request, bytes: &[u8]) -> usize {
    let own = match request {
        Request::SetXattr { value, .. } => value.len(),
        Request::Symlink { target, .. } => target.len(),
        _ => 0,
    };
    own + bytes.len()
}

#[cfg(test)]
mod tests;
