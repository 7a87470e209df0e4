//! What requests and their answers mean for the file locks of the client's programs.

use std::collections::VecDeque;

use pelago_proto::locks::{GivenUp, OwnedLock};
use pelago_wire::codec::ReplyStamp;
use pelago_wire::{Code, Error, FileLock, InodeId, OpenId, Reply, Request};

use super::calls::{Answered, Call, State, UnderWay};
use super::role::{OpenUse, Role};

impl State {
    /// Notes what a request gives up, before it is sent.
    pub(super) fn note_asked(&mut self, number: u64, role: Role, waits: bool) {
        match role {
            Role::Locks(asked) | Role::LocksAgain(asked, _) => {
                if let Some(ino) = self.file_of(asked.open) {
                    self.locks.asks(ino, &asked);
                    self.locks.sent(number, ino, &asked, waits);
                }
            }
            Role::EndsLocks(open, owner) => {
                if let Some(ino) = self.file_of(open) {
                    self.locks.closes(ino, owner);
                }
            }
            Role::Ends(open) => self.locks.releases(open),
            _ => {}
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
                let Some(ino) = self.file_of(asked.open) else { return };
                if call.done.is_some() {
                    return self.note_grant(ino, asked, given_up);
                }
                let OwnedLock { open, owner, .. } = asked;
                for lock in self.locks.undoes(ino, &asked) {
                    self.ask_for_itself(&Request::SetLock { open, owner, lock, wait: false });
                }
            }
            // Another one has it: it was given up.
            (Role::LocksAgain(asked, given_up), Err(Error { code: Code::LockHeld, .. })) => {
                if let Some(ino) = self.file_of(asked.open) {
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
                self.ask_for_itself_as(&request, Some(role));
            }
        }
    }

    /// Returns whether a request uses bytes or locks through an open through which a lock was set
    /// that is lost. It fails until the open ends: its program believes that it has the lock.
    pub(super) fn has_lost_lock(&self, opens: &OpenUse) -> bool {
        opens.is_guarded && opens.subjects.each_open().any(|open| self.locks.is_lost(open))
    }

    /// Fails what programs have asked for under locks that were lost since the last call. What the
    /// server may not have carried out yet is cancelled with the next repetition.
    pub(super) fn fail_lost(&mut self) -> Vec<Answered> {
        let lost = self.locks.newly_lost();
        if lost == 0 {
            return Vec::new();
        }
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

    fn file_of(&self, open: OpenId) -> Option<InodeId> {
        self.opens.file_of(open).map(|node| node.ino)
    }
}
