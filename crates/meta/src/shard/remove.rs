//! The removal of names: of a file with its last name, and of empty directories.

use std::ops::ControlFlow;

use pelago_store::key;
use pelago_store::report::table_failed;
use pelago_store::rows::Orphan;
use pelago_wire::{Attr, Code, Error, FileKind, Handle, InodeId, Name, Reply};

use super::locked::Locked;
use super::lookup::later_than;
use super::txn::{DirEntryKey, Txn};
use super::{Shard, xattr};
use crate::directory::Directory;
use crate::reply_cache::OpContext;
use crate::row_cache::{Node, RowLocation};

/// The node of a removed name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// The attributes after the removal; `links` is the number of names that are left (0 for a
    /// directory).
    pub attr: Attr,
    /// True if there is an orphan row on which the worker `orphans` may act at once. False for an
    /// open file, and for one that can still be brought back.
    pub orphaned: bool,
}

impl Shard {
    /// Removes a name of a node that is not a directory.
    ///
    /// # Errors
    /// `NotFound`, `IsDirectory`; `Stale`, `NotDirectory` for the directory.
    pub fn unlink(
        &self,
        dir: Handle,
        name: &Name,
        op: impl Into<OpContext>,
    ) -> Result<Removed, Error> {
        self.remove(dir, name, op.into(), unlink)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `NotEmpty`; `Elsewhere` if its rows are at another site; `Stale`
    /// for the parent.
    pub fn remove_dir(
        &self,
        dir: Handle,
        name: &Name,
        op: impl Into<OpContext>,
    ) -> Result<Removed, Error> {
        self.remove(dir, name, op.into(), remove_dir)
    }

    fn remove(
        &self,
        dir: Handle,
        name: &Name,
        op: OpContext,
        decide: fn(&mut Txn<'_>, &DirEntryKey) -> Result<Removed, Error>,
    ) -> Result<Removed, Error> {
        let key = self.entry_key(dir.ino, name);
        let mut txn = self.begin_removal(op);
        let removed = decide(&mut txn, &key)?;
        txn.commit()?;
        Ok(removed)
    }
}

/// Removes a name of a node that is not a directory.
///
/// # Errors
/// `NotFound`, `IsDirectory`; `Stale`, `NotDirectory` for the directory.
#[inline]
pub(super) fn unlink(txn: &mut Txn<'_>, key: &DirEntryKey) -> Result<Removed, Error> {
    let node = match txn.find_entry(key) {
        Err(error) if error.code == Code::Elsewhere => return Err(Code::IsDirectory.into()),
        found => found?,
    };
    txn.expect(node.rnode.ino, None)?;
    if node.rnode.kind == FileKind::Directory {
        return Err(Code::IsDirectory.into());
    }
    txn.flag_dirty(key.dir);
    let removed = remove_file(txn, key, node, false)?;
    txn.store_reply(&Reply::Removed(removed.attr));
    txn.batch.allow_reserve();
    Ok(removed)
}

/// Removes an empty directory.
///
/// # Errors
/// `NotFound`, `NotDirectory`, `NotEmpty`; `Elsewhere` for a directory of another site; `Stale` for
/// the parent.
pub(super) fn remove_dir(txn: &mut Txn<'_>, key: &DirEntryKey) -> Result<Removed, Error> {
    let node = txn.find_entry(key)?;
    txn.expect(node.rnode.ino, None)?;
    if node.rnode.kind != FileKind::Directory {
        return Err(Code::NotDirectory.into());
    }
    expect_empty(txn, node.rnode.ino)?;
    txn.flag_dirty(key.dir);
    let removed = remove_directory(txn, key, node, false)?;
    txn.store_reply(&Reply::Removed(removed.attr));
    txn.batch.allow_reserve();
    Ok(removed)
}

/// Checks that a directory has no names. If its filter does not prove that, the table is scanned
/// for a row; the count is never trusted, because it may be wrong after a crash.
///
/// # Errors
/// `NotEmpty`; if the table fails.
pub(super) fn expect_empty(locked: &Locked<'_>, dir: InodeId) -> Result<(), Error> {
    if locked.state.directories.get(dir).is_some_and(Directory::is_surely_empty) {
        return Ok(());
    }
    let range = key::names_of_dir(dir);
    let mut empty = true;
    let visited = locked.shard.table.scan(&range.from, &range.to, &mut |_, _| {
        empty = false;
        ControlFlow::Break(())
    });
    visited.map_err(|error| table_failed("scanning a directory", &error))?;
    if empty { Ok(()) } else { Err(Code::NotEmpty.into()) }
}

/// Removes a name of a file, and with its last name the file. If it is open, its rnode moves to a
/// row of its own, and its bytes and extended attributes stay.
///
/// `replaced`: as for [`Txn::remove_name`].
pub(super) fn remove_file(
    txn: &mut Txn<'_>,
    key: &DirEntryKey,
    mut node: Node,
    replaced: bool,
) -> Result<Removed, Error> {
    txn.remove_name(key, &node, replaced);
    node.rnode.links = node.rnode.links.saturating_sub(1);
    node.rnode.ctime = later_than(node.rnode.ctime, txn.now);
    node.rnode.version += 1;
    let attr = txn.attr_of(&node.rnode)?;
    if attr.links > 0 {
        txn.put_node(node);
        return Ok(Removed { attr, orphaned: false });
    }
    // Marked before the batch is written: a release meanwhile waits for it, and then reports the
    // orphan.
    let is_open = txn.shard.open_inodes.set_unnamed(node.rnode.ino, key.dir, Some(&key.name));
    if is_open {
        keep_unnamed(txn, node);
        return Ok(Removed { attr, orphaned: false });
    }
    let left = delete_rows(txn, &node)?;
    // The worker is notified when the file can no longer be brought back.
    let is_remembered = txn.remember(node.rnode, left.xattrs);
    Ok(Removed { attr, orphaned: left.orphan && !is_remembered })
}

/// Removes an empty directory and its name. `replaced`: as for [`Txn::remove_name`].
pub(super) fn remove_directory(
    txn: &mut Txn<'_>,
    key: &DirEntryKey,
    mut node: Node,
    replaced: bool,
) -> Result<Removed, Error> {
    node.rnode.links = 0;
    node.rnode.ctime = later_than(node.rnode.ctime, txn.now);
    let attr = txn.attr_of(&node.rnode)?;
    txn.remove_name(key, &node, replaced);
    let orphaned = discard_directory(txn, &node)?;
    Ok(Removed { attr, orphaned })
}

/// Deletes the rows of an empty directory without a name. Returns whether it has an orphan row.
pub(super) fn discard_directory(txn: &mut Txn<'_>, node: &Node) -> Result<bool, Error> {
    let ino = node.rnode.ino;
    txn.delete(key::partition(ino, 0));
    txn.forget_directory(ino);
    Ok(delete_rows(txn, node)?.orphan)
}

/// Moves the rnode of an open file that lost its last name to a row of its own.
fn keep_unnamed(txn: &mut Txn<'_>, mut node: Node) {
    if node.rnode.flags.moved {
        txn.delete(key::moved(node.rnode.ino));
        node.rnode.flags.moved = false;
    }
    node.rnode.deleted_at = txn.now;
    node.location = RowLocation::Own;
    txn.put_unnamed(node);
}

/// The rows that are left of a removed node.
struct Left {
    /// True if extended attributes are left, because they are many.
    xattrs: bool,
    /// True if there is an orphan row, because extended attributes or a content file are left.
    orphan: bool,
}

/// Deletes the rows of a node without a name, except those that are left to a worker.
fn delete_rows(txn: &mut Txn<'_>, node: &Node) -> Result<Left, Error> {
    let rnode = &node.rnode;
    if node.location == RowLocation::Own {
        txn.delete(key::inode(rnode.ino));
    }
    if rnode.flags.moved {
        txn.delete(key::moved(rnode.ino));
    }
    if rnode.flags.inline {
        txn.delete(key::inline(rnode.ino));
    }
    txn.shard.note_freed(rnode, node.handle());
    let xattrs_are_left = rnode.flags.has_xattrs && xattr::delete_few(txn, rnode)?;
    let orphan = Orphan { generation: rnode.generation };
    let left =
        Left { xattrs: xattrs_are_left, orphan: xattrs_are_left || orphan.generation.is_some() };
    if left.orphan {
        txn.put(key::orphan(rnode.ino), &orphan);
    }
    txn.forget_node(rnode.ino);
    Ok(left)
}
