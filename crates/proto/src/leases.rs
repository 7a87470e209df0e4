//! Leases: what a session may keep of what it was answered, and until when.
//!
//! A *lease* lets a session use attributes, or what the names of a directory lead to, without
//! asking, until that is recalled or the session's time is over. It rides on the answer to a
//! request; no request is made for one. What changes something is *announced* first: every other
//! session that has a lease on it is sent a *recall*. The change is carried out once each of them
//! has dropped what the recall names, or its time is over, and then *ends*.
//!
//! Answers and recalls overtake each other, and nothing numbers the leases (decision 17):
//!
//! - The server reads first and grants afterwards: only if no change of it was announced or has
//!   ended since a moment before it was read, and none is under way, except by the session itself.
//! - The client drops what is answered to a request that was sent before a recall, or while it
//!   changed the same itself.
//!
//! A recall of a node ends the lease on it. A recall of a name does not end the lease on the names
//! of its directory: the session keeps what it knows of the others.
//!
//! A lease on the *bytes* of a file lets a session write them later. It is recalled with the node,
//! also before others only look: see `writers`.
//!
//! [`Grantor`] is the server's end (Gray and Cheriton, Leases, SOSP 1989). It has no clock: a
//! driver says whose time is over.

use pelago_wire::{InodeId, Touched};

pub use grantor::{Announced, Grantor, Recall};

mod grantor;
mod recency;
#[cfg(test)]
mod tests;
mod writer;
mod writers;

/// What a lease is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leased {
    /// The attributes of an inode.
    Node(InodeId),
    /// The names of a directory, and what each leads to.
    Names(InodeId),
}

/// Names a change that was announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeId(u64);

impl Leased {
    /// Returns the lease that a change of this recalls. The bytes of a file have none.
    #[must_use]
    pub const fn of(touched: &Touched) -> Option<Self> {
        match touched {
            Touched::Node(ino) => Some(Self::Node(*ino)),
            Touched::Name { dir, .. } => Some(Self::Names(*dir)),
            Touched::Bytes(_) => None,
        }
    }
}
