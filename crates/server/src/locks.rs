//! The file locks of all sessions: the locked state of [`LockTable`], and the requests that wait.
//!
//! A request that waits holds no thread, only its callback. The request that frees a lock sends the
//! replies of those that get it, after it has released the mutex of this module.
//!
//! The kernel closes a file only after its lock requests are over. Another client may send both at
//! once: [`Locks`] checks the open again after each lock that was set, so that no lock outlives the
//! open with which it ends.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use pelago_data::{OpenFiles, OpenKey};
use pelago_proto::locks::{Ended, Holder, LockCounts, LockRequest, LockTable, SetLock, WaiterId};
use pelago_wire::{
    Code, Context, Error, FileLock, LockKind, LockMode, LockOwner, OpenId, Reply, RequestId,
    SessionId,
};

use crate::completion::Completion;

/// The file locks of a server.
pub(crate) struct Locks {
    opens: Arc<OpenFiles>,
    /// A leaf lock.
    state: Mutex<State>,
    /// Number of locks and requests that wait. While it is 0, a close has nothing to end here.
    used: AtomicUsize,
}

#[derive(Default)]
struct State {
    table: LockTable,
    waiting: BTreeMap<WaiterId, Completion>,
    stopped: bool,
}

/// Replies to send after the mutex is released.
type Replies = Vec<(Completion, Result<Reply, Error>)>;

impl Locks {
    /// Returns a table without locks, of files that are open in `opens`.
    pub(crate) fn new(opens: Arc<OpenFiles>) -> Self {
        Self { opens, state: Mutex::default(), used: AtomicUsize::new(0) }
    }

    /// Counts the locks and the requests that wait.
    pub(crate) fn counts(&self) -> LockCounts {
        self.state.lock().table.counts()
    }

    /// Returns the lock that conflicts with this one and begins first.
    ///
    /// # Errors
    /// `BadOpen`; `Invalid` for an empty or too long range, or the mode `Unlock`.
    pub(crate) fn get(
        &self,
        context: &Context,
        open: OpenId,
        owner: LockOwner,
        lock: &FileLock,
    ) -> Result<Option<FileLock>, Error> {
        let (ino, _) = self.opens.opened(OpenKey::of(context, open))?;
        if lock.mode == LockMode::Unlock || !lock.range().is_valid() {
            return Err(Code::Invalid.into());
        }
        Ok(self.state.lock().table.test(ino, holder(context, owner), lock))
    }

    /// Sets or removes a lock. Returns the request if it has to wait; then nothing has changed.
    ///
    /// # Errors
    /// `BadOpen`, also if the open does not permit the mode of an `fcntl` lock; those of
    /// [`LockTable::set`].
    pub(crate) fn set(
        &self,
        context: &Context,
        open: OpenId,
        owner: LockOwner,
        lock: FileLock,
        wait: bool,
    ) -> Result<Option<LockRequest>, Error> {
        let (ino, flags) = self.opens.opened(OpenKey::of(context, open))?;
        let permitted = match lock.mode {
            LockMode::Read => flags.read,
            LockMode::Write => flags.write,
            LockMode::Unlock => true,
        };
        if lock.kind != LockKind::Flock && !permitted {
            return Err(Code::BadOpen.into());
        }
        let request = LockRequest { ino, open, holder: holder(context, owner), lock };
        let mut state = self.state.lock();
        if wait && state.table.would_wait(&request) {
            return Ok(Some(request));
        }
        let (result, granted) = state.table.set(&request);
        let replies = state.take_granted(granted);
        self.leave(state, replies);
        result?;
        self.check_open(OpenKey::of(context, open))?;
        Ok(None)
    }

    /// Sets a lock that its owner had in the last run of the server, whatever the open permits: the
    /// range may have been locked through another open.
    ///
    /// # Errors
    /// `BadOpen`; those of [`LockTable::set`].
    pub(crate) fn reclaim(
        &self,
        context: &Context,
        open: OpenId,
        owner: LockOwner,
        lock: FileLock,
    ) -> Result<(), Error> {
        let (ino, _) = self.opens.opened(OpenKey::of(context, open))?;
        let request = LockRequest { ino, open, holder: holder(context, owner), lock };
        let mut state = self.state.lock();
        let (result, granted) = state.table.set(&request);
        let replies = state.take_granted(granted);
        self.leave(state, replies);
        result?;
        self.check_open(OpenKey::of(context, open))
    }

