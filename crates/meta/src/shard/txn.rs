//! One operation's batch, and what changes in memory once it is written.
//!
//! An operation collects both in a [`Txn`] and ends with [`Shard::finish_txn`]: the batch is
//! written, and only then does memory change, so that a failed write leaves both as they were.

use pelago_store::key;
use pelago_store::rows::{NameRow, ParentPointer, Row, Stamp};
use pelago_store::table::Batch;
use pelago_wire::{Code, Error, FileKind, InodeId, Name, NameHash, Reply, Time};

use super::commit::put_node;
use super::{Shard, State};
use crate::directory::Directory;
use crate::reply_cache::{OpContext, RequestKey};
use crate::row_cache::{Named, Node, RowLocation};

/// A name in a directory, with its hash.
#[derive(Debug, Clone)]
pub(super) struct DirEntryKey {
    pub(super) dir: InodeId,
    pub(super) hash: NameHash,
    pub(super) name: Name,
}

impl DirEntryKey {
    pub(super) fn key(&self) -> Vec<u8> {
        key::name(self.dir, self.hash, self.name.as_bytes())
    }

    pub(super) fn place(&self) -> RowLocation {
        RowLocation::Name { dir: self.dir, hash: self.hash, name: self.name.clone() }
    }

    pub(super) fn parent_pointer(&self, ino: InodeId) -> Vec<u8> {
        key::parent_pointer(ino, self.dir, self.hash, self.name.as_bytes())
    }
}

/// An operation under way.
pub(super) struct Txn {
    pub(super) batch: Batch,
    pub(super) stamp: Stamp,
    pub(super) now: Time,
    /// The request whose answer is remembered.
    request_key: Option<RequestKey>,
    invalidations: Option<u64>,
    after: Vec<After>,
    /// Directories whose mark is in the batch.
    marks: Vec<InodeId>,
}

enum After {
    Came(DirEntryKey, Named),
    Went(DirEntryKey, FileKind),
    Node(Node),
    NodeGone(InodeId),
    DirectoryMade(InodeId, InodeId),
    DirectoryGone(InodeId),
    DirectoryMoved(InodeId, InodeId),
}

impl Txn {
    /// This is what is answered, and what a request that is repeated is answered again.
    pub(super) fn answer(&mut self, reply: &Reply) {
        if let Some(request_key) = self.request_key {
            request_key.put(&mut self.batch, reply, self.stamp);
        }
    }

    /// A name leads to a node from now on: its row holds the rnode or refers to it, as the node's
    /// place says.
    pub(super) fn put_name(&mut self, spot: &DirEntryKey, node: &Node) {
        let rnode = &node.rnode;
        let here = node.place != RowLocation::Own;
        let row = match here {
            true => NameRow::Rnode(rnode.clone()),
            false => NameRow::Link { ino: rnode.ino, kind: rnode.kind },
        };
        self.batch.put(spot.key(), row.encode(self.stamp));
        if !here {
            self.batch.put(spot.parent_pointer(rnode.ino), ParentPointer.encode(self.stamp));
        }
        let named = Named { name: spot.name.clone(), ino: rnode.ino, kind: rnode.kind, here };
        self.after.push(After::Came(spot.clone(), named));
    }

    /// A name that leads to a node goes. `replaced`: another comes in its place in this batch, so
    /// that its row need not be deleted.
    pub(super) fn drop_name(&mut self, spot: &DirEntryKey, node: &Node, replaced: bool) {
        if !replaced {
            self.batch.delete(spot.key());
        }
        if node.place == RowLocation::Own {
            self.batch.delete(spot.parent_pointer(node.rnode.ino));
        }
        self.after.push(After::Went(spot.clone(), node.rnode.kind));
    }

    /// The row of a node changes. A node under a name is written with the name by [`Txn::put_name`]
    /// where that changes too.
    pub(super) fn put_node(&mut self, node: Node) {
        put_node(&mut self.batch, &node, self.stamp);
        self.after.push(After::Node(node));
    }

