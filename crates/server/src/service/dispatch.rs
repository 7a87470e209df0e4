//! The thread of a request, and the decision whether it is carried out.
//!
//! A request that needs only memory and the table runs on the thread of its caller, one that may
//! wait for the disk on a thread of the pool. Its reply comes later if something must be safe
//! first. Every request passes [`Dispatcher::run`]: it can be refused on a read-only or full
//! volume, is answered from a stored reply if it was carried out before, and a failure gets a line
//! in the log.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pelago_data::{MayBlock, OpError};
use pelago_store::table::{self, Pressure};
use pelago_wire::{Bulk, Code, Context, Description, Effect, Error, InodeId, Kind, Reply, Request};

use super::execute::Executor;
use super::guests::with_cut_mode;
use super::{Call, Dispatcher, ErrorReport, OpResult, Outcome, Submission};
use crate::completion::Completion;
use crate::pool::{Caller, Invocation};

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
    /// Carries out at this site a request that its session may make.
    #[inline]
    pub(super) fn dispatch_local(
        self: &Arc<Self>,
        context: &Context,
        submission: Submission<'_>,
    ) -> Option<Result<Reply, Error>> {
        match self.parts.grace.is_over() {
            true => self.dispatch_and_await_writers(context, submission),
            false => self.park_or_dispatch(context, submission),
        }
    }

    /// Carries out a request on this thread, or later on a thread of the pool.
    pub(super) fn dispatch(
        self: &Arc<Self>,
        call: &Call,
        submission: Submission<'_>,
    ) -> Option<Result<Reply, Error>> {
        let Submission { request, mut bulk, later } = submission;
        let invalidations = self.parts.durability.invalidations();
        match self.run_here(call, &request, Buffers::of(&mut bulk), MayBlock::No) {
            Ok(Outcome::Reply(reply)) => return Some(Ok(reply)),
            Err(OpError::Failed(error)) => return Some(Err(error)),
            Err(OpError::WouldBlock) => {}
            outcome @ Ok(
                Outcome::WhenSafe(..)
                | Outcome::WhenMirrored(..)
                | Outcome::WhenCaughtUp(_)
                | Outcome::WhenRevoked(_)
                | Outcome::WhenCurrent
                | Outcome::WhenFound(_)
                | Outcome::WhenLocked(..),
            ) => {
                self.complete(outcome, invalidations, Completion::new(later()));
                return None;
            }
        }
        let caller = Caller::from(&call.context);
        let done = Completion::new(later());
        let payload = payload_bytes(&request, bulk.bytes());
        let Some(permit) = self.parts.pool.permit_payload(caller, payload) else {
            // Decision 10: a payload beyond the caller's share of memory is written here, which
            // slows its caller.
            let result = self.run_here(call, &request, Buffers::of(&mut bulk), MayBlock::Yes);
            self.complete(result, invalidations, done);
            return None;
        };
        let dispatcher = Arc::clone(self);
        let call = call.clone();
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

    /// Carries out a request on the thread of its caller. `LocalService::stop` waits for it through
    /// the lock.
    fn run_here(
        &self,
        call: &Call,
        request: &Request,
        buffers: Buffers<'_>,
        may_block: MayBlock,
    ) -> OpResult {
        // Recursive: a reply may send another request on this thread while `stop` waits for the
        // lock.
        let stopped = self.stopped.read_recursive();
        match *stopped {
            true => Err(Code::Unavailable.into()),
            false => self.run(call, request, buffers, may_block),
        }
    }

    /// Replies with the result of a request, now or later. `invalidations` was counted before the
    /// request ran: if the table was reopened since, its changes may be lost.
    fn complete(self: &Arc<Self>, result: OpResult, invalidations: u64, done: Completion) {
        match result {
            Ok(Outcome::Reply(reply)) => done.reply(Ok(reply)),
            Ok(Outcome::WhenSafe(reply, report)) => {
                self.reply_when_safe(reply, report, invalidations, done);
            }
            Ok(Outcome::WhenMirrored(awaited, reply, report)) => {
                self.reply_when_mirrored(awaited, reply, report, invalidations, done);
            }
            Ok(Outcome::WhenCaughtUp(reply)) => self.reply_when_caught_up(reply, done),
            Ok(Outcome::WhenRevoked(passed_on)) => {
                let dispatcher = Arc::clone(self);
                self.end_guests(move || {
                    let durability = Arc::clone(&dispatcher.parts.durability);
                    let done = done.into_done();
                    let answer = move |safe: Result<(), Error>| match safe {
                        Ok(()) => dispatcher.reach_sites(passed_on, done),
                        Err(error) => done(Err(error)),
                    };
                    durability.when_safe(durability.done(), invalidations, Box::new(answer));
                });
            }
            Ok(Outcome::WhenCurrent) => self.parts.sites.gate.wait(done.into_done()),
            Ok(Outcome::WhenFound(ino)) => self.find_by_id.find(ino, done),
            Ok(Outcome::WhenLocked(request, number)) => {
                self.locks.set_or_wait(&request, number, done);
            }
            Err(OpError::Failed(error)) => done.reply(Err(error)),
            // Unreachable: only with `MayBlock::No` may a request ask for a repetition, and
            // `dispatch` repeats that.
            Err(OpError::WouldBlock) => done.reply(Err(Code::Bug.into())),
        }
    }

    /// Replies when everything that is done now is safe.
    pub(super) fn reply_when_safe(
        &self,
        reply: Reply,
        report: ErrorReport,
        invalidations: u64,
        done: Completion,
    ) {
        let opens = Arc::clone(&self.parts.opens);
        let durability = &self.parts.durability;
        let done = done.into_done();
        let answer = move |safe: Result<(), Error>| match safe {
            Ok(()) => done(Ok(reply)),
            Err(cause) => done(Err(report.error(&opens, cause))),
        };
        durability.when_safe(durability.done(), invalidations, Box::new(answer));
    }

    /// Carries out a request. Every request passes here, reads too: rules for all requests of one
    /// effect are applied here and nowhere else.
    fn run(
        &self,
        call: &Call,
        request: &Request,
        buffers: Buffers<'_>,
        may_block: MayBlock,
    ) -> OpResult {
        let Call { context, expected, .. } = call;
        let Buffers { bytes, room } = buffers;
        let description = request.describe();
        let parts = &self.parts;
        let groups = parts.groups.as_ref();
        let _no_group = groups.map(|gate| gate.enter(may_block)).transpose()?;
        let locks = &self.locks;
        let expected = *expected;
        let room = Cell::new(room);
        let stored = self.admit(context, &description, may_block)?;
        // Only a request that is held may be one of a guest.
        let is_guest = false.into();
        let executor =
            Executor { parts, locks, context, expected, bytes, room, may_block, is_guest };
        let result = match stored {
            // A change that was carried out needs no right any more.
            Some(reply) => executor.replay(request, reply),
            None if self.may_concern_guests(&description) => {
                self.execute_held(call, request, &description, &executor)?
            }
            None => executor.execute(request),
        };
        let result = match result {
            Ok(Outcome::Reply(reply)) if self.builds_on_others(context, request, &description) => {
                Ok(Outcome::WhenSafe(reply, ErrorReport::Untracked))
            }
            Ok(Outcome::Reply(reply)) if self.must_hold_back(&description, bytes.len()) => {
                Ok(Outcome::WhenCaughtUp(reply))
            }
            result => result,
        };
        if let Err(OpError::Failed(error)) = result {
            self.report_failure(&description, context, error);
        }
        result
    }

    /// Carries out a request while nothing that decides about the rights of guests changes.
    ///
    /// # Errors
    /// Those of [`Dispatcher::hold`]: then it was not carried out.
    #[inline(never)]
    fn execute_held(
        &self,
        call: &Call,
        request: &Request,
        description: &Description,
        executor: &Executor<'_>,
    ) -> Result<OpResult, OpError> {
        let held = self.hold(call, request, description, executor.may_block)?;
        let is_guest = held.is_guest();
        executor.is_guest.set(is_guest);
        let cut = if is_guest { with_cut_mode(&self.parts, request)? } else { None };
        let result = executor.execute(cut.as_ref().unwrap_or(request));
        if let Ok(Outcome::Reply(reply)) = &result {
            held.note_made(&self.parts, call, request, reply);
        }
        Ok(result)
    }

    /// Reports a failure: a full disk to the account of free space, an I/O error or damage to the
    /// log. The line with the cause comes before it, from the same thread, and does not name the
    /// request.
    #[cold]
    fn report_failure(&self, description: &Description, context: &Context, error: Error) {
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

    /// Returns whether the table has stopped and the log has a request that failed since. All
    /// requests fail until the table is reopened; only the first gets a line.
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
                    // It could undo changes that were made since.
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

/// Returns the bytes of memory that a request takes while it waits: its payload, and arguments that
/// may be large.
fn payload_bytes(request: &Request, bytes: &[u8]) -> usize {
    let own = match request {
        Request::SetXattr { value, .. } => value.len(),
        Request::Symlink { target, .. } => target.len(),
        Request::Attach { chain } => chain.iter().map(Vec::len).sum::<usize>(),
        Request::Revoke { sentence, chain } => {
            sentence.len() + chain.iter().map(Vec::len).sum::<usize>()
        }
        Request::Access { chain, .. } => chain.iter().map(Vec::len).sum(),
        Request::SiteList { text } => text.len(),
        Request::Revoked { parts, .. } => parts.len(),
        Request::PassRevocation { sentence, .. } => sentence.len(),
        Request::Lookup { .. }
        | Request::Parent { .. }
        | Request::Find { .. }
        | Request::GetAttr { .. }
        | Request::SetAttr { .. }
        | Request::Create { .. }
        | Request::CreateUnnamed { .. }
        | Request::MakeDir { .. }
        | Request::MakeNode { .. }
        | Request::ReadLink { .. }
        | Request::Link { .. }
        | Request::Unlink { .. }
        | Request::RemoveDir { .. }
        | Request::Rename { .. }
        | Request::Open { .. }
        | Request::Reopen { .. }
        | Request::Flush { .. }
        | Request::Release { .. }
        | Request::GetLock { .. }
        | Request::SetLock { .. }
        | Request::ReclaimLock { .. }
        | Request::Fsync { .. }
        | Request::FsyncAt { .. }
        | Request::FsyncDir { .. }
        | Request::Read { .. }
        | Request::Write { .. }
        | Request::List { .. }
        | Request::GetXattr { .. }
        | Request::ListXattr { .. }
        | Request::RemoveXattr { .. }
        | Request::StatFs
        | Request::Allocate { .. }
        | Request::Seek { .. }
        | Request::CopyRange { .. }
        | Request::Search { .. }
        | Request::Tags { .. }
        | Request::Issue { .. }
        | Request::Audited { .. }
        | Request::Step { .. }
        | Request::AddDir { .. }
        | Request::DropDir { .. }
        | Request::RemoveNamedDir { .. }
        | Request::SiteAddress { .. }
        | Request::LeaveSite
        | Request::Charter { .. }
        | Request::CharterChanged
        | Request::SetBytes { .. }
        | Request::GiveBytes { .. }
        | Request::DropBytes { .. }
        | Request::Clock
        | Request::Hashes { .. }
        | Request::RenewToken { .. }
        | Request::KeepToken { .. }
        | Request::Servers => 0,
    };
    own + bytes.len()
}
