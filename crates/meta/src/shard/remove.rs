//! Names that go, and files that go with their last name.

use std::ops::ControlFlow;

use pelago_store::key;
use pelago_store::rows::{Orphan, Row};
use pelago_wire::{Attr, Code, Error, FileKind, Handle, InodeId, Name, Reply};

use super::lookup::later_than;
use super::txn::{DirEntryKey, Txn};
use super::{Shard, State};
use crate::directory::Directory;
use crate::reply_cache::OpContext;
use crate::row_cache::{Node, RowLocation};
use pelago_store::report::table_failed;

/// What a name that was removed led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// The file's attributes now; `links` are the names it still has (a directory: 0).
    pub attr: Attr,
    /// Whether an orphan row was written that can be worked off now.
    pub orphaned: bool,
}

impl Shard {
    /// Removes a name that is no directory's.
    ///
    /// # Errors
    /// `NotFound`, `IsDirectory`; `Stale`, `NotDirectory` for the directory.
    pub fn unlink(
        &self,
        dir: Handle,
        name: &Name,
        asked: impl Into<OpContext>,
    ) -> Result<Removed, Error> {
        let mut state = self.lock();
        let (spot, node) = self.find_at(&mut state, dir, name)?;
        if node.rnode.kind == FileKind::Directory {
            return Err(Code::IsDirectory.into());
        }
        let mut tx = self.begin_tx(&state, asked);
        self.mark(&state, &mut tx, spot.dir);
        let removed = self.drop_file(&state, &mut tx, &spot, node, false)?;
        tx.answer(&Reply::Removed(removed.attr));
        tx.batch.allow_reserve();
        self.finish_txn(&mut state, tx)?;
        Ok(removed)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `NotEmpty`; `Stale` for the directory above.
    pub fn remove_dir(
        &self,
        dir: Handle,
        name: &Name,
        asked: impl Into<OpContext>,
    ) -> Result<Removed, Error> {
        let mut state = self.lock();
        let (spot, node) = self.find_at(&mut state, dir, name)?;
        if node.rnode.kind != FileKind::Directory {
            return Err(Code::NotDirectory.into());
        }
        self.expect_empty(&state, node.rnode.ino)?;
        let mut tx = self.begin_tx(&state, asked);
        self.mark(&state, &mut tx, spot.dir);
        let removed = self.drop_directory(&state, &mut tx, &spot, node, false)?;
        tx.answer(&Reply::Removed(removed.attr));
        tx.batch.allow_reserve();
        self.finish_txn(&mut state, tx)?;
        Ok(removed)
    }

    /// The spot and the node of a name.
    pub(super) fn find_at(
        &self,
        state: &mut State,
        dir: Handle,
        name: &Name,
    ) -> Result<(DirEntryKey, Node), Error> {
        let spot = DirEntryKey {
            dir: dir.ino,
            hash: self.hasher.hash(name.as_bytes()),
            name: name.clone(),
        };
        self.directory(state, dir)?;
        let named = self.named(state, spot.dir, spot.hash, name)?.ok_or(Code::NotFound)?;
        let node = self.node_of(state, spot.dir, spot.hash, &named)?;
        Ok((spot, node))
    }

    /// Looks for a row where the names are not known, never at a count: a count may be wrong.
    pub(super) fn expect_empty(&self, state: &State, dir: InodeId) -> Result<(), Error> {
        if state.directories.get(dir).is_some_and(Directory::is_surely_empty) {
            return Ok(());
        }
        let range = key::names_of_dir(dir);
        let mut empty = true;
        let visited = self.table.scan(&range.from, &range.to, &mut |_, _| {
            empty = false;
            ControlFlow::Break(())
        });
        visited.map_err(|error| table_failed("looking into a directory", &error))?;
        if empty { Ok(()) } else { Err(Code::NotEmpty.into()) }
    }

    /// One name of a file goes; the file goes with its last, but stays as long as it is held.
    pub(super) fn drop_file(
        &self,
        state: &State,
        tx: &mut Txn,
        spot: &DirEntryKey,
        mut node: Node,
        replaced: bool,
    ) -> Result<Removed, Error> {
        tx.drop_name(spot, &node, replaced);
        let ino = node.rnode.ino;
        node.rnode.links = node.rnode.links.saturating_sub(1);
        node.rnode.ctime = later_than(node.rnode.ctime, tx.now);
        node.rnode.version += 1;
        let attr = self.attr_of(state, &node.rnode)?;
        if attr.links > 0 {
            tx.put_node(node);
            return Ok(Removed { attr, orphaned: false });
        }
        if self.holds.loses_its_names(ino) {
            self.keep_unnamed(tx, node);
            return Ok(Removed { attr, orphaned: false });
        }
        let orphaned = self.drop_rows(tx, &node)?;
        Ok(Removed { attr, orphaned })
    }

    /// An empty directory goes with its name.
    pub(super) fn drop_directory(
        &self,
        state: &State,
        tx: &mut Txn,
        spot: &DirEntryKey,
        mut node: Node,
        replaced: bool,
    ) -> Result<Removed, Error> {
        let ino = node.rnode.ino;
        node.rnode.links = 0;
        node.rnode.ctime = later_than(node.rnode.ctime, tx.now);
        let attr = self.attr_of(state, &node.rnode)?;
        tx.drop_name(spot, &node, replaced);
        tx.batch.delete(key::partition(ino, 0));
        tx.forget_directory(ino);
        let orphaned = self.drop_rows(tx, &node)?;
        Ok(Removed { attr, orphaned })
    }

    /// A file without a name that is held: its row moves to `inodes`, and an orphan row tells
    /// whoever starts after a crash to remove it.
    fn keep_unnamed(&self, tx: &mut Txn, mut node: Node) {
        let ino = node.rnode.ino;
        if node.rnode.flags.moved {
            tx.batch.delete(key::moved(ino));
            node.rnode.flags.moved = false;
        }
        let orphan = Orphan { generation: node.rnode.generation };
        tx.batch.put(key::orphan(ino), orphan.encode(tx.stamp));
        node.rnode.deleted_at = tx.now;
        node.place = RowLocation::Own;
        tx.put_node(node);
    }

    /// All rows of a node without a name go. Answers whether a content file, or many extended
    /// attributes, are left for a worker.
    fn drop_rows(&self, tx: &mut Txn, node: &Node) -> Result<bool, Error> {
        let rnode = &node.rnode;
        if node.place == RowLocation::Own {
            tx.batch.delete(key::inode(rnode.ino));
        }
        if rnode.flags.moved {
            tx.batch.delete(key::moved(rnode.ino));
        }
        if rnode.flags.inline {
            tx.batch.delete(key::inline(rnode.ino));
        }
        let xattrs = rnode.flags.has_xattrs && self.drop_xattrs(&mut tx.batch, rnode)?;
        let orphan = Orphan { generation: rnode.generation };
        let left = xattrs || orphan.generation.is_some();
        if left {
            tx.batch.put(key::orphan(rnode.ino), orphan.encode(tx.stamp));
        }
        tx.forget_node(rnode.ino);
        Ok(left)
    }
}
