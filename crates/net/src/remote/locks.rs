//! What requests and their answers mean for the file locks of the client's programs.

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
    /// Notes what a request gives up, before it is sent. Returns whether its caller must be told
    /// that this was lost, whatever the answer is.
    pub(super) fn note_asked(&mut self, number: u64, role: Role, waits: bool) -> bool {
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
            | Role::AsksServers => false,
        }
    }

    /// Returns whether an answer grants a lock to a program so late that the session may have ended
    /// since, and others have the lock: this process may have been stopped, or the connection was.
    /// The session lives for a term after the server has heard the client.
    pub(super) fn grants_late(&self, number: u64, result: &Result<Reply, Error>) -> bool {
        let Ok(Reply::Done) = result else { return false };
        let Some(UnderWay { asked, done: Some(_), opens, .. }) = self.under_way.get(&number) else {
            return false;
        };
        let Role::Locks(OwnedLock { lock, .. }) = opens.role else { return false };
        let until = self.heard_by_server.max(*asked) + self.term() * 63 / 64;
        lock.mode != LockMode::Unlock && boot_time() > until
    }

    /// Asks for a lock once more, which the server has granted. If the session has ended, it is
    /// asked for in the next one.
    pub(super) fn lock_again(&mut self, number: u64) {
        self.locks.asked_again(number);
        if let Some(call) = self.under_way.get_mut(&number) {
            call.asked = boot_time();
            self.send(number);
        }
    }

    /// Notes what an answer means for the locks. A lock that was granted although its program was
    /// told that it has none is given back.
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
            // Another one has it: it was given up.
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

    /// Notes that a lock is held, without what its owner has given up since it was asked for. If
    /// the order of the two is unknown, it is asked for again: then it is held, as if it had been
    /// given up first, or another one has it. To its program, which has asked for both at one time,
    /// either is right.
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

    /// Returns whether a request uses bytes or locks through an open through which a lock was set
    /// that is lost. It fails until the open ends: its program believes that it has the lock.
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

    /// Fails what programs have asked for under locks that were lost since the last call. What the
    /// server may not have carried out yet is cancelled with the next repetition.
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
                // What is lost is not held, whatever else was asked for.
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
