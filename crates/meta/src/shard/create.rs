//! The creation of files, directories and symbolic links.

use pelago_store::rows::{Rnode, RnodeFlags};
use pelago_wire::{
    Code, Context, DataPath, Entry, Error, FileKind, Handle, InodeId, Name, Reply, Time,
};

use super::Shard;
use super::acl::Rights;
use super::new_inode::NewInode;
use super::txn::{DirEntryKey, Txn};
use crate::reply_cache::OpContext;
use crate::row_cache::{Node, RowLocation};

const SETGID: u16 = 0o2000;

impl Shard {
    /// Creates a node under a free name.
    ///
    /// # Errors
    /// `Exists`; `NameTooLong`, `Invalid` for a target; `Stale`, `NotDirectory` for the directory.
    pub fn create(
        &self,
        context: &Context,
        dir: Handle,
        name: &Name,
        new: NewInode,
        now: Time,
    ) -> Result<Entry, Error> {
        new.check()?;
        let key = self.entry_key(dir.ino, name);
        let mut txn = self.begin(OpContext::by(context, now));
        let entry = create(&mut txn, context, &key, new)?;
        txn.store_reply(&Reply::Entry(entry));
        txn.commit()?;
        Ok(entry)
    }

    /// Creates a node under a free name and opens it, as [`Shard::acquire`] does. Stores the reply
    /// of a create with an open.
    ///
    /// # Errors
    /// As [`Shard::create`].
    pub fn create_open(
        &self,
        context: &Context,
        dir: Handle,
        name: &Name,
        new: NewInode,
        now: Time,
    ) -> Result<Entry, Error> {
        new.check()?;
        let key = self.entry_key(dir.ino, name);
        let mut txn = self.begin(OpContext::by(context, now));
        let entry = create(&mut txn, context, &key, new)?;
        txn.store_reply(&Reply::Created { entry, path: DataPath::Cached });
        // The lock is held until the node is open: no removal may come in between.
        let _locked = txn.commit()?;
        self.open_inodes.acquire(entry.attr.ino, false);
        Ok(entry)
    }

    /// Creates a file without a name, with the owner and rights that it would inherit in `dir`,
    /// which does not change. The file is open from the beginning: [`Shard::link`] gives it a name,
    /// or its last [`Shard::release`] removes it.
    ///
    /// # Errors
    /// `Stale`, `NotDirectory` for the directory.
    pub fn create_unnamed(
        &self,
        context: &Context,
        dir: Handle,
        new: NewInode,
        now: Time,
    ) -> Result<Entry, Error> {
        let mut txn = self.begin(OpContext::by(context, now));
        let entry = create_unnamed(&mut txn, context, dir, new)?;
        txn.store_reply(&Reply::Created { entry, path: DataPath::Cached });
        let _locked = txn.commit()?;
        self.open_inodes.acquire(entry.attr.ino, true);
        // A file that never had a name belongs to the directory in which it was made.
        self.open_inodes.set_unnamed(entry.attr.ino, dir.ino, None);
        Ok(entry)
    }
}

/// Creates a node under a free name.
///
/// # Errors
/// `Exists`; `Stale`, `NotDirectory` for the directory.
#[inline]
pub(super) fn create(
    txn: &mut Txn<'_>,
    context: &Context,
    key: &DirEntryKey,
    new: NewInode,
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
    let ino = node.rnode.ino;
    let handle = node.handle();
    let mut attr = node.rnode.attr();
    if attr.kind == FileKind::Directory {
        attr.links = 2;
        txn.add_directory(ino, key.dir);
        txn.put_node(node);
    } else {
        txn.cache_node(node);
    }
    Ok(Entry { handle, attr })
}

/// Creates a file without a name, with the owner and rights that it would inherit in `dir`, which
/// does not change.
///
/// # Errors
/// `Stale`, `NotDirectory` for the directory.
pub(super) fn create_unnamed(
    txn: &mut Txn<'_>,
    context: &Context,
    dir: Handle,
    new: NewInode,
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

/// Returns a new rnode for a directory, and the rights that it inherits there. Takes an id, so the
/// batch must still be empty.
///
/// # Errors
/// `Stale` for the directory; `NoSpace` if there are no ids; `Corrupt` if the directory's list is
/// damaged; if the table fails.
pub(super) fn new_rnode_in(
    txn: &mut Txn<'_>,
    context: &Context,
    dir: InodeId,
    new: NewInode,
) -> Result<(Rnode, Rights), Error> {
    let parent = txn.node(Handle::own(dir))?.rnode;
    let rights = Rights::inherited(txn, &parent, &new)?;
    let ino = new_id(txn, context)?;
    let rnode = new_rnode(ino, new, context, &parent, &rights, txn.now);
    Ok((rnode, rights))
}

/// Returns the id of a new node: for a replay, the id that an earlier run gave to it.
pub(super) fn new_id(txn: &mut Txn<'_>, context: &Context) -> Result<InodeId, Error> {
    if let Some(node) = context.replayed.and_then(|replayed| replayed.node) {
        if txn.claim_id(node)? {
            return Ok(node.ino);
        }
        tracing::warn!(inode = %node.ino, "a file that was lost gets another number");
    }
    txn.take_id()
}

pub(super) fn new_rnode(
    ino: InodeId,
    new: NewInode,
    context: &Context,
    parent: &Rnode,
    rights: &Rights,
    now: Time,
) -> Rnode {
    // A setgid directory passes its group on to new nodes in it, and its bit to new directories.
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
        bytes_at: None,
        target: new.target,
    };
    rights.set_flags(&mut rnode);
    rnode
}
