//! Requests for file locks, and the closes that end them.

use pelago_data::OpError;
use pelago_wire::{Code, FileLock, LockMode, LockOwner, OpenId, Reply};

use super::execute::{Executor, done};
use super::{OpResult, Outcome};

impl Executor<'_> {
    pub(super) fn get_lock(&self, open: OpenId, owner: LockOwner, lock: &FileLock) -> OpResult {
        Ok(Reply::Lock(self.locks.get(self.context, open, owner, lock)?).into())
    }

    pub(super) fn set_lock(
        &self,
        open: OpenId,
        owner: LockOwner,
        lock: FileLock,
        wait: bool,
    ) -> OpResult {
        match self.locks.set(self.context, open, owner, lock, wait)? {
            None => Ok(Reply::Done.into()),
            Some(waiting) => Ok(Outcome::WhenLocked(waiting, self.context.request)),
        }
    }

    /// Sets a lock that a session had in the last run of the server. It is refused when another
    /// session can have had the lock since, because that may have changed what the lock guards.
    pub(super) fn reclaim_lock(&self, open: OpenId, owner: LockOwner, lock: FileLock) -> OpResult {
        let grace = &self.parts.grace;
        if lock.mode == LockMode::Unlock {
            return Err(Code::Invalid.into());
        }
        if !grace.waits_for(self.context.session) {
            return Err(Code::LockHeld.into());
        }
        self.locks.reclaim(self.context, open, owner, lock)?;
        if !grace.waits_for(self.context.session) {
            // The time for that has ended meanwhile, perhaps before the lock was set.
            let unlock = FileLock { mode: LockMode::Unlock, ..lock };
            self.locks.reclaim(self.context, open, owner, unlock)?;
            return Err(Code::LockHeld.into());
        }
        Ok(Reply::Done.into())
    }

    /// Commits the bytes of an open, then ends the locks of its process: the next holder sees what
    /// was written under the lock.
    pub(super) fn flush(&self, open: OpenId, owner: Option<LockOwner>) -> OpResult {
        let flushed = self.parts.opens.flush(self.key(open), self.may_block);
        if flushed != Err(OpError::WouldBlock)
            && let Some(owner) = owner
        {
            self.locks.drop_process(self.context, open, owner);
        }
        done(flushed)
    }

    pub(super) fn release(&self, open: OpenId) -> OpResult {
        let released = self.parts.opens.release(self.key(open), self.may_block);
        if released != Err(OpError::WouldBlock) {
            self.locks.drop_open(self.key(open));
        }
        done(released)
    }
}
