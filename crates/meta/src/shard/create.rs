//! Makes files, directories and links of every kind.

use pelago_store::rows::{Rnode, RnodeFlags};
use pelago_wire::{
    Code, Context, Entry, Error, FileKind, Handle, InodeId, NewMode, Reply, Time, limits,
};

use super::acl::Rights;
use super::txn::{DirEntryKey, Txn};
use crate::row_cache::{Node, RowLocation};

/// What to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNode {
    /// The kind.
    pub kind: FileKind,
    /// The mode, before a default access control list of the directory.
    pub mode: NewMode,
    /// The device number; 0 for all but devices.
    pub rdev: u32,
    /// The target of a symbolic link, empty for others.
    pub target: Vec<u8>,
}

impl NewNode {
    /// Returns an ordinary file.
    #[must_use]
    pub fn file(mode: NewMode) -> Self {
        Self { kind: FileKind::Regular, mode, rdev: 0, target: Vec::new() }
    }

    /// Returns a directory.
    #[must_use]
    pub fn directory(mode: NewMode) -> Self {
        Self { kind: FileKind::Directory, mode, rdev: 0, target: Vec::new() }
    }

    /// Returns a symbolic link.
    #[must_use]
    pub fn symlink(target: Vec<u8>) -> Self {
        Self { kind: FileKind::Symlink, mode: NewMode::exactly(0o777), rdev: 0, target }
    }

    /// Checks the target of a symbolic link.
    ///
    /// # Errors
    /// `NameTooLong`; `Invalid` if it is empty or contains a NUL.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.target.len() > limits::TARGET_BYTES {
            return Err(Code::NameTooLong.into());
        }
        if self.kind == FileKind::Symlink && (self.target.is_empty() || self.target.contains(&0)) {
            return Err(Code::Invalid.into());
        }
        Ok(())
    }
}

const SETGID: u16 = 0o2000;

/// Makes a node under a free name.
///
/// # Errors
/// `Exists`; `Stale`, `NotDirectory` for the directory.
#[inline]
pub(super) fn create(
    txn: &mut Txn<'_>,
    context: &Context,
    key: &DirEntryKey,
    new: NewNode,
) -> Result<Entry, Error> {
    txn.load_directory(Handle::own(key.dir))?;
    if txn.named(key)?.is_some() {
        return Err(Code::Exists.into());
    }
    let location = match new.kind {
        FileKind::Directory => RowLocation::Own,
        _ => key.location(),
    };
    let (rnode, rights) = new_rnode_in(txn, context, key.dir, new)?;
    let node = Node { rnode, location };
    txn.flag_dirty(key.dir);
    txn.put_name(key, &node);
    rights.put(txn, node.rnode.ino);
    let (ino, handle, mut attr) = (node.rnode.ino, node.handle(), node.rnode.attr());
    if attr.kind == FileKind::Directory {
        attr.links = 2;
        txn.add_directory(ino, key.dir);
        txn.put_node(node);
    } else {
        txn.cache_node(node);
    }
    let entry = Entry { handle, attr };
    txn.store_reply(&Reply::Entry(entry));
    Ok(entry)
}

/// Makes a file without a name, by the rules of a directory, which does not change.
///
/// # Errors
/// `Stale`, `NotDirectory` for the directory.
pub(super) fn create_unnamed(
    txn: &mut Txn<'_>,
    context: &Context,
    dir: Handle,
    new: NewNode,
) -> Result<Entry, Error> {
    txn.load_directory(dir)?;
    let (mut rnode, rights) = new_rnode_in(txn, context, dir.ino, new)?;
    rnode.links = 0;
    let node = Node { rnode, location: RowLocation::Own };
    let entry = Entry { handle: node.handle(), attr: node.rnode.attr() };
    rights.put(txn, node.rnode.ino);
    txn.put_unnamed(node);
    Ok(entry)
}

/// Returns a new node of a directory, and the rights that it inherits there. Takes its id, so the
/// batch must still be empty.
///
/// # Errors
/// `Stale` for the directory; `NoSpace` if there are no ids; `Corrupt` if the directory's list is
/// damaged; if the table fails.
pub(super) fn new_rnode_in(
    txn: &mut Txn<'_>,
    context: &Context,
    dir: InodeId,
    new: NewNode,
) -> Result<(Rnode, Rights), Error> {
    let parent = txn.node(Handle::own(dir))?.rnode;
    let rights = Rights::inherited(txn, &parent, &new)?;
    let ino = txn.take_id()?;
    let rnode = new_rnode(ino, new, context, &parent, (&rights, txn.now));
    Ok((rnode, rights))
}

fn new_rnode(
    ino: InodeId,
    new: NewNode,
    context: &Context,
    parent: &Rnode,
    (rights, now): (&Rights, Time),
) -> Rnode {
    // A setgid directory gives its group to what is made in it, and its bit to directories.
    let inherit = parent.mode & SETGID != 0;
    let is_directory = new.kind == FileKind::Directory;
    let mode = if inherit && is_directory { rights.mode | SETGID } else { rights.mode } & 0o7777;
    let size = new.target.len() as u64;
    let mut rnode = Rnode {
        ino,
        kind: new.kind,
        mode,
        flags: RnodeFlags::default(),
        links: 1,
        uid: context.uid,
        gid: if inherit { parent.gid } else { context.gid },
        rdev: new.rdev,
        generation: None,
        size,
        blocks: 0,
        version: 1,
        quota_root: parent.quota_root,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        deleted_at: Time::default(),
        target: new.target,
    };
    rights.set_flags(&mut rnode);
    rnode
}
