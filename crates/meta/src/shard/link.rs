//! More names for a file.

use pelago_store::key;
use pelago_store::rows::{NameRow, ParentPointer, Row};
use pelago_wire::{Code, Entry, Error, FileKind, Handle, Name, Reply, Time, limits};

use super::Shard;
use super::lookup::later_than;
use super::txn::{DirEntryKey, Txn};
use crate::reply_cache::OpContext;
use crate::row_cache::{Named, Node, RowLocation};

impl Shard {
    /// Gives a file one more name, or its first. With its second name its row moves to `inodes`,
    /// and stays there; that of a file that was made without a name is there from the beginning.
    ///
    /// # Errors
    /// `NotPermitted` for a directory, `Exists`, `TooManyLinks`, `NotFound` for a file that has
    /// lost its last name; `Stale`, `NotDirectory` for the directory.
    pub fn link(
        &self,
        file: Handle,
        dir: Handle,
        name: &Name,
        asked: impl Into<OpContext>,
    ) -> Result<Entry, Error> {
        self.holds.refresh(file.ino);
        let mut state = self.lock();
        let mut node = self.node(&mut state, file)?;
        if node.rnode.kind == FileKind::Directory {
            return Err(Code::NotPermitted.into());
        }
        let spot = DirEntryKey {
            dir: dir.ino,
            hash: self.hasher.hash(name.as_bytes()),
            name: name.clone(),
        };
        self.directory(&mut state, dir)?;
        if self.named(&mut state, spot.dir, spot.hash, name)?.is_some() {
            return Err(Code::Exists.into());
        }
        let unnamed = node.rnode.links == 0;
        if unnamed && !self.awaits_a_name(&node) {
            return Err(Code::NotFound.into());
        }
        if node.rnode.links >= limits::LINKS {
            return Err(Code::TooManyLinks.into());
        }
        let mut tx = self.begin_tx(&state, asked);
        self.mark(&state, &mut tx, spot.dir);
        let first = move_to_inodes(&mut tx, &mut node);
        if unnamed {
            tx.batch.delete(key::orphan(file.ino));
        }
        node.rnode.links += 1;
        node.rnode.ctime = later_than(node.rnode.ctime, tx.now);
        node.rnode.version += 1;
        tx.put_name(&spot, &node);
        let entry = self.entry(&state, &node)?;
        tx.answer(&Reply::Entry(entry));
        tx.put_node(node);
        self.finish_txn(&mut state, tx)?;
        if unnamed {
            self.holds.has_a_name(file.ino);
        }
        if let Some((spot, named)) = first {
            state.rows.put_named(spot.dir, spot.hash, named);
        }
        Ok(entry)
    }

    /// Whether a file without a name was made so, and is open. One that has lost its names gets no
    /// other; one that nobody has open may be buried already.
    fn awaits_a_name(&self, node: &Node) -> bool {
        node.rnode.deleted_at == Time::default() && self.holds.has(node.rnode.ino)
    }
}

/// A node that stood in the row of its only name stands in `inodes` now, and the name refers to it.
/// Answers what that name leads to from then on.
fn move_to_inodes(tx: &mut Txn, node: &mut Node) -> Option<(DirEntryKey, Named)> {
    let RowLocation::Name { dir, hash, name } =
        std::mem::replace(&mut node.place, RowLocation::Own)
    else {
        return None;
    };
    let spot = DirEntryKey { dir, hash, name: name.clone() };
    let (ino, kind) = (node.rnode.ino, node.rnode.kind);
    tx.batch.put(spot.key(), NameRow::Link { ino, kind }.encode(tx.stamp));
    tx.batch.put(spot.parent_pointer(ino), ParentPointer.encode(tx.stamp));
    if node.rnode.flags.moved {
        tx.batch.delete(key::moved(ino));
        node.rnode.flags.moved = false;
    }
    Some((spot, Named { name, ino, kind, here: false }))
}
