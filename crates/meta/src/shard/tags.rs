//! Rows of tags: one for each extended attribute that is a tag, written and deleted by the batch
//! that changes the attribute (I-12).
//!
//! The key of such a row has the value of the tag. So the old value of a tag is read before it
//! changes or is removed; of other extended attributes no value is read.

use pelago_store::key;
use pelago_store::rows::Tag;
use pelago_wire::xattr::tag_key;
use pelago_wire::{Error, Handle, InodeId, limits};

use super::locked::Locked;
use super::stored;
use super::txn::Txn;
use crate::row_cache::Node;

/// The most tags whose values are read under one hold of the lock.
pub(super) const TAGS_AT_ONCE: usize = limits::LOCK_ROWS / 64;

/// Puts the row of a tag that gets this value. Without effect for an extended attribute that is no
/// tag. `exists`: true if it has a value already.
///
/// # Errors
/// If the table fails, or the old value is damaged.
pub(super) fn set(
    txn: &mut Txn<'_>,
    node: &Node,
    name: &[u8],
    value: &[u8],
    exists: bool,
) -> Result<(), Error> {
    let ino = node.rnode.ino;
    let Some(tag) = tag_key(name) else { return Ok(()) };
    txn.tags.note_row(name);
    let key = key::tag(tag, value, ino);
    if exists
        && let Some(old) = stored_key(txn, ino, name)?
        && old != key
    {
        txn.delete(old);
    }
    put(txn, node, key);
    Ok(())
}

/// Deletes the row of a tag that is removed. Without effect for an extended attribute that is no
/// tag.
///
/// # Errors
/// If the table fails, or the value is damaged.
pub(super) fn remove(txn: &mut Txn<'_>, ino: InodeId, name: &[u8]) -> Result<(), Error> {
    txn.tags.note_row(name);
    if let Some(key) = stored_key(txn, ino, name)? {
        txn.delete(key);
    }
    Ok(())
}

/// Returns the key of the row of a tag that a file has; `None` if it has no such tag.
///
/// # Errors
/// If the table fails, or the value is damaged.
pub(super) fn stored_key(
    locked: &Locked<'_>,
    ino: InodeId,
    name: &[u8],
) -> Result<Option<Vec<u8>>, Error> {
    let Some(tag) = tag_key(name) else { return Ok(None) };
    let value = stored::xattr(&*locked.shard.table, ino, name)?;
    Ok(value.map(|value| key::tag(tag, &value, ino)))
}

/// Puts the row of a tag with this key and the location of the node.
pub(super) fn put(txn: &mut Txn<'_>, node: &Node, key: Vec<u8>) {
    let Handle { dir, hash, .. } = node.handle();
    txn.put(key, &Tag { dir, hash });
}
