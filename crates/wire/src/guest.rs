//! The requests that a guest may make, and the rights that each needs. A guest is a session whose
//! client has presented a chain of credentials.
//!
//! `docs/semantics.md` has the same table. Two conditions depend on more than the request, so the
//! server adds them: a name that a rename replaces needs [`GuestRight::Delete`], and a node gets a
//! name only in a directory that grants no right which the node itself does not.

use crate::attr::{FileKind, SetAttr};
use crate::flags::{OpenFlags, RenameFlags};
use crate::id::{Handle, OpenId};
use crate::lock::{FileLock, LockMode};
use crate::xattr;

/// The rule for a request of a guest. A node is *granted* if the guest has any right to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForGuest {
    /// It is carried out if the guest has all these rights.
    Needs(Needs),
    /// It is carried out if this directory is granted. A directory whose parent is not granted is
    /// its own parent.
    Parent(Handle),
    /// It is carried out: it ends what the session itself has open.
    Own,
    /// It is carried out if the file was opened to write. Otherwise it is answered as done: the
    /// guest has written nothing, and must not take the report of an error that is for another
    /// session.
    Commit(OpenId),
    /// It is answered when all changes so far are safe, if this directory is granted. It does not
    /// take the report of an error that is for another session.
    CommitDir(Handle),
    /// It is carried out: it reports the space of the volume.
    Space,
    /// It is answered as for a node without this extended attribute, if this node is granted. A
    /// kernel requests access lists on its own account, and would take a refusal for one of the
    /// whole path.
    NoXattr(Handle),
    /// It is refused as not supported, if this node is granted: a program that copies an access
    /// list then sets the mode.
    NotSupported(Handle),
    /// It is carried out: it adds a chain of credentials to the session.
    Attach,
    /// It is carried out: it takes back what the guest itself has granted, or a credential for
    /// something to which it has [`GuestRight::Audit`].
    Revoke,
    /// It is refused.
    Never,
}

/// A right that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestRight {
    /// Any right at all.
    Any,
    /// To read (r).
    Read,
    /// To write (w). The guest that has created an open file may write it by this open.
    Write,
    /// To create names (c).
    Create,
    /// To remove names (d).
    Delete,
    /// To see what others have and do (a).
    Audit,
}

/// The subject of a right: a node, or the file of an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestSubject {
    /// A node.
    Node(Handle),
    /// The file of an open of the guest.
    Open(OpenId),
}

/// The rights that a request needs: at most four.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs([Option<(GuestRight, GuestSubject)>; 4]);

impl Needs {
    /// Returns the rights, each with its subject.
    pub fn each(&self) -> impl Iterator<Item = (GuestRight, GuestSubject)> + use<'_> {
        self.0.iter().flatten().copied()
    }
}

impl ForGuest {
    pub(crate) const fn node(right: GuestRight, node: &Handle) -> Self {
        Self::Needs(Needs([Some((right, GuestSubject::Node(*node))), None, None, None]))
    }

    pub(crate) const fn open(right: GuestRight, open: &OpenId) -> Self {
        Self::Needs(Needs([Some((right, GuestSubject::Open(*open))), None, None, None]))
    }

    /// Returns the rule for a request that is about the bytes of one file, and of another one.
    pub(crate) const fn copying(from: &OpenId, to: &OpenId) -> Self {
        let from = (GuestRight::Read, GuestSubject::Open(*from));
        let to = (GuestRight::Write, GuestSubject::Open(*to));
        Self::Needs(Needs([Some(from), Some(to), None, None]))
    }

    /// Returns the rule for a request to open a file.
    pub(crate) const fn opening(node: &Handle, flags: OpenFlags) -> Self {
        let node = GuestSubject::Node(*node);
        let writes = flags.write || flags.truncate;
        let write = if writes { Some((GuestRight::Write, node)) } else { None };
        let read = if flags.read || !writes { Some((GuestRight::Read, node)) } else { None };
        Self::Needs(Needs([read, write, None, None]))
    }

