//! Access control lists as rows: kept as extended attributes, and the mode kept in step with them.
//!
//! The flags of a row say which lists there are, so that a file or directory without any costs
//! nothing: no row is asked for in vain.

use pelago_store::key;
use pelago_store::rows::{Rnode, Row, Xattr};
use pelago_wire::{Code, Error, FileKind, InodeId, XattrFlags};

use super::txn::Txn;
use super::{NewNode, Shard};
use crate::acl::Acl;
use pelago_wire::xattr::{ACL_ACCESS, ACL_DEFAULT};

/// Which of the two lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    /// Who may do what with a file or directory.
    Access,
    /// What a directory gives to what is made in it.
    Default,
}

/// An extended attribute that is set.
#[derive(Debug, Clone, Copy)]
pub struct SetXattr<'a> {
    /// Its name, prefix included.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// Whether it must exist or must not.
    pub flags: XattrFlags,
    /// Clear the setgid bit if it is an access control list.
    pub kill_setgid: bool,
}

/// What something new is made with.
pub(super) struct Rights {
    /// Its mode, but for what a setgid directory gives.
    pub(super) mode: u16,
    access: Option<Acl>,
    default: Option<Acl>,
}

const SETGID: u16 = 0o2000;

impl List {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Access, Self::Default];

    /// Its name.
    pub(super) const fn name(self) -> &'static [u8] {
        match self {
            Self::Access => ACL_ACCESS,
            Self::Default => ACL_DEFAULT,
        }
    }

    /// The list with this name.
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        match name {
            ACL_ACCESS => Some(Self::Access),
            ACL_DEFAULT => Some(Self::Default),
            _ => None,
        }
    }

    /// Whether a file has it.
    pub(super) fn is_kept(self, rnode: &Rnode) -> bool {
        match self {
            Self::Access => rnode.flags.has_acl,
            Self::Default => rnode.flags.has_default_acl,
        }
    }

    /// A file has it, or not.
    pub(super) fn keep(self, rnode: &mut Rnode, kept: bool) {
        match self {
            Self::Access => rnode.flags.has_acl = kept,
            Self::Default => rnode.flags.has_default_acl = kept,
        }
    }

    /// A file gets it: changes its mode, and answers the bytes to keep; `None` where none are.
    ///
    /// # Errors
    /// `Invalid`, `TooBig`; `NotSupported` for a symbolic link; `AccessDenied` for a default list
    /// of what is no directory.
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

impl Shard {
    /// What something new in a directory is made with.
    ///
    /// # Errors
    /// Where the table fails or the directory's list is damaged.
    pub(super) fn rights_below(&self, dir: &Rnode, new: &NewNode) -> Result<Rights, Error> {
        if !dir.flags.has_default_acl || new.kind == FileKind::Symlink {
            return Ok(Rights { mode: new.mode.masked(), access: None, default: None });
        }
        let list = self.stored_list(dir.ino, ACL_DEFAULT)?;
        let default = Some(&list).filter(|_| new.kind == FileKind::Directory).cloned();
        let inherited = list.inherit(new.mode.mode);
        Ok(Rights { mode: inherited.mode, access: inherited.access, default })
    }

    /// The mode of a file changed: its access list, where it has one, changes with it.
    ///
    /// # Errors
    /// As [`Shard::rights_below`].
    pub(super) fn put_mode_in_list(&self, tx: &mut Txn, rnode: &Rnode) -> Result<(), Error> {
        if rnode.flags.has_acl {
            let list = self.stored_list(rnode.ino, ACL_ACCESS)?.changed(rnode.mode);
            put(tx, rnode.ino, ACL_ACCESS, &list);
        }
        Ok(())
    }

    /// A list that a row says is there.
    fn stored_list(&self, ino: InodeId, name: &[u8]) -> Result<Acl, Error> {
        let list = self.stored_xattr(ino, name)?.map(|bytes| Acl::decode(&bytes));
        if let Some(Ok(Some(list))) = list {
            return Ok(list);
        }
        tracing::error!(%ino, "an access control list is damaged; run `pelago check`");
        Err(Code::Corrupt.into())
    }
}

impl Rights {
    /// Says in the row which lists there will be.
    pub(super) fn flag(&self, rnode: &mut Rnode) {
        let flags = &mut rnode.flags;
        (flags.has_acl, flags.has_default_acl) = (self.access.is_some(), self.default.is_some());
        flags.has_xattrs = flags.has_acl || flags.has_default_acl;
    }

    /// Puts the lists beside the row.
    pub(super) fn put(&self, tx: &mut Txn, ino: InodeId) {
        for (name, list) in [(ACL_ACCESS, &self.access), (ACL_DEFAULT, &self.default)] {
            if let Some(list) = list {
                put(tx, ino, name, list);
            }
        }
    }
}

fn put(tx: &mut Txn, ino: InodeId, name: &[u8], list: &Acl) {
    tx.batch.put(key::xattr(ino, name), Xattr { value: &list.encode() }.encode(tx.stamp));
}
