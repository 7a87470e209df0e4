//! Hard links: a further name for a file, or its first name.

use pelago_store::key;
use pelago_store::rows::{NameRow, ParentPointer};
use pelago_wire::{Code, Entry, Error, FileKind, Handle, Name, Reply, Time, limits};

use super::Shard;
use super::lookup::later_than;
use super::txn::{DirEntryKey, Txn};
use crate::reply_cache::OpContext;
use crate::row_cache::{Named, Node, RowLocation};

/// The result of a link.
pub(super) struct Linked {
    /// The file with its new name.
    pub(super) entry: Entry,
    /// True if this is its first name.
    pub(super) was_unnamed: bool,
    /// Its previous only name, if its rnode was in the row of that: this row refers to the rnode
    /// now.
    pub(super) first: Option<(DirEntryKey, Named)>,
}

impl Shard {
    /// Adds a name to a file, perhaps its first.
    ///
    /// # Errors
    /// `NotPermitted` for a directory, `Exists`, `TooManyLinks`, `NotFound` for a file that lost
    /// its last name; `Stale`; `NotDirectory` for the directory.
    pub fn link(
        &self,
        file: Handle,
        dir: Handle,
        name: &Name,
        op: impl Into<OpContext>,
    ) -> Result<Entry, Error> {
        self.open_inodes.refresh(file.ino);
        let key = self.entry_key(dir.ino, name);
        let mut txn = self.begin(op);
        let linked = link(&mut txn, file, &key)?;
        let mut locked = txn.commit()?;
        if linked.was_unnamed {
            self.open_inodes.set_named(file.ino);
        }
        if let Some((key, named)) = linked.first {
            locked.state.rows.put_named(key.dir, key.hash, named);
        }
        Ok(linked.entry)
    }
}

/// Adds a name to a file, perhaps its first. With the second name the rnode moves to a row of its
/// own, and stays there. The rnode of a file that was created without a name is there from the
/// beginning.
///
/// # Errors
/// `NotPermitted` for a directory, `Exists`, `TooManyLinks`, `NotFound` for a file that lost its
/// last name; `Stale`; `NotDirectory` for the directory.
pub(super) fn link(txn: &mut Txn<'_>, file: Handle, key: &DirEntryKey) -> Result<Linked, Error> {
    let mut node = txn.node(file)?;
    if node.rnode.kind == FileKind::Directory {
        return Err(Code::NotPermitted.into());
    }
    txn.load_directory(Handle::own(key.dir))?;
    if txn.named(key)?.is_some() {
        return Err(Code::Exists.into());
    }
    let was_unnamed = node.rnode.links == 0;
    if was_unnamed && !awaits_a_name(txn, &node) {
        return Err(Code::NotFound.into());
    }
    if node.rnode.links >= limits::LINKS {
        return Err(Code::TooManyLinks.into());
    }
    txn.flag_dirty(key.dir);
    let first = move_to_own_row(txn, &mut node);
    if was_unnamed {
        txn.delete(key::orphan(file.ino));
    }
    node.rnode.links += 1;
    node.rnode.ctime = later_than(node.rnode.ctime, txn.now);
    node.rnode.version += 1;
    txn.put_name(key, &node);
    let entry = txn.entry_of(&node)?;
    txn.store_reply(&Reply::Entry(entry));
    txn.put_node(node);
    Ok(Linked { entry, was_unnamed, first })
}

/// Returns whether a file without a name was created without one and is open. A file that lost its
/// names gets no other name; the rows of a file that is not open may be deleted already.
fn awaits_a_name(txn: &Txn<'_>, node: &Node) -> bool {
    let was_made_so = node.rnode.deleted_at == Time::default();
    was_made_so && txn.shard.open_inodes.contains(node.rnode.ino)
}

/// Moves the rnode of a node that is embedded in its only name to a row of its own. Returns that
/// name, which refers to the row from then on.
fn move_to_own_row(txn: &mut Txn<'_>, node: &mut Node) -> Option<(DirEntryKey, Named)> {
    let RowLocation::Name { dir, hash, name } =
        std::mem::replace(&mut node.location, RowLocation::Own)
    else {
        return None;
    };
    let key = DirEntryKey { dir, hash, name: name.clone() };
    let ino = node.rnode.ino;
    let kind = node.rnode.kind;
    txn.put(key.row_key(), &NameRow::Link { ino, kind });
    txn.put(key.parent_pointer(ino), &ParentPointer);
    if node.rnode.flags.moved {
        txn.delete(key::moved(ino));
        node.rnode.flags.moved = false;
    }
    Some((key, Named { name, ino, kind, is_embedded: false }))
}
