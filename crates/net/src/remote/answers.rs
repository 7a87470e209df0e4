//! The effect of replies on the open files of a session.

use pelago_wire::{Code, Error, Reply};

use super::calls::{State, UnderWay};
use super::guest_chains::log_answer;
use super::role::Role;

impl State {
    /// Records the effect of a reply on open files, locks and the list of servers. Returns the
    /// result for the caller.
    pub(super) fn note_answer(
        &mut self,
        number: u64,
        call: &UnderWay,
        result: Result<Reply, Error>,
    ) -> Result<Reply, Error> {
        let opens = call.opens;
        self.note_lock_answer(number, call, &result);
        if let Role::ListsServers = opens.role {
            self.record_servers(&result);
        }
        if let Role::Attaches(index) = opens.role {
            log_answer(index, &result);
        }
        if let Role::Reopens(open) = opens.role {
            let reopened = result.as_ref().map(|_| ()).map_err(|error| error.code);
            if self.is_made_later(open, reopened) {
                self.opens.defer(open);
            } else if let Some(node) = self.opens.reopened(open, reopened) {
                let why = reopened.err().map(Code::says);
                tracing::warn!(inode = %node.ino, why, "an open file is lost");
            }
        }
        if let Some((open, node, flags)) = opens.made(&result) {
            if !self.opens.opened(open, node, flags) {
                tracing::warn!(inode = %node.ino, "too much is open to be opened again");
            }
            if call.done.is_none() {
                self.release_unwanted(open);
            }
        }
        let lost = |open| self.opens.lost(open);
        let result = match result {
            Err(Error { code: Code::BadOpen, .. }) => {
                match opens.subjects.each_open().find_map(lost) {
                    // The server has released it long ago.
                    Some(_) if matches!(opens.role, Role::Ends(_)) => Ok(Reply::Done),
                    Some(code) => Err(code.into()),
                    None => result,
                }
            }
            result => result,
        };
        if let Some(open) = opens.ended(&result) {
            self.opens.ended(open);
        }
        result
    }
}

/// Returns whether an error sends the client to another server.
pub(super) fn sends_away(result: &Result<Reply, Error>) -> bool {
    matches!(result, Err(Error { code: Code::NotOwner }))
}
