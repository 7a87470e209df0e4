//! Leases: the parts of an answer that a client may cache.

use crate::attr::Attr;
use crate::request::Request;
use crate::write_era::WriteEra;

/// The parts of an answer that a client may cache until they are recalled, or until the time of the
/// leases is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leases {
    /// All attributes in the reply that are not volatile, and its other facts of the node of the
    /// request: the target of a link, extended attributes or their absence, the parent of a
    /// directory.
    pub node: bool,
    /// The target of the name in the request, or its absence; all names in a listing.
    pub names: bool,
    /// The attributes in [`Granted::changed`].
    pub changed: bool,
    /// The emptiness of the directory that the request has made.
    pub made: bool,
    /// The bytes of the file that the request has opened for writing: no other session reads or
    /// writes them, nor sees its attributes, before the lease is recalled. The client may buffer
    /// writes, and sends them with this era.
    pub bytes: Option<WriteEra>,
}

/// The parts of an answer besides its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Granted {
    /// The leases. A client must not cache what was changed or recalled since it sent the request.
    pub leases: Leases,
    /// The attributes of the directory in which the request has changed a name, or of the file that
    /// it has closed, if the server sends them.
    pub changed: Option<Attr>,
    /// The request may still be carried out although it was answered with an error: its caller does
    /// not wait any more. Not sent: the client's own end of the connection sets it.
    pub may_be_done: bool,
}

impl Request {
    /// Returns the era of the lease under which a client has buffered a write.
    #[must_use]
    pub const fn kept_back(&self) -> Option<WriteEra> {
        // Only a write has bytes to buffer.
        let Self::Write { flags, .. } = self else { return None };
        flags.behind
    }
}
