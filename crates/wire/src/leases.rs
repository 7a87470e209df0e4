//! What of an answer may be kept.

use crate::attr::Attr;
use crate::request::Request;
use crate::write_era::WriteEra;

/// What of an answer may be kept until it is recalled, or until the time of the leases is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leases {
    /// All attributes in the reply that are not volatile, and what else it says of the node of the
    /// request: the target of a link, extended attributes or that there is none, the parent of a
    /// directory.
    pub node: bool,
    /// What the name in the request leads to, or that it does not exist; all names in a listing.
    pub names: bool,
    /// The attributes that come with the answer, of what the request has changed.
    pub changed: bool,
    /// The names of the directory that the request has made: there are none.
    pub made: bool,
    /// The bytes of the file that the request has opened for writing: no other session reads or
    /// writes them, nor sees its attributes, before the lease is recalled. Bytes that are kept back
    /// under it are sent with its era.
    pub bytes: Option<WriteEra>,
}

/// What an answer brings besides its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Granted {
    /// What may be kept. It must not be if it was changed or recalled since the request was sent.
    pub leases: Leases,
    /// The attributes of the directory in which the request has changed a name, or of the file that
    /// it has closed, if the server tells them.
    pub changed: Option<Attr>,
    /// The request may still be carried out although it was answered with an error: its caller does
    /// not wait any more. Not sent: the client's own end of the connection says so.
    pub may_be_done: bool,
}

impl Request {
    /// Returns the era of the lease under which a client has kept back the bytes of a write.
    #[must_use]
    pub const fn kept_back(&self) -> Option<WriteEra> {
        match self {
            Self::Write { flags, .. } => flags.behind,
            _ => None,
        }
    }
}
