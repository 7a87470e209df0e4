//! What requests and their answers mean for the file locks of the client's programs.

use std::collections::VecDeque;

use pelago_proto::locks::OwnedLock;
use pelago_wire::codec::ReplyStamp;
use pelago_wire::{Code, Error, InodeId, OpenId, Reply, Request};

use super::calls::{Answered, Call, State, UnderWay};
use super::role::{OpenUse, Role};

impl State {
    /// Notes what a request gives up, before it is sent.
    pub(super) fn note_asked(&mut self, role: Role) {
        match role {
            Role::Locks(asked) => {
                if let Some(ino) = self.inode_of(asked.open) {
                    self.locks.asks(ino, &asked);
                }
            }
            Role::EndsLocks(open, owner) => {
                if let Some(ino) = self.inode_of(open) {
                    self.locks.closes(ino, owner);
                }
            }
            Role::Ends(open) => self.locks.releases(open),
            _ => {}
        }
    }

    /// Notes what an answer means for the locks. A lock that was granted although its program was
    /// told that it has none is given back.
    pub(super) fn note_lock_answer(&mut self, call: &UnderWay, result: &Result<Reply, Error>) {
        match (call.opens.role, result) {
            (Role::Locks(asked), Ok(_)) => {
                let Some(ino) = self.inode_of(asked.open) else { return };
                if call.done.is_some() {
                    return self.locks.granted(ino, &asked);
                }
                let OwnedLock { open, owner, .. } = asked;
                for lock in self.locks.undoes(ino, &asked) {
                    self.ask_for_itself(&Request::SetLock { open, owner, lock, wait: false });
                }
            }
            (Role::ReclaimsLock(ino, asked), result) => {
                let result = result.as_ref().map(|_| ()).map_err(|error| error.code);
                self.locks.reclaimed(ino, &asked, result);
            }
            _ => {}
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
