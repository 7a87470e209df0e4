//! Read leases: what a session may keep of what it was answered, and until when.
//!
//! A *lease* lets a session use attributes, or the names of a directory, without asking, until it
//! is recalled or the session's time is over. It rides on the answer to a request; no request is
//! made for one. Who changes something *announces* the change first: from then on nothing is
//! granted on it, and every other session that has a lease on it is sent a *recall*. The change is
//! carried out once each of them has released the lease, or its time is over.
//!
//! Leases of one session are numbered in the order in which they are granted. Answers, recalls and
//! releases may overtake each other; the number says which grant is meant:
//!
//! - A recall or a release with a number ends the grants on its subject up to that number.
//! - A recall may arrive before the grant that it ends. It is kept until that has arrived, and the
//!   grant is of no use then.
//! - The author of a change is not sent a recall: the answer to its change says up to which number
//!   its leases on what it touched have ended. So an older answer that arrives later grants
//!   nothing, and brings no older attributes back.
//!
//! [`Grantor`] is the server's end, [`Holder`] the client's (Gray and Cheriton, Leases, SOSP 1989;
//! numbers of grants as in NFS delegations, RFC 8881 10.2). Neither has a clock: a driver says
//! whose time is over.

use pelago_wire::InodeId;

pub use grantor::{ChangeId, Grantor, Recall};
pub use holder::Holder;

mod grantor;
mod holder;
#[cfg(test)]
mod tests;

/// What a lease is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leased {
    /// The attributes of an inode.
    Node(InodeId),
    /// The names of a directory, and what each leads to.
    Names(InodeId),
}

/// The number of a grant: counts those of a session, from 1.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantNumber(pub u64);