    /// Sets a lock, and replies when it is set. [`Locks::cancel`] finds the request by its number.
    pub(crate) fn set_or_wait(&self, request: &LockRequest, number: RequestId, done: Completion) {
        let mut state = self.state.lock();
        if state.stopped {
            drop(state);
            return done.reply(Err(Code::Unavailable.into()));
        }
        let (result, granted) = state.table.set_or_wait(request, number);
        let mut replies = state.take_granted(granted);
        match result {
            Ok(SetLock::Waiting(id)) => drop(state.waiting.insert(id, done)),
            Ok(SetLock::Granted) => replies.push((done, Ok(Reply::Done))),
            Err(code) => replies.push((done, Err(code.into()))),
        }
        self.leave(state, replies);
        // If the open has ended meanwhile, this ends the lock, or fails the request that waits.
        let open = OpenKey { session: request.holder.session, open: request.open };
        let _ended = self.check_open(open);
    }

    /// Ends the `fcntl` locks of a process on the file of an open.
    pub(crate) fn drop_process(&self, context: &Context, open: OpenId, owner: LockOwner) {
        if self.is_unused() {
            return;
        }
        let Ok((ino, _)) = self.opens.opened(OpenKey::of(context, open)) else { return };
        let mut state = self.state.lock();
        let granted = state.table.drop_owner(ino, holder(context, owner), LockKind::Posix);
        let replies = state.take_granted(granted);
        self.leave(state, replies);
    }

    /// Ends the locks that end with an open, after its release.
    pub(crate) fn drop_open(&self, open: OpenKey) {
        if !self.is_unused() {
            self.end(|table| table.drop_open(open.session, open.open));
        }
    }

    /// Ends the wait of all requests of a session, which fail with `Interrupted`.
    pub(crate) fn cancel_session(&self, session: SessionId) {
        self.end(|table| table.cancel_session(session));
    }

    /// Ends the locks of a session. Its requests that wait fail with `Interrupted`.
    pub(crate) fn drop_session(&self, session: SessionId) {
        self.end(|table| table.drop_session(session));
    }

    /// Ends the wait of a request, which fails with `Interrupted`, unless it has its lock.
    pub(crate) fn cancel(&self, session: SessionId, number: RequestId) {
        if self.is_unused() {
            return;
        }
        let mut state = self.state.lock();
        let cancelled = state.table.cancel(session, number).into_iter().collect();
        let replies = state.take(cancelled, || Err(Code::Interrupted.into()));
        self.leave(state, replies);
    }

    /// Stops: requests that wait, and later ones that would, get `Unavailable`.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        let waiting = mem::take(&mut state.waiting);
        let replies =
            waiting.into_values().map(|done| (done, Err(Code::Unavailable.into()))).collect();
        self.leave(state, replies);
    }

    fn is_unused(&self) -> bool {
        self.used.load(Ordering::Acquire) == 0
    }

    /// Checks that an open has not ended; if it has, ends the locks that were set through it.
    fn check_open(&self, open: OpenKey) -> Result<(), Error> {
        let result = self.opens.opened(open);
        if result.is_err() {
            self.drop_open(open);
        }
        result.map(|_| ())
    }

    fn end(&self, change: impl FnOnce(&mut LockTable) -> Ended) {
        let mut state = self.state.lock();
        let Ended { granted, cancelled } = change(&mut state.table);
        let mut replies = state.take(cancelled, || Err(Code::Interrupted.into()));
        replies.extend(state.take_granted(granted));
        self.leave(state, replies);
    }

    /// Releases the mutex, then sends replies.
    fn leave(&self, state: parking_lot::MutexGuard<'_, State>, replies: Replies) {
        let LockCounts { locks, waiters } = state.table.counts();
        self.used.store(locks + waiters, Ordering::Release);
        drop(state);
        for (done, result) in replies {
            done.reply(result);
        }
    }
}

impl State {
    fn take_granted(&mut self, granted: Vec<WaiterId>) -> Replies {
        self.take(granted, || Ok(Reply::Done))
    }

    /// Takes the requests that wait no longer, each with its result. After a stop there are none.
    fn take(&mut self, ids: Vec<WaiterId>, result: fn() -> Result<Reply, Error>) -> Replies {
        let taken = ids.into_iter().filter_map(|id| self.waiting.remove(&id));
        taken.map(|done| (done, result())).collect()
    }
}

const fn holder(context: &Context, owner: LockOwner) -> Holder {
    Holder { session: context.session, owner }
}
