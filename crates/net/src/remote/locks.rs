//! The effect of requests and replies on the file locks of the client's programs.
//!
//! A program must never believe that it has a lock which another session has. So a grant that comes
//! late is requested again, and a program that has lost a lock gets errors until it closes the
//! file.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use pelago_proto::locks::{GivenUp, OwnedLock};
use pelago_wire::codec::ReplyStamp;
use pelago_wire::{Code, Error, FileLock, InodeId, LockMode, OpenId, Reply, Request};

use super::call::Call;
use super::calls::{Answered, State, UnderWay};
use super::role::{OpenUse, Role};
use crate::clock::boot_time;

impl State {
    /// Records the locks that a request gives up, before it is sent. Returns whether the caller
    /// must get an error in any case, because these locks were lost.
    pub(super) fn note_request(&mut self, number: u64, role: Role, waits: bool) -> bool {
        match role {
            Role::Locks(asked) | Role::LocksAgain(asked, _) => {
                if let Some(ino) = self.inode_of(asked.open) {
                    self.locks.sent(number, ino, &asked, waits);
                    self.locks.asks(ino, &asked);
                }
                false
            }
            Role::EndsLocks(open, owner) => {
                self.inode_of(open).is_some_and(|ino| self.locks.closes(ino, owner))
            }
            Role::Ends(open) => {
                self.locks.releases(open);
                false
            }
            Role::None
            | Role::Opens { .. }
            | Role::Reopens(_)
            | Role::ReclaimsLock(..)
            | Role::Attaches(_)
            | Role::ListsServers => false,
        }
    }

    /// Returns whether a reply grants a lock to a program so late that the session may have ended
    /// since, and another session has the lock: this process, or the connection, may have been held
    /// up. The session lives for a term after the server has heard the client.
    pub(super) fn grants_late(&self, number: u64, result: &Result<Reply, Error>) -> bool {
        let Ok(Reply::Done) = result else { return false };
        let Some(UnderWay { asked, done: Some(_), opens, .. }) = self.under_way.get(&number) else {
            return false;
        };
        let Role::Locks(OwnedLock { lock, .. }) = opens.role else { return false };
        let until = self.heard_by_server.max(*asked) + self.term() * 63 / 64;
        lock.mode != LockMode::Unlock && boot_time() > until
    }

    /// Requests a lock once more that the server has granted. If the session has ended, the lock is
    /// requested in the next one.
    pub(super) fn lock_again(&mut self, number: u64) {
        self.locks.asked_again(number);
        if let Some(call) = self.under_way.get_mut(&number) {
            call.asked = boot_time();
            self.send(number);
        }
    }

    /// Records the effect of a reply on the locks. A lock is given back if it was granted although
    /// its program has got an error.
    pub(super) fn note_lock_answer(
        &mut self,
        number: u64,
        call: &UnderWay,
        result: &Result<Reply, Error>,
    ) {
        let given_up = self.locks.over(number);
        match (call.opens.role, result) {
            (Role::Locks(asked) | Role::LocksAgain(asked, _), Ok(_)) => {
                let Some(ino) = self.inode_of(asked.open) else { return };
                if call.done.is_some() {
                    return self.note_grant(ino, asked, given_up);
                }
                let OwnedLock { open, owner, .. } = asked;
                for lock in self.locks.undoes(ino, &asked) {
                    self.submit_own(&Request::SetLock { open, owner, lock, wait: false });
                }
            }
            // Another owner has the lock: it was given up.
            (Role::LocksAgain(asked, given_up), Err(Error { code: Code::LockHeld, .. })) => {
                if let Some(ino) = self.inode_of(asked.open) {
                    self.locks.asks(ino, &OwnedLock { lock: given_up, ..asked });
                }
            }
            (Role::ReclaimsLock(ino, asked), result) => {
                let result = result.as_ref().map(|_| ()).map_err(|error| error.code);
                self.locks.reclaimed(ino, &asked, result);
            }
            _ => {}
        }
    }

    /// Records that a lock is held, without the parts that its owner has given up since the
    /// request. If the order of the two is unknown, the lock is requested again: then it is held,
    /// as if it had been given up first, or another owner has it. The program has requested both at
    /// one time, so that either is right.
    fn note_grant(&mut self, ino: InodeId, asked: OwnedLock, given_up: GivenUp) {
        self.locks.granted(ino, &asked);
        match given_up {
            GivenUp::Nothing => {}
            GivenUp::Since(locks) => {
                for lock in locks {
                    self.locks.asks(ino, &OwnedLock { lock, ..asked });
                }
            }
            GivenUp::Perhaps(given_up) => {
                let OwnedLock { open, owner, lock } = asked;
                let lock = FileLock { mode: lock.mode, ..given_up };
                let request = Request::SetLock { open, owner, lock, wait: false };
                let role = Role::LocksAgain(OwnedLock { lock, ..asked }, given_up);
                self.submit_own_as(&request, Some(role));
            }
        }
    }

    /// Returns whether a request uses bytes or locks through an open through which a lost lock was
    /// set. Such requests fail until the open ends: the program believes that it has the lock.
    pub(super) fn has_lost_lock(&self, opens: &OpenUse) -> bool {
        let is_lost = |open| self.locks.is_lost(open);
        let has_lost = |asked: &OwnedLock| {
            self.inode_of(asked.open).is_some_and(|ino| self.locks.has_lost(ino, asked))
        };
        match &opens.role {
            Role::Locks(asked) if has_lost(asked) => true,
            _ => opens.is_guarded && opens.subjects.each_open().any(is_lost),
        }
    }

    /// Fails the requests under locks that were lost since the last call. Mutations that the server
    /// may not have carried out yet are cancelled when requests are repeated next.
    pub(super) fn fail_lost(&mut self) -> Vec<Answered> {
        let lost = self.locks.newly_lost();
        if lost == 0 {
            return Vec::new();
        }
        self.lost_locks.store(true, Ordering::Release);
        let what = "file locks are lost: what they guard fails until it is closed";
        tracing::warn!(locks = lost, "{what}");
        let io = |done| (done, Err(Code::Io.into()));
        let mut answered = Vec::new();
        let under_way = self.under_way.iter().filter(|(_, call)| self.has_lost_lock(&call.opens));
        let numbers: Vec<u64> = under_way.map(|(number, _)| *number).collect();
        for number in numbers {
            let Some(call) = self.under_way.get_mut(&number) else { continue };
            answered.extend(call.done.take().map(io));
            if call.mutation == 0 {
                self.machine.answered(number, ReplyStamp::default());
                // A lost lock is not held, whatever the server grants.
                self.locks.over(number);
                if let Some(call) = self.under_way.remove(&number) {
                    self.forget_size(&call);
                }
            }
        }
        let backlog = std::mem::take(&mut self.backlog).into_iter();
        let is_lost = |call: &Call| self.has_lost_lock(&call.opens);
        let (failed, kept): (VecDeque<Call>, VecDeque<Call>) = backlog.partition(is_lost);
        self.backlog = kept;
        answered.extend(failed.into_iter().map(|call| io(call.done)));
        answered
    }

    fn inode_of(&self, open: OpenId) -> Option<InodeId> {
        self.opens.node(open).map(|node| node.ino)
    }
}
