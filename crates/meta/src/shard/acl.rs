//! Rows of access control lists: extended attributes that change with the mode, and that change the
//! mode.
//!
//! The flags of an rnode say which lists exist, so that a file or directory without lists costs no
//! read of a missing row.

use pelago_store::key;
use pelago_store::rows::{Rnode, Xattr};
use pelago_wire::xattr::{ACL_ACCESS, ACL_DEFAULT};
use pelago_wire::{Code, Error, FileKind, InodeId, XattrFlags};

use super::locked::Locked;
use super::new_inode::NewInode;
use super::stored;
use super::txn::Txn;
use crate::acl::Acl;

/// A kind of list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    /// The access list: the rights to a file or directory.
    Access,
    /// The default list: inherited by new nodes in a directory.
    Default,
}

/// An extended attribute to set.
#[derive(Debug, Clone, Copy)]
pub struct SetXattr<'a> {
    /// Its name, with the prefix.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// The condition: that it exists, or that it does not.
    pub flags: XattrFlags,
    /// True if the setgid bit is cleared when it is an access list.
    pub kill_setgid: bool,
}

/// The mode and the lists of a new node.
pub(super) struct Rights {
    /// The mode, without the setgid bit of a setgid directory.
    pub(super) mode: u16,
    access: Option<Acl>,
    default: Option<Acl>,
}

const SETGID: u16 = 0o2000;

impl List {
    /// Both kinds.
    pub(super) const ALL: [Self; 2] = [Self::Access, Self::Default];

    /// Returns the name of the extended attribute with the list.
    pub(super) const fn name(self) -> &'static [u8] {
        match self {
            Self::Access => ACL_ACCESS,
            Self::Default => ACL_DEFAULT,
        }
    }

    /// Returns the kind whose extended attribute has this name.
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        match name {
            ACL_ACCESS => Some(Self::Access),
            ACL_DEFAULT => Some(Self::Default),
            _ => None,
        }
    }

    /// Returns whether a node has a list of this kind.
    pub(super) fn is_on(self, rnode: &Rnode) -> bool {
        match self {
            Self::Access => rnode.flags.has_acl,
            Self::Default => rnode.flags.has_default_acl,
        }
    }

    /// Sets whether a node has a list of this kind.
    pub(super) fn set_flag(self, rnode: &mut Rnode, has: bool) {
        match self {
            Self::Access => rnode.flags.has_acl = has,
            Self::Default => rnode.flags.has_default_acl = has,
        }
    }

    /// Sets the list of a node: changes its mode, and returns the bytes to store; `None` if there
    /// is nothing to store.
    ///
    /// # Errors
    /// `Invalid`, `TooBig`; `NotSupported` for a symbolic link; `AccessDenied` for a default list
    /// on a file.
    pub(super) fn set(
        self,
        rnode: &mut Rnode,
        xattr: &SetXattr<'_>,
    ) -> Result<Option<Vec<u8>>, Error> {
        if rnode.kind == FileKind::Symlink {
            return Err(Code::NotSupported.into());
        }
        let Some(list) = Acl::decode(xattr.value)? else { return Ok(None) };
        match self {
            Self::Default if rnode.kind == FileKind::Directory => Ok(Some(list.encode())),
            Self::Default => Err(Code::AccessDenied.into()),
            Self::Access => {
                rnode.mode = list.mode(rnode.mode);
                if xattr.kill_setgid {
                    rnode.mode &= !SETGID;
                }
                Ok(Some(list).filter(|list| !list.is_minimal()).map(|list| list.encode()))
            }
        }
    }
}

impl Rights {
    /// Returns the rights of a new node in a directory.
    ///
    /// # Errors
    /// `Corrupt` if the directory's list is damaged; if the table fails.
    #[inline]
    pub(super) fn inherited(
        locked: &Locked<'_>,
        dir: &Rnode,
        new: &NewInode,
    ) -> Result<Self, Error> {
        if !dir.flags.has_default_acl || new.kind == FileKind::Symlink {
            return Ok(Self { mode: new.mode.masked(), access: None, default: None });
        }
        Ok(Self::from_list(Some(stored_list(locked, dir.ino, ACL_DEFAULT)?), new))
    }

    /// Returns the rights of a new node in a directory with this default list.
    pub(super) fn from_list(list: Option<Acl>, new: &NewInode) -> Self {
        let Some(list) = list else {
            return Self { mode: new.mode.masked(), access: None, default: None };
        };
        let default = Some(&list).filter(|_| new.kind == FileKind::Directory).cloned();
        let inherited = list.inherit(new.mode.mode);
        Self { mode: inherited.mode, access: inherited.access, default }
    }

    /// Sets the flags for the lists that [`Rights::put`] will store.
    pub(super) fn set_flags(&self, rnode: &mut Rnode) {
        let flags = &mut rnode.flags;
        flags.has_acl = self.access.is_some();
        flags.has_default_acl = self.default.is_some();
        flags.has_xattrs = flags.has_acl || flags.has_default_acl;
    }

    /// Stores the lists.
    pub(super) fn put(&self, txn: &mut Txn<'_>, ino: InodeId) {
        for (name, list) in [(ACL_ACCESS, &self.access), (ACL_DEFAULT, &self.default)] {
            if let Some(list) = list {
                put(txn, ino, name, list);
            }
        }
    }
}

/// Adjusts the access list of a node, if it has one, to its changed mode.
///
/// # Errors
/// As [`Rights::inherited`].
pub(super) fn follow_mode(txn: &mut Txn<'_>, rnode: &Rnode) -> Result<(), Error> {
    if rnode.flags.has_acl {
        let list = stored_list(txn, rnode.ino, ACL_ACCESS)?.with_mode(rnode.mode);
        put(txn, rnode.ino, ACL_ACCESS, &list);
    }
    Ok(())
}

/// Returns a list that the flags of its node say exists.
fn stored_list(locked: &Locked<'_>, ino: InodeId, name: &[u8]) -> Result<Acl, Error> {
    let list = stored::xattr(&*locked.shard.table, ino, name)?.map(|bytes| Acl::decode(&bytes));
    if let Some(Ok(Some(list))) = list {
        return Ok(list);
    }
    tracing::error!(%ino, "an access control list is damaged; run `pelago check`");
    Err(Code::Corrupt.into())
}

fn put(txn: &mut Txn<'_>, ino: InodeId, name: &[u8], list: &Acl) {
    txn.put(key::xattr(ino, name), &Xattr { value: &list.encode() });
}