    /// As [`Txn::put_node`], where the row is in the batch already.
    pub(super) fn remember_node(&mut self, node: Node) {
        self.after.push(After::Node(node));
    }

    /// A node is gone; its rows are deleted by the caller.
    pub(super) fn forget_node(&mut self, ino: InodeId) {
        self.after.push(After::NodeGone(ino));
    }

    /// A directory was made.
    pub(super) fn made_directory(&mut self, ino: InodeId, parent: InodeId) {
        self.after.push(After::DirectoryMade(ino, parent));
    }

    /// A directory is gone.
    pub(super) fn forget_directory(&mut self, ino: InodeId) {
        self.after.push(After::DirectoryGone(ino));
    }

    /// A directory is below another one now.
    pub(super) fn moved_directory(&mut self, ino: InodeId, parent: InodeId) {
        self.after.push(After::DirectoryMoved(ino, parent));
    }
}

impl Shard {
    /// An operation that begins now.
    pub(super) fn begin_tx(&self, state: &State, asked: impl Into<OpContext>) -> Txn {
        let OpContext { now, request_key, invalidations } = asked.into();
        Txn {
            batch: Batch::new(),
            stamp: self.stamp(state),
            now,
            request_key,
            invalidations,
            after: Vec::with_capacity(2),
            marks: Vec::new(),
        }
    }

    /// Names in a directory change: puts the mark that its count is not what is written, where the
    /// medium does not have it.
    pub(super) fn mark(&self, state: &State, tx: &mut Txn, dir: InodeId) {
        let Some(directory) = state.directories.get(dir) else { return };
        if !directory.marked && !tx.marks.contains(&dir) {
            tx.batch.put(key::partition(dir, 0), directory.row(true).encode(tx.stamp));
            tx.marks.push(dir);
        }
    }

    /// Writes the batch, then changes memory.
    ///
    /// # Errors
    /// If the table fails; `Io` if it was opened again since the operation looked at what it relies
    /// on.
    pub(super) fn finish_txn(&self, state: &mut State, tx: Txn) -> Result<(), Error> {
        // Under the shard's lock, under which the table is opened again.
        if tx
            .invalidations
            .is_some_and(|invalidations| invalidations != self.durability.invalidations())
        {
            return Err(Code::Io.into());
        }
        self.write(state, tx.batch)?;
        for dir in tx.marks {
            state.directories.marked(dir);
        }
        for after in tx.after {
            state.apply(after, tx.now);
        }
        Ok(())
    }
}

impl State {
    fn apply(&mut self, after: After, now: Time) {
        match after {
            After::Came(spot, named) => {
                self.changed.insert(spot.dir);
                self.changed.insert(named.ino);
                if let Some(directory) = self.directories.get_mut(spot.dir) {
                    directory.came(spot.hash, named.kind == FileKind::Directory, now);
                }
                self.rows.put_named(spot.dir, spot.hash, named);
            }
            After::Went(spot, kind) => {
                self.changed.insert(spot.dir);
                if let Some(directory) = self.directories.get_mut(spot.dir) {
                    directory.went(spot.hash, kind == FileKind::Directory, now);
                }
                self.rows.drop_named(spot.dir, spot.hash);
            }
            After::Node(node) => {
                self.changed.insert(node.rnode.ino);
                self.rows.put_node(node);
            }
            After::NodeGone(ino) => self.rows.drop_node(ino),
            After::DirectoryMade(ino, parent) => {
                self.directories.insert(ino, Directory::empty(now, parent));
            }
            After::DirectoryGone(ino) => self.directories.remove(ino),
            After::DirectoryMoved(ino, parent) => {
                self.moves += 1;
                if let Some(directory) = self.directories.get_mut(ino) {
                    directory.parent = Some(parent);
                }
            }
        }
    }
}
