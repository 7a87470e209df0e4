//! What a guest may ask for: a session whose client has shown a credential for one directory.

use crate::flags::OpenFlags;
use crate::id::{Handle, OpenId};

/// What a server does with a request of a guest. A node is *granted* if it is the directory of the
/// guest's credential, or below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForGuest {
    /// It is carried out if this node is granted.
    Node(Handle),
    /// It is carried out if this directory is granted. The directory of the credential is above
    /// itself.
    Parent(Handle),
    /// It is carried out if the file of this open is granted.
    Open(OpenId),
    /// It is carried out: it ends what the session itself has open.
    Own,
    /// The answer is that it is done: a guest has written nothing that could be committed, and an
    /// error that others are to hear is not for it.
    Committed,
    /// If this directory is granted, the answer is that it is done, as for
    /// [`ForGuest::Committed`].
    CommittedDir(Handle),
    /// It is carried out: it tells how much space there is.
    Space,
    /// If this node is granted, the answer is that it has no such extended attribute. A kernel asks
    /// for access lists on its own account, and would take a refusal for one of the whole path.
    NoXattr(Handle),
    /// If this node is granted, the answer is that it has no extended attributes.
    NoXattrs(Handle),
    /// It is refused.
    Never,
}

impl ForGuest {
    /// Returns what is done with a request to open a file: a guest reads only.
    pub(crate) const fn opening(node: &Handle, flags: OpenFlags) -> Self {
        match flags.write || flags.truncate {
            true => Self::Never,
            false => Self::Node(*node),
        }
    }
}
