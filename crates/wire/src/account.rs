//! Accounts: the memory of a server that a request of each kind takes, and the share that has it.
//!
//! They are columns in the table of requests ([`Operation::account`]).
//!
//! From the moment a request is read until its answer has left, a server holds the request's body
//! and bulk, and room for the answer. These bytes are in the share of its session
//! ([`Welcome::bulk`]), and the shares of all sessions of one peer are in [`limits::PEER_BYTES`].
//! Server and client count alike, so that a server stops reading only from a client that has sent
//! more than it may. What stays in memory after the answer has limits of its own ([`Lasting`]).
//!
//! [`Welcome::bulk`]: crate::handshake::Welcome::bulk
//! [`Operation::account`]: crate::Operation::account

use crate::limits;
use crate::request::Request;

/// The memory of a server that a request of one kind takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// Bytes of the longest body.
    pub body: usize,
    /// Bytes of the longest bulk.
    pub bulk: usize,
    /// Bytes of the longest answer, its bulk included.
    pub answer: usize,
    /// The things that stay in memory after the answer.
    pub leaves: &'static [Lasting],
}

/// A thing that stays in the memory of a server when a request is answered, or waits for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    /// The answer, until the client has said that it has it and that it is safe.
    Answer,
    /// An open file.
    Open,
    /// Ranges of a file that are locked.
    Lock,
    /// A request that waits for a lock. Others must get past it, so that it is not in the bytes of
    /// its session.
    LockWaiter,
    /// Leases on the answer.
    Leases,
}

/// The owner of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Each session has as much.
    Session,
    /// All sessions of one key, or of one user of the server's machine, have as much together.
    Peer,
}

impl Lasting {
    /// Returns the limit of their number, and the owner of that share.
    #[must_use]
    pub const fn limit(self) -> (usize, Share) {
        match self {
            Self::Answer => (limits::SESSION_MUTATIONS as usize, Share::Session),
            Self::Open => (limits::PEER_OPEN_FILES, Share::Peer),
            Self::Lock => (limits::LOCKS, Share::Session),
            Self::LockWaiter => (limits::PEER_LOCK_WAITERS, Share::Peer),
            Self::Leases => (limits::SESSION_LEASES, Share::Session),
        }
    }
}

impl Request {
    /// Returns the bytes that are in the share of a session from the moment this request is read
    /// until its answer has left: `body` and `bulk` are its sizes.
    #[must_use]
    pub const fn held_bytes(&self, body: usize, bulk: usize) -> usize {
        limits::REQUEST_BYTES + body + bulk + self.answer_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Cookie, Handle, OpenId};
    use crate::operation::Operation;

    #[test]
    fn no_request_takes_more_than_the_least_share_and_a_frame() {
        for operation in Operation::ALL {
            let Account { body, bulk, answer, .. } = operation.account();
            let most = limits::FRAME_BODY_BYTES + limits::FRAME_BULK_BYTES;
            assert!(body + bulk <= most && answer <= most, "{}", operation.name());
        }
    }

    #[test]
    fn what_a_request_asks_for_is_in_its_account() {
        let list = |entries, attributes| Request::List {
            dir: Handle::ROOT,
            after: Cookie::START,
            behind: None,
            entries,
            attributes,
        };
        let longest = Operation::List.account().answer;
        assert_eq!(list(u32::MAX, true).answer_bytes(), longest);
        assert!(list(1, true).answer_bytes() < 1024 && list(1, false).answer_bytes() < 512);
        let read = |size| Request::Read { open: OpenId(1), offset: 0, size };
        let account = Operation::Read.account();
        assert_eq!(read(u32::MAX).answer_bytes(), account.answer);
        assert_eq!(read(10).answer_bytes(), account.answer - limits::IO_BYTES + 10);
        assert!(Request::ReadLink { node: Handle::ROOT }.answer_bytes() < 5000);
    }

    #[test]
    fn a_listing_of_the_root_is_not_more_than_it_says() {
        let read = Request::Read { open: OpenId(1), offset: 0, size: 4096 };
        assert_eq!(read.held_bytes(50, 0), limits::REQUEST_BYTES + 50 + read.answer_bytes());
    }
}
