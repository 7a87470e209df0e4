//! The types of the columns in the table of requests: the things that a request changes, the facts
//! that its answer reports, its effect on open files, and its turn after a start of the server.

use crate::flags::OpenFlags;
use crate::id::{Cookie, Handle, InodeId, OpenId};
use crate::local_cache::Touched;
use crate::lock::{FileLock, LockOwner};
use crate::name::Name;
use crate::xattr;

/// A name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameIn<'a> {
    /// The directory.
    pub dir: Handle,
    /// The name in it.
    pub name: &'a Name,
}

impl From<NameIn<'_>> for Touched {
    fn from(at: NameIn<'_>) -> Self {
        Self::Name { dir: at.dir.ino, name: at.name.clone() }
    }
}

/// The things that a request changes and that others may have cached under leases, as its arguments
/// name them.
///
/// The caller looks up the target of a name, and the file of an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touches<'a> {
    /// Nothing.
    Nothing,
    /// The attributes of a node, or its extended attributes.
    Node(InodeId),
    /// The bytes of a file, and its attributes.
    Contents(InodeId),
    /// The bytes of the file of an open. Its attributes count as changing until the open ends.
    Bytes(OpenId),
    /// The attributes of the file of an open, which ends.
    Release(OpenId),
    /// A new name, and its directory.
    NewName {
        /// The name.
        at: NameIn<'a>,
        /// The file that gets one more name, or its first one after `O_TMPFILE`.
        of: Option<InodeId>,
    },
    /// A name that is removed, its directory, and its target.
    OldName(NameIn<'a>),
    /// The names of a move, their directories, and their targets.
    Move {
        /// The old name.
        from: NameIn<'a>,
        /// The new name.
        to: NameIn<'a>,
    },
}

impl<'a> Touches<'a> {
    /// Returns whether leases of other sessions are recalled before the request is carried out. For
    /// bytes they are recalled when the file is opened for writing, and when that open ends.
    #[must_use]
    #[inline]
    pub const fn concerns_others(&self) -> bool {
        match self {
            Self::Nothing | Self::Bytes(_) => false,
            Self::Node(_)
            | Self::Contents(_)
            | Self::Release(_)
            | Self::NewName { .. }
            | Self::OldName(_)
            | Self::Move { .. } => true,
        }
    }

    /// Returns the directory whose names change; `None` also if there are two.
    #[must_use]
    pub fn changed_dir(&self) -> Option<Handle> {
        match self {
            Self::NewName { at, .. } | Self::OldName(at) => Some(at.dir),
            Self::Move { from, to } => (from.dir.ino == to.dir.ino).then_some(to.dir),
            Self::Nothing
            | Self::Node(_)
            | Self::Contents(_)
            | Self::Bytes(_)
            | Self::Release(_) => None,
        }
    }

    /// Returns the names that have another target afterwards, or none.
    #[must_use]
    pub const fn removed_names(&self) -> [Option<NameIn<'a>>; 2] {
        match *self {
            Self::OldName(at) => [Some(at), None],
            Self::Move { from, to } => [Some(from), Some(to)],
            Self::Nothing
            | Self::Node(_)
            | Self::Contents(_)
            | Self::Bytes(_)
            | Self::Release(_)
            | Self::NewName { .. } => [None, None],
        }
    }
}

