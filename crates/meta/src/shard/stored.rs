//! Reads of decoded rows from the table or a snapshot. None of them needs the lock of the shard;
//! most callers hold it.

use std::ops::ControlFlow;

use pelago_store::key::{self, Key};
use pelago_store::report::{row_damaged, table_failed};
use pelago_store::rows::{Moved, NameRow, Partition, Rnode, Row, Xattr, XattrNames};
use pelago_store::table::TableRead;
use pelago_wire::{Code, Error, FileKind, Handle, InodeId, Name, NameHash};

use crate::directory::NameCount;
use crate::row_cache::{Node, RowLocation};

/// Returns the value of a row.
pub(crate) fn get(table: &dyn TableRead, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    table.get(key).map_err(|error| table_failed("reading", &error))
}

/// Returns the node of a handle, found by its hint, in a row of its own, or by its `moved` row.
pub(crate) fn node(table: &dyn TableRead, handle: Handle) -> Result<Option<Node>, Error> {
    if handle.is_under_a_name()
        && let Some(node) = node_with_hash(table, handle.dir, handle.hash, handle.ino)?
    {
        return Ok(Some(node));
    }
    if let Some(rnode) = rnode(table, handle.ino)? {
        return Ok(Some(Node { rnode, location: RowLocation::Own }));
    }
    let key = key::moved(handle.ino);
    let Some(value) = get(table, &key)? else { return Ok(None) };
    let (_, moved) = Moved::decode(&value).map_err(|error| row_damaged(&key, error))?;
    node_with_hash(table, moved.dir, moved.hash, handle.ino)
}

/// Returns the node `ino` if it is embedded in one of the names with `hash` in `dir`.
fn node_with_hash(
    table: &dyn TableRead,
    dir: InodeId,
    hash: NameHash,
    ino: InodeId,
) -> Result<Option<Node>, Error> {
    let range = key::names_with_hash(dir, hash);
    let mut found = Ok(None);
    let visited =
        table.scan(&range.from, &range.to, &mut |key, value| match NameRow::decode(value) {
            Ok((_, NameRow::Rnode(rnode))) if rnode.ino == ino => {
                found = embedded_node(key, rnode).map(Some);
                ControlFlow::Break(())
            }
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => {
                found = Err(row_damaged(key, error));
                ControlFlow::Break(())
            }
        });
    visited.map_err(|error| table_failed("seeking a row", &error))?;
    found
}

fn embedded_node(key: &[u8], rnode: Rnode) -> Result<Node, Error> {
    let (dir, hash, bytes) = key::parse_name(key).ok_or(Code::Corrupt)?;
    let name = Name::new(bytes).map_err(|_| Code::Corrupt)?;
    Ok(Node { rnode, location: RowLocation::Name { dir, hash, name } })
}

/// Returns the rnode that has a row of its own.
pub(crate) fn rnode(table: &dyn TableRead, ino: InodeId) -> Result<Option<Rnode>, Error> {
    let key = key::inode(ino);
    let Some(value) = get(table, &key)? else { return Ok(None) };
    let (_, rnode) = Rnode::decode(&value).map_err(|error| row_damaged(&key, error))?;
    Ok(Some(rnode))
}

/// Returns the counts and times of a directory.
pub(crate) fn partition(table: &dyn TableRead, dir: InodeId) -> Result<Option<Partition>, Error> {
    let key = key::partition(dir, 0);
    let Some(value) = get(table, &key)? else { return Ok(None) };
    let (_, row) = Partition::decode(&value).map_err(|error| row_damaged(&key, error))?;
    Ok(Some(row))
}

/// Returns the first name of a node that has a row of its own.
pub(crate) fn first_name_of(
    table: &dyn TableRead,
    ino: InodeId,
) -> Result<Option<(InodeId, NameHash, Name)>, Error> {
    let range = key::parent_pointers_of(ino);
    let mut found = None;
    let visited = table.scan(&range.from, &range.to, &mut |key, _| {
        if let Some(Key::ParentPointer { dir, hash, name, .. }) = Key::parse(key) {
            found = Name::new(name).ok().map(|name| (dir, hash, name));
        }
        ControlFlow::Break(())
    });
    visited.map_err(|error| table_failed("seeking a name", &error))?;
    Ok(found)
}

/// Returns the value of an extended attribute.
pub(crate) fn xattr(
    table: &dyn TableRead,
    ino: InodeId,
    name: &[u8],
) -> Result<Option<Vec<u8>>, Error> {
    let key = key::xattr(ino, name);
    let Some(value) = get(table, &key)? else { return Ok(None) };
    let (_, row) = Xattr::decode(&value).map_err(|error| row_damaged(&key, error))?;
    Ok(Some(row.value.to_vec()))
}

/// Returns the names of all extended attributes of a file except access control lists, each
/// followed by a NUL.
pub(crate) fn xattr_names(table: &dyn TableRead, ino: InodeId) -> Result<Vec<u8>, Error> {
    let key = key::xattr_names(ino);
    let Some(value) = get(table, &key)? else { return Ok(Vec::new()) };
    let (_, row) = XattrNames::decode(&value).map_err(|error| row_damaged(&key, error))?;
    Ok(row.names.to_vec())
}

/// Returns the number of names of a directory, and of directories among them; `None` if there are
/// more than `most` names.
pub(crate) fn count_names(
    table: &dyn TableRead,
    dir: InodeId,
    most: usize,
) -> Result<Option<NameCount>, Error> {
    let range = key::names_of_dir(dir);
    let most = most as u64;
    let mut count = NameCount::default();
    let visited = table.scan(&range.from, &range.to, &mut |key, value| {
        count.names += 1;
        match NameRow::decode(value) {
            Ok((_, row)) => count.directories += u64::from(row.kind() == FileKind::Directory),
            // A damaged row is still a name; an open of it fails.
            Err(error) => drop(row_damaged(key, error)),
        }
        if count.names > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    visited.map_err(|error| table_failed("counting names", &error))?;
    Ok((count.names <= most).then_some(count))
}
