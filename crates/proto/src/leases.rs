//! Leases: the right of a session to cache answers for a time.
//!
//! A *lease* lets a session use attributes, or the targets of the names of a directory, without a
//! request, until they are recalled or the session's time is over. It comes with the answer to a
//! request; no request is made for one. A change is *announced* first: each other session with a
//! lease on a thing that it touches is sent a *recall*. The change is carried out once each of them
//! has dropped what the recall names, or its time is over, and then *ends*.
//!
//! Answers and recalls overtake each other, and nothing numbers the leases (decision 17):
//!
//! - The server reads first and grants after that: only if no change of the thing was announced or
//!   has ended since a moment before it was read, and none is under way, except by the session
//!   itself.
//! - The client does not cache an answer about a thing if it has sent the request before a recall
//!   of the thing, or while a change of its own was under way.
//!
//! A recall of a node ends the lease on it. A recall of a name does not end the lease on the names
//! of its directory: the other names stay cached.
//!
//! A lease on the *bytes* of a file lets a session buffer writes. It is recalled with the node,
//! also before another session only reads the file or its attributes: see `writers`.
//!
//! [`Grantor`] is the server's end (Gray and Cheriton, Leases, SOSP 1989). It has no clock: a
//! driver says when the time of a session is over.

use pelago_wire::{InodeId, Touched};

pub use grantor::{Announced, Grantor, Recall};

mod granted;
mod grantor;
mod recency;
#[cfg(test)]
mod tests;
mod writer;
mod writers;

/// The thing that a lease is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leased {
    /// The attributes of an inode.
    Node(InodeId),
    /// The names of a directory, with their targets.
    Names(InodeId),
}

/// The id of an announced change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeId(u64);

impl Leased {
    /// Returns the lease that a change of this thing recalls. The bytes of a file have none of
    /// their own.
    #[must_use]
    pub const fn of(touched: &Touched) -> Option<Self> {
        match touched {
            Touched::Node(ino) => Some(Self::Node(*ino)),
            Touched::Name { dir, .. } => Some(Self::Names(*dir)),
            Touched::Bytes(_) => None,
        }
    }
}