/// The facts that the answer to a request reports and that a client may cache under a lease. The
/// attributes in the answer may be cached in each case but the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tells<'a> {
    /// Nothing.
    Nothing,
    /// Attributes only.
    Attributes,
    /// The target of a name, or its absence.
    Name(NameIn<'a>),
    /// The target of a new name.
    NewName(NameIn<'a>),
    /// The same of a new directory, and that it is empty.
    NewDir(NameIn<'a>),
    /// The absence of a removed name.
    OldName(NameIn<'a>),
    /// Names of a directory.
    Names {
        /// The directory.
        dir: InodeId,
        /// The position after which they begin.
        after: Cookie,
        /// The number of names that were requested.
        most: u32,
    },
    /// The parent of a directory.
    Parent(InodeId),
    /// The target of a symbolic link.
    Target(InodeId),
    /// The names of the extended attributes of a node.
    Xattrs(InodeId),
    /// An extended attribute, or that there is none.
    Xattr {
        /// The node.
        node: InodeId,
        /// The name of the attribute.
        name: &'a [u8],
    },
}

impl<'a> Tells<'a> {
    /// Returns what the answer to a question for an extended attribute reports: nothing that can be
    /// kept, if it is computed.
    #[must_use]
    pub const fn of_xattr(node: InodeId, name: &'a [u8]) -> Self {
        match xattr::is_computed(name) {
            true => Self::Nothing,
            false => Self::Xattr { node, name },
        }
    }
}

impl Tells<'_> {
    /// Returns the directory of the names that the answer reports.
    #[must_use]
    #[inline]
    pub const fn names(&self) -> Option<InodeId> {
        match self {
            Self::Name(at) | Self::NewName(at) | Self::NewDir(at) | Self::OldName(at) => {
                Some(at.dir.ino)
            }
            Self::Names { dir, .. } => Some(*dir),
            Self::Nothing
            | Self::Attributes
            | Self::Parent(_)
            | Self::Target(_)
            | Self::Xattrs(_)
            | Self::Xattr { .. } => None,
        }
    }

    /// Returns the node of a fact that is neither a name nor an attribute, and changes with the
    /// node's attributes.
    #[must_use]
    #[inline]
    pub const fn node(&self) -> Option<InodeId> {
        match self {
            Self::Parent(node) | Self::Target(node) | Self::Xattrs(node) => Some(*node),
            Self::Xattr { node, .. } => Some(*node),
            Self::Nothing
            | Self::Attributes
            | Self::Name(_)
            | Self::NewName(_)
            | Self::NewDir(_)
            | Self::OldName(_)
            | Self::Names { .. } => None,
        }
    }
}

/// The effect of a request on open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenEffect {
    /// It makes none and ends none, and a lost lock does not keep it from being carried out.
    Nothing,
    /// It opens a file that exists.
    Makes {
        /// The file.
        node: Handle,
        /// The number of the open.
        open: OpenId,
        /// The flags of the open.
        flags: OpenFlags,
    },
    /// It opens a file that it creates.
    Creates {
        /// The number of the open.
        open: OpenId,
        /// The flags of the open.
        flags: OpenFlags,
    },
    /// It makes an open again that the server has lost.
    MakesAgain {
        /// The file.
        node: Handle,
        /// The number of the open.
        open: OpenId,
        /// The flags of the open.
        flags: OpenFlags,
    },
    /// It reads or writes bytes, which programs may guard by locks, or tests for a lock that is in
    /// the way. It fails once a lock of the open is lost.
    UsesGuarded,
    /// It sets or removes a lock. It fails once another lock of the open is lost.
    Locks {
        /// The open.
        open: OpenId,
        /// The owner of the lock.
        owner: LockOwner,
        /// The lock.
        lock: FileLock,
    },
    /// It ends the `fcntl` locks of an owner.
    EndsLocks {
        /// The open.
        open: OpenId,
        /// The owner of the locks.
        owner: LockOwner,
    },
    /// It ends an open.
    Ends(OpenId),
}

impl OpenEffect {
    /// Returns the open that a request makes, and how.
    #[must_use]
    #[inline]
    pub const fn made(&self) -> Option<(OpenId, OpenFlags)> {
        match *self {
            Self::Makes { open, flags, .. }
            | Self::Creates { open, flags }
            | Self::MakesAgain { open, flags, .. } => Some((open, flags)),
            Self::Nothing
            | Self::UsesGuarded
            | Self::Locks { .. }
            | Self::EndsLocks { .. }
            | Self::Ends(_) => None,
        }
    }

    /// Returns the file that a request opens, if it exists before, and how.
    #[must_use]
    #[inline]
    pub const fn existing(&self) -> Option<(Handle, OpenFlags)> {
        match *self {
            Self::Makes { node, flags, .. } => Some((node, flags)),
            Self::Nothing
            | Self::Creates { .. }
            | Self::MakesAgain { .. }
            | Self::UsesGuarded
            | Self::Locks { .. }
            | Self::EndsLocks { .. }
            | Self::Ends(_) => None,
        }
    }

    /// Returns whether a request fails once a lock is lost that a program had set through the open.
    #[must_use]
    #[inline]
    pub const fn is_guarded(&self) -> bool {
        match self {
            Self::UsesGuarded | Self::Locks { .. } => true,
            Self::Nothing
            | Self::Makes { .. }
            | Self::Creates { .. }
            | Self::MakesAgain { .. }
            | Self::EndsLocks { .. }
            | Self::Ends(_) => false,
        }
    }
}

/// The turn of a request while the server waits for the sessions of its last run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtStart {
    /// It waits. If it repeats what the last run may have done, it is carried out in its turn:
    /// changes of names have stored replies and are not carried out twice; and they may need the
    /// kernel, which answers once requests of the server's own mount are carried out.
    InTurn,
    /// It waits. If it repeats what the last run may have done, it goes before all that is new: it
    /// may write bytes or attributes a second time, over what is new.
    BeforeNew,
    /// It does not wait, because it restores the opens and locks of a session; unless it was
    /// answered by the last run and may be lost.
    Restores,
    /// It does not wait if it comes from the server's own mount, which needs it to come up.
    /// Sessions can come back only after that.
    ForOwnMount,
}

impl AtStart {
    /// Returns whether a request that repeats what the last run may have done goes before all that
    /// is new.
    #[must_use]
    #[inline]
    pub const fn goes_before_new(self) -> bool {
        match self {
            Self::BeforeNew => true,
            Self::InTurn | Self::Restores | Self::ForOwnMount => false,
        }
    }
}
