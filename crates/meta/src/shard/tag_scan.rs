//! Completion of the rows of tags in a volume that was written by a program without such rows.
//!
//! Rows are read without the lock. A row that seems wrong is examined again under the lock, some
//! rows at a time, because operations change tags meanwhile; these leave their own rows right.

use std::ops::ControlFlow;

use pelago_store::key::{self, Key, KeyRange, RowKind};
use pelago_store::report::table_failed;
use pelago_store::rows::{Row, Xattr};
use pelago_store::table::{self, Table};
use pelago_wire::xattr::{TAG_PREFIX, tag_key};
use pelago_wire::{Code, Error, Handle, InodeId};

use super::scan::Part;
use super::tags::{self, TAGS_AT_ONCE};
use super::txn::Txn;
use super::xattr::{names_of, split};
use super::{Shard, stored};

/// The most rows that one call reads without the lock.
const ROWS_AT_ONCE: usize = 1024;
/// Bytes of values after which a call reads no further row.
const BYTES_AT_ONCE: usize = 1 << 20;

/// Returns the keys of rows of tags that no file seems to have, among the next rows from `from` on
/// (empty: from the first).
pub(super) fn strays(table: &dyn Table, from: &[u8]) -> Result<Part<Vec<u8>>, Error> {
    let mut keys = Vec::new();
    let next = each(table, RowKind::Tag, from, &mut |key, _| {
        // A key that cannot be parsed is that of no tag.
        let of_tag = match Key::parse(key) {
            Some(Key::Tag { tag, ino, .. }) => {
                let name = [TAG_PREFIX.as_bytes(), tag.as_bytes()].concat();
                key_of(tag, ino, table.get(&key::xattr(ino, &name))?.as_deref())
            }
            _ => None,
        };
        if of_tag.as_deref() != Some(key) {
            keys.push(key.to_vec());
        }
        Ok(())
    })?;
    Ok((keys, next))
}

/// Deletes these rows of tags, except those of tags that a file has.
pub(super) fn delete_strays(shard: &Shard, keys: &[Vec<u8>]) -> Result<(), Error> {
    for keys in keys.chunks(TAGS_AT_ONCE) {
        let mut txn = shard.begin_upkeep();
        for key in keys {
            let of_tag = match Key::parse(key) {
                Some(Key::Tag { tag, ino, .. }) => {
                    let name = [TAG_PREFIX.as_bytes(), tag.as_bytes()].concat();
                    unless_damaged(tags::stored_key(&txn, ino, &name))?.flatten()
                }
                _ => None,
            };
            if of_tag.as_ref() != Some(key) {
                txn.delete(key.clone());
            }
        }
        txn.commit()?;
    }
    Ok(())
}

/// Returns the files that seem to have a tag without a row, among the next extended attributes from
/// the key `from` on (empty: from the first).
pub(super) fn without_rows(table: &dyn Table, from: &[u8]) -> Result<Part<InodeId>, Error> {
    let mut inos = Vec::new();
    let next = each(table, RowKind::Xattr, from, &mut |key, value| {
        if let Some(Key::Xattr { ino, name }) = Key::parse(key)
            && inos.last() != Some(&ino)
            && let Some(tag) = tag_key(name)
            && let Some(key) = key_of(tag, ino, Some(value))
            && table.get(&key)?.is_none()
        {
            inos.push(ino);
        }
        Ok(())
    })?;
    Ok((inos, next))
}

/// Puts the rows of all tags of these files. Returns the files that were not found at the location
/// in their handles.
pub(super) fn put_rows(shard: &Shard, handles: &[Handle]) -> Result<Vec<InodeId>, Error> {
    let mut lost = Vec::new();
    // The files that are left, and the name after which the next tag of the first file comes.
    let mut handles = handles;
    let mut after = Vec::new();
    while !handles.is_empty() {
        let mut txn = shard.begin_upkeep();
        let mut room = TAGS_AT_ONCE;
        while let Some((handle, rest)) = handles.split_first()
            && room > 0
        {
            room -= 1;
            let left = match unless_damaged(put_some(&mut txn, *handle, &mut after, &mut room))? {
                Some(Some(left)) => left,
                Some(None) => {
                    lost.push(handle.ino);
                    false
                }
                None => false,
            };
            if !left {
                after.clear();
                handles = rest;
            }
        }
        txn.commit()?;
    }
    Ok(lost)
}

/// Puts the rows of a file's tags after the name `after`, at most `room`. Returns whether there may
/// be more; `None` if the file is not found.
fn put_some(
    txn: &mut Txn<'_>,
    handle: Handle,
    after: &mut Vec<u8>,
    room: &mut usize,
) -> Result<Option<bool>, Error> {
    // A node that is read here is not cached: the cache is for the nodes that programs use.
    let cached = txn.state.rows.node(handle.ino).cloned();
    let node = match cached {
        Some(node) => node,
        None => match stored::node(&*txn.shard.table, handle)? {
            Some(node) => node,
            None => return Ok(None),
        },
    };
    let names = names_of(txn, &node.rnode)?;
    let is_next = |name: &&[u8]| *name > after.as_slice() && tag_key(name).is_some();
    let some: Vec<_> = split(&names).filter(is_next).take(*room).collect();
    let left = some.len() == *room;
    *room -= some.len();
    for name in &some {
        if let Some(Some(key)) = unless_damaged(tags::stored_key(txn, handle.ino, name))? {
            tags::put(txn, &node, key);
        }
    }
    *after = some.last().map_or_else(Vec::new, |name| name.to_vec());
    Ok(Some(left))
}

/// Called with the key and the value of a row.
type VisitRow<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), table::Error> + 'a;

/// Calls `visit` with some rows of a kind from the key `from` on (empty: from the first). Returns
/// the key at which to continue; `None` after the last row.
fn each(
    table: &dyn Table,
    kind: RowKind,
    from: &[u8],
    visit: &mut VisitRow<'_>,
) -> Result<Option<Vec<u8>>, Error> {
    let KeyRange { from: first, to } = key::all(kind);
    let from = if from.is_empty() { &first } else { from };
    let mut rows = 0;
    let mut bytes = 0;
    let mut next = None;
    let mut failed = None;
    let visited = table.scan(from, &to, &mut |key, value| {
        if rows == ROWS_AT_ONCE || bytes > BYTES_AT_ONCE {
            next = Some(key.to_vec());
            return ControlFlow::Break(());
        }
        rows += 1;
        bytes += value.len();
        match visit(key, value) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    visited
        .and_then(|()| failed.map_or(Ok(()), Err))
        .map_err(|error| table_failed("comparing the rows of tags", &error))?;
    Ok(next)
}

/// Returns the key of the row of a tag, given the row of the extended attribute.
fn key_of(tag: &str, ino: InodeId, xattr: Option<&[u8]>) -> Option<Vec<u8>> {
    let (_, row) = Xattr::decode(xattr?).ok()?;
    Some(key::tag(tag, row.value, ino))
}

/// Returns `None` if a row is damaged. That is logged, and `pelago check` repairs it; the worker
/// goes on.
fn unless_damaged<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Err(error) if error.code == Code::Corrupt => Ok(None),
        result => result.map(Some),
    }
}
