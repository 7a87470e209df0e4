//! The removal of orphans: files that have no name and are not open.

use std::sync::atomic::Ordering;

use pelago_store::key;
use pelago_store::rows::Rnode;
use pelago_wire::{Error, Generation, Handle, InodeId};

use super::txn::Txn;
use super::{Shard, stored, xattr};

/// The sequence of the last batch that deleted rows, and the generation of the newest content file.
pub(super) type RemovedRows = (u64, Option<Generation>);

/// Deletes the rows of a file, except its orphan row: from then on it cannot be opened. Returns
/// `None` and does nothing if the file is open, has a name, or can be brought back.
pub(super) fn remove_unnamed(shard: &Shard, ino: InodeId) -> Result<Option<RemovedRows>, Error> {
    let Some((mut sequence, generation, mut xattrs_are_left)) = remove_rows(shard, ino)? else {
        return Ok(None);
    };
    while xattrs_are_left {
        let mut txn = shard.begin_upkeep();
        txn.batch.allow_reserve();
        xattrs_are_left = xattr::delete_some(&mut txn, ino)?;
        sequence = txn.commit()?.state.sequence;
    }
    Ok(Some((sequence, generation)))
}

/// Deletes the rows in one batch. Returns also whether extended attributes are left.
fn remove_rows(
    shard: &Shard,
    ino: InodeId,
) -> Result<Option<(u64, Option<Generation>, bool)>, Error> {
    let mut txn = shard.begin_upkeep();
    if shard.open_inodes.contains(ino) || shard.removed.contains(ino) {
        return Ok(None);
    }
    let (generation, xattrs_are_left) = match stored::rnode(&*shard.table, ino)? {
        Some(rnode) if rnode.links > 0 => return Ok(None),
        Some(rnode) => (rnode.generation, delete_all(&mut txn, &rnode)?),
        // Its rows were deleted with its last name, except if it had many extended attributes.
        None => (None, shard.has_xattrs.load(Ordering::Acquire)),
    };
    txn.batch.allow_reserve();
    let mut locked = txn.commit()?;
    locked.state.rows.remove_node(ino);
    Ok(Some((locked.state.sequence, generation, xattrs_are_left)))
}

/// Deletes the orphan rows and `writing` rows of files whose other rows and content files are
/// safely removed.
pub(super) fn delete_rows(txn: &mut Txn<'_>, inos: &[InodeId]) {
    txn.batch.allow_reserve();
    for ino in inos {
        assert!(
            !txn.shard.open_inodes.contains(*ino),
            "I-6: the orphan row of an open file would be deleted"
        );
        txn.delete(key::orphan(*ino));
        txn.delete(key::writing(*ino));
    }
}

/// Deletes all rows of an rnode. Returns whether extended attributes are left.
fn delete_all(txn: &mut Txn<'_>, rnode: &Rnode) -> Result<bool, Error> {
    txn.delete(key::inode(rnode.ino));
    txn.shard.note_freed(rnode, Handle::own(rnode.ino));
    if rnode.flags.inline {
        txn.delete(key::inline(rnode.ino));
    }
    if rnode.flags.moved {
        txn.delete(key::moved(rnode.ino));
    }
    match rnode.flags.has_xattrs {
        true => xattr::delete_few(txn, rnode),
        false => Ok(false),
    }
}
