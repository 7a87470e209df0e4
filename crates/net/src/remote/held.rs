//! What requests and their answers mean for the file locks of the client's programs.

use pelago_wire::{Error, InodeId, OpenId, Reply};

use super::calls::State;
use super::role::Role;

impl State {
    /// Notes what a request gives up, before it is sent.
    pub(super) fn note_asked(&mut self, role: Role) {
        match role {
            Role::Locks(asked) => {
                if let Some(ino) = self.file_of(asked.open) {
                    self.locks.asks(ino, &asked);
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

    /// Notes what an answer means for the locks.
    pub(super) fn note_lock_answer(&mut self, role: Role, result: &Result<Reply, Error>) {
        match (role, result) {
            (Role::Locks(asked), Ok(_)) => {
                if let Some(ino) = self.file_of(asked.open) {
                    self.locks.granted(ino, &asked);
                }
            }
            (Role::ReclaimsLock(ino, asked), result) => {
                let result = result.as_ref().map(|_| ()).map_err(|error| error.code);
                self.locks.reclaimed(ino, &asked, result);
            }
            _ => {}
        }
    }

    fn file_of(&self, open: OpenId) -> Option<InodeId> {
        self.opens.file_of(open).map(|node| node.ino)
    }
}