    /// Returns the rule for a change of attributes. A guest sets no owner, no time that only
    /// servers set, and no set-id or sticky bit.
    pub(crate) const fn setting(node: &Handle, open: &Option<OpenId>, set: &SetAttr) -> Self {
        let has_special = match set.mode {
            Some(mode) => mode & !0o777 != 0,
            None => false,
        };
        if set.uid.is_some() || set.gid.is_some() || set.ctime.is_some() || has_special {
            return Self::Never;
        }
        match open {
            Some(open) => Self::Needs(Needs([
                Some((GuestRight::Any, GuestSubject::Node(*node))),
                Some((GuestRight::Write, GuestSubject::Open(*open))),
                None,
                None,
            ])),
            None => Self::node(GuestRight::Write, node),
        }
    }

    /// Returns the rule for a request that makes a node of this kind: a guest makes no device.
    pub(crate) const fn making(dir: &Handle, kind: FileKind) -> Self {
        match kind {
            FileKind::CharDevice | FileKind::BlockDevice => Self::Never,
            FileKind::Regular
            | FileKind::Directory
            | FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket => Self::node(GuestRight::Create, dir),
        }
    }

    /// Returns the rule for another name of a node.
    pub(crate) const fn linking(node: &Handle, dir: &Handle) -> Self {
        let node = (GuestRight::Any, GuestSubject::Node(*node));
        let dir = (GuestRight::Create, GuestSubject::Node(*dir));
        Self::Needs(Needs([Some(node), Some(dir), None, None]))
    }

    /// Returns the rule for a rename. A guest makes no whiteout, which is a device.
    pub(crate) const fn renaming(from: &Handle, to: &Handle, flags: RenameFlags) -> Self {
        let delete = Some((GuestRight::Delete, GuestSubject::Node(*from)));
        let create = Some((GuestRight::Create, GuestSubject::Node(*to)));
        match flags {
            RenameFlags::Whiteout { .. } => Self::Never,
            RenameFlags::Replace | RenameFlags::NoReplace => {
                Self::Needs(Needs([delete, create, None, None]))
            }
            RenameFlags::Exchange => {
                let back = Some((GuestRight::Create, GuestSubject::Node(*from)));
                let away = Some((GuestRight::Delete, GuestSubject::Node(*to)));
                Self::Needs(Needs([delete, create, back, away]))
            }
        }
    }

    /// Returns the rule for a lock, to set or to test: a shared one is for readers. An unlock ends
    /// what the session itself has.
    pub(crate) const fn locking(open: &OpenId, lock: &FileLock) -> Self {
        match lock.mode {
            LockMode::Read => Self::open(GuestRight::Read, open),
            LockMode::Write => Self::open(GuestRight::Write, open),
            LockMode::Unlock => Self::Own,
        }
    }

    /// Returns the rule for reading an extended attribute: a guest sees those of users.
    pub(crate) const fn reading_xattr(node: &Handle, name: &[u8]) -> Self {
        match xattr::is_of_users(name) {
            true => Self::node(GuestRight::Read, node),
            false => Self::NoXattr(*node),
        }
    }

    /// Returns the rule for a change of an extended attribute: a guest changes those of users, but
    /// none by which a user sets up Pelago.
    pub(crate) const fn writing_xattr(node: &Handle, name: &[u8]) -> Self {
        match () {
            () if xattr::is_setting(name) => Self::Never,
            () if xattr::is_of_users(name) => Self::node(GuestRight::Write, node),
            () if xattr::is_access_list(name) => Self::NotSupported(*node),
            () => Self::Never,
        }
    }

    /// Returns the rule for a request for the rights to a node: of the guest itself, or of the
    /// holder of a chain. Who may audit gets those of other guests with its own.
    pub(crate) const fn asking(node: &Handle, about_itself: bool) -> Self {
        match about_itself {
            true => Self::node(GuestRight::Any, node),
            false => Self::node(GuestRight::Audit, node),
        }
    }
}

#[cfg(test)]
mod tests;
