//! The requests that a guest may make. A guest is a session whose client has presented a chain of
//! credentials.

use crate::flags::OpenFlags;
use crate::id::{Handle, OpenId};

/// The rule for a request of a guest. A node is *granted* if the guest has any right to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForGuest {
    /// It is carried out if this node is granted.
    Node(Handle),
    /// It is carried out if the guest has the right to read this node.
    Read(Handle),
    /// It is carried out if this directory is granted. A directory whose parent is not granted is
    /// its own parent.
    Parent(Handle),
    /// It is carried out if the guest has the right to read the file of this open.
    ReadOpen(OpenId),
    /// It is carried out: it ends what the session itself has open.
    Own,
    /// It is answered as done, without being carried out: a guest has written nothing that could be
    /// committed, and must not take the report of an error that is for another session.
    Committed,
    /// As [`ForGuest::Committed`], if this directory is granted.
    CommittedDir(Handle),
    /// It is carried out: it reports the space of the volume.
    Space,
    /// It is answered as for a node without this extended attribute, if this node is granted. A
    /// kernel requests access lists on its own account, and would take a refusal for one of the
    /// whole path.
    NoXattr(Handle),
    /// It is answered as for a node without extended attributes, if this node is granted.
    NoXattrs(Handle),
    /// It is carried out: it takes back what the guest itself has granted.
    Revoke,
    /// It is refused.
    Never,
}

impl ForGuest {
    /// Returns the rule for a request to open a file: a guest only reads.
    pub(crate) const fn opening(node: &Handle, flags: OpenFlags) -> Self {
        match flags.write || flags.truncate {
            true => Self::Never,
            false => Self::Read(*node),
        }
    }
}
