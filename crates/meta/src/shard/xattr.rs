//! Extended attributes as rows.
//!
//! The names of a file's attributes are in one row, so that an operation that sets, lists or
//! removes attributes reads no values, which may be gigabytes. Access control lists are not among
//! the names, because the rnode has a flag for each. Only the old value of a tag is read, because
//! it is in the key of the row of the tag ([`super::tags`]).

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use pelago_store::key;
use pelago_store::rows::{Rnode, Xattr, XattrNames};
use pelago_store::table::{Table, TableRead};
use pelago_wire::xattr::{PREFIXES, tag_key};
use pelago_wire::{Code, Context, Error, Handle, InodeId, Reply, XattrFlags, limits};

use super::acl::{List, SetXattr};
use super::locked::Locked;
use super::lookup::later_than;
use super::tags::{self, TAGS_AT_ONCE};
use super::txn::Txn;
use super::{Shard, stored};
use crate::reply_cache::OpContext;
use crate::row_cache::Node;

/// The most extended attributes of a removed file that are deleted under one hold of the lock.
const DELETED_AT_ONCE: usize = limits::LOCK_ROWS / 8;

impl Shard {
    /// Returns whether a file of the volume may have extended attributes.
    #[must_use]
    pub fn has_xattrs(&self) -> bool {
        self.has_xattrs.load(Ordering::Acquire)
    }

    /// Returns the value of an extended attribute.
    ///
    /// # Errors
    /// `NoXattr`, also for a file that is gone; `Range`, `Invalid`, `NotSupported` for the name.
    pub fn get_xattr(&self, handle: Handle, name: &[u8]) -> Result<Vec<u8>, Error> {
        let list = check_name(name)?;
        // `ls -l` reads two attributes of each file, and most volumes have none at all.
        if !self.has_xattrs() {
            return Err(Code::NoXattr.into());
        }
        get(&self.lock(), handle, name, list)
    }

    /// Returns the names of all extended attributes that a caller may see, each followed by a NUL.
    /// Names in `trusted.` are for root.
    ///
    /// # Errors
    /// `Stale`.
    pub fn list_xattr(&self, caller: &Context, handle: Handle) -> Result<Vec<u8>, Error> {
        list(&mut self.lock(), caller, handle)
    }

    /// Sets an extended attribute. An access control list changes the mode; a list that is
    /// equivalent to the mode is not stored.
    ///
    /// # Errors
    /// `Exists` and `NoXattr` as the flags demand; `Range`, `Invalid`, `NotSupported` for the name;
    /// `TooBig` if the value, or all names together, are too long. For an access control list also
    /// `Invalid` and `NotSupported`, and `AccessDenied` for a default list on a file.
    pub fn set_xattr(
        &self,
        handle: Handle,
        xattr: &SetXattr<'_>,
        op: impl Into<OpContext>,
    ) -> Result<(), Error> {
        let list = check_name(xattr.name)?;
        if xattr.value.len() > limits::XATTR_VALUE_BYTES {
            return Err(Code::TooBig.into());
        }
        let mut txn = self.begin(op);
        set(&mut txn, handle, xattr, list)?;
        txn.commit()?;
        Ok(())
    }

    /// Removes an extended attribute. Without effect for an access control list that does not
    /// exist; the mode stays.
    ///
    /// # Errors
    /// `NoXattr`, `Stale`; `Range`, `Invalid`, `NotSupported` for the name.
    pub fn remove_xattr(
        &self,
        handle: Handle,
        name: &[u8],
        op: impl Into<OpContext>,
    ) -> Result<(), Error> {
        let list = check_name(name)?;
        let mut txn = self.begin(op);
        remove(&mut txn, handle, name, list)?;
        txn.commit()?;
        Ok(())
    }
}

/// Checks a name. Returns the kind of access control list that has this name, if any.
///
/// # Errors
/// `Range` if it is too long, `NotSupported` for an unknown prefix, `Invalid` if nothing follows
/// the prefix or if it has a NUL.
pub(super) fn check_name(name: &[u8]) -> Result<Option<List>, Error> {
    if name.len() > limits::XATTR_NAME_BYTES {
        return Err(Code::Range.into());
    }
    if let Some(list) = List::named(name) {
        return Ok(Some(list));
    }
    let Some(prefix) = PREFIXES.iter().find(|prefix| name.starts_with(prefix)) else {
        return Err(Code::NotSupported.into());
    };
    if name.len() == prefix.len() || name.contains(&0) {
        return Err(Code::Invalid.into());
    }
    Ok(None)
}

/// Returns the value of an extended attribute.
///
/// # Errors
/// `NoXattr`, also for a file that is gone.
pub(super) fn get(
    locked: &Locked<'_>,
    handle: Handle,
    name: &[u8],
    list: Option<List>,
) -> Result<Vec<u8>, Error> {
    // A node that is not cached is not read first: that would take longer than to find no
    // attribute.
    let may_exist = locked.state.rows.node(handle.ino).is_none_or(|node| match list {
        Some(list) => list.is_on(&node.rnode),
        None => node.rnode.flags.has_xattrs,
    });
    if !may_exist {
        return Err(Code::NoXattr.into());
    }
    stored::xattr(&*locked.shard.table, handle.ino, name)?.ok_or_else(|| Code::NoXattr.into())
}

/// Returns the names that a caller may see, each followed by a NUL. Names in `trusted.` are for
/// root.
///
/// # Errors
/// `Stale`.
pub(super) fn list(
    locked: &mut Locked<'_>,
    caller: &Context,
    handle: Handle,
) -> Result<Vec<u8>, Error> {
    let node = locked.node(handle)?;
    let lists = List::ALL.iter().filter(|list| list.is_on(&node.rnode));
    let mut all: Vec<u8> = lists.flat_map(|list| [list.name(), &[0]].concat()).collect();
    all.extend(names_of(locked, &node.rnode)?);
    Ok(if caller.uid == 0 { all } else { without_trusted(&all) })
}

/// Sets an extended attribute. An access list changes the mode; a list that is equivalent to the
/// mode is not stored.
///
/// # Errors
/// `Exists` and `NoXattr` as the flags demand; `TooBig` if the value, or all names together, are
/// too long; for an access control list also as [`List::set`]; for a tag if its old value is
/// damaged.
pub(super) fn set(
    txn: &mut Txn<'_>,
    handle: Handle,
    xattr: &SetXattr<'_>,
    list: Option<List>,
) -> Result<(), Error> {
    let SetXattr { name, value, flags, .. } = *xattr;
    let mut node = txn.node(handle)?;
    let mut names = names_of(txn, &node.rnode)?;
    let exists = match list {
        Some(list) => list.is_on(&node.rnode),
        None => contains(&names, name),
    };
    match flags {
        XattrFlags::Create if exists => return Err(Code::Exists.into()),
        XattrFlags::Replace if !exists => return Err(Code::NoXattr.into()),
        _ => {}
    }
    let value = match list {
        None => Some(Cow::Borrowed(value)),
        Some(list) => list.set(&mut node.rnode, xattr)?.map(Cow::Owned),
    };
    let lists = List::ALL.iter().filter(|list| list.is_on(&node.rnode));
    let all = lists.fold(names.len(), |sum, list| sum + list.name().len() + 1);
    if !exists && all + name.len() + 1 > limits::XATTR_LIST_BYTES {
        // Other file systems return `NoSpace`; here that means a full disk.
        return Err(Code::TooBig.into());
    }
    // Set before the first attribute exists. Files inherit only lists that were set before.
    txn.shard.has_xattrs.store(true, Ordering::Release);
    match value {
        Some(value) => {
            tags::set(txn, &node, name, &value, exists)?;
            put(txn, node.rnode.ino, name, &value);
            match list {
                Some(list) => list.set_flag(&mut node.rnode, true),
                None if exists => {}
                None => {
                    insert(&mut names, name);
                    put_names(txn, &node.rnode, &names);
                }
            }
            node.rnode.flags.has_xattrs = true;
        }
        None if exists => delete(txn, &mut node.rnode, name, list, names)?,
        None => {}
    }
    put_changed(txn, node);
    Ok(())
}

/// Removes an extended attribute. Without effect for an access control list that does not exist;
/// the mode stays.
///
/// # Errors
/// `NoXattr`, `Stale`; for a tag if its value is damaged.
pub(super) fn remove(
    txn: &mut Txn<'_>,
    handle: Handle,
    name: &[u8],
    list: Option<List>,
) -> Result<(), Error> {
    let mut node = txn.node(handle)?;
    let names = names_of(txn, &node.rnode)?;
    match list {
        Some(list) if !list.is_on(&node.rnode) => return Ok(()),
        None if !contains(&names, name) => return Err(Code::NoXattr.into()),
        _ => {}
    }
    delete(txn, &mut node.rnode, name, list, names)?;
    put_changed(txn, node);
    Ok(())
}

/// Deletes the extended attributes of a removed file if they are few. Returns whether some are left
/// for [`delete_some`].
///
/// # Errors
/// If the table fails, or the row of the names or the value of a tag is damaged.
pub(super) fn delete_few(txn: &mut Txn<'_>, rnode: &Rnode) -> Result<bool, Error> {
    for list in List::ALL.iter().filter(|list| list.is_on(rnode)) {
        txn.delete(key::xattr(rnode.ino, list.name()));
    }
    let names = stored_names(txn, rnode.ino)?;
    if bytes_at_once(&names) < names.len() {
        return Ok(true);
    }
    delete_all(txn, rnode.ino, &names)?;
    Ok(false)
}

/// Deletes some of the extended attributes that are left of a file. Returns whether there are more.
///
/// # Errors
/// As [`delete_few`].
pub(super) fn delete_some(txn: &mut Txn<'_>, ino: InodeId) -> Result<bool, Error> {
    let names = stored_names(txn, ino)?;
    let (some, rest) = names.split_at(bytes_at_once(&names));
    delete_all(txn, ino, some)?;
    if !rest.is_empty() {
        txn.put(key::xattr_names(ino), &XattrNames { names: rest });
    }
    Ok(!rest.is_empty())
}

/// Restores the rows of extended attributes that [`delete_few`] deleted, from a snapshot.
/// `has_rows`: true if it left the rows that are no access control lists.
///
/// # Errors
/// As [`delete_few`]; `TooBig` if they have too many bytes for one batch.
pub(super) fn put_back(
    txn: &mut Txn<'_>,
    before: &dyn TableRead,
    node: &Node,
    has_rows: bool,
) -> Result<(), Error> {
    let ino = node.rnode.ino;
    let names = match has_rows {
        true => Vec::new(),
        false => stored::xattr_names(before, ino)?,
    };
    let mut left = limits::REMOVED_XATTR_BYTES;
    let lists = List::ALL.iter().filter(|list| list.is_on(&node.rnode)).map(|list| list.name());
    for name in lists.chain(split(&names)) {
        let value = stored::xattr(before, ino, name)?.ok_or(Code::Corrupt)?;
        left = left.checked_sub(value.len()).ok_or(Code::TooBig)?;
        tags::set(txn, node, name, &value, false)?;
        put(txn, ino, name, &value);
    }
    if !names.is_empty() {
        txn.put(key::xattr_names(ino), &XattrNames { names: &names });
    }
    Ok(())
}

/// Returns whether any file has extended attributes; true if the table fails.
pub(super) fn are_in(table: &dyn Table) -> bool {
    let from = key::xattrs_of(InodeId::from_raw(0)).from;
    let to = key::xattrs_of(InodeId::from_raw(u64::MAX)).to;
    let mut found = false;
    let visited = table.scan(&from, &to, &mut |_, _| {
        found = true;
        ControlFlow::Break(())
    });
    found || visited.is_err()
}

/// Returns the length of the names that are deleted under one hold of the lock.
fn bytes_at_once(names: &[u8]) -> usize {
    let mut bytes = 0;
    let mut tags = 0;
    for name in split(names).take(DELETED_AT_ONCE) {
        tags += usize::from(tag_key(name).is_some());
        if tags > TAGS_AT_ONCE {
            break;
        }
        bytes += name.len() + 1;
    }
    bytes
}

/// Returns the names of all extended attributes except access control lists, each followed by a
/// NUL.
pub(super) fn names_of(locked: &Locked<'_>, rnode: &Rnode) -> Result<Vec<u8>, Error> {
    match rnode.flags.has_xattrs {
        true => stored_names(locked, rnode.ino),
        false => Ok(Vec::new()),
    }
}

fn stored_names(locked: &Locked<'_>, ino: InodeId) -> Result<Vec<u8>, Error> {
    stored::xattr_names(&*locked.shard.table, ino)
}

/// Deletes an extended attribute. `names`: the names that [`names_of`] returned.
///
/// # Errors
/// If the table fails, or the value of a tag is damaged.
fn delete(
    txn: &mut Txn<'_>,
    rnode: &mut Rnode,
    name: &[u8],
    list: Option<List>,
    mut names: Vec<u8>,
) -> Result<(), Error> {
    tags::remove(txn, rnode.ino, name)?;
    delete_row(txn, rnode.ino, name);
    match list {
        Some(list) => list.set_flag(rnode, false),
        None => {
            names = split(&names)
                .filter(|known| *known != name)
                .fold(Vec::new(), |all, name| [&all, name, &[0]].concat());
            put_names(txn, rnode, &names);
        }
    }
    let lists = rnode.flags.has_acl || rnode.flags.has_default_acl;
    rnode.flags.has_xattrs = lists || !names.is_empty();
    Ok(())
}

/// Puts the row of an extended attribute. If it is a tag, [`tags::set`] puts the row of the tag.
fn put(txn: &mut Txn<'_>, ino: InodeId, name: &[u8], value: &[u8]) {
    txn.tags.note_attribute(name);
    txn.put(key::xattr(ino, name), &Xattr { value });
}

/// Deletes the row of an extended attribute. If it is a tag, [`tags::remove`] deletes the row of
/// the tag.
fn delete_row(txn: &mut Txn<'_>, ino: InodeId, name: &[u8]) {
    txn.tags.note_attribute(name);
    txn.delete(key::xattr(ino, name));
}

fn put_names(txn: &mut Txn<'_>, rnode: &Rnode, names: &[u8]) {
    let key = key::xattr_names(rnode.ino);
    match names.is_empty() {
        true => txn.delete(key),
        false => txn.put(key, &XattrNames { names }),
    }
}

fn delete_all(txn: &mut Txn<'_>, ino: InodeId, names: &[u8]) -> Result<(), Error> {
    for name in split(names) {
        tags::remove(txn, ino, name)?;
        delete_row(txn, ino, name);
    }
    if !names.is_empty() {
        txn.delete(key::xattr_names(ino));
    }
    Ok(())
}

fn put_changed(txn: &mut Txn<'_>, mut node: Node) {
    node.rnode.ctime = later_than(node.rnode.ctime, txn.now);
    node.rnode.version += 1;
    txn.put_node(node);
    txn.store_reply(&Reply::Done);
}

/// Inserts a name among others in the order of their bytes.
fn insert(names: &mut Vec<u8>, name: &[u8]) {
    let before = split(names).take_while(|known| *known < name);
    let at = before.fold(0, |at, known| at + known.len() + 1);
    names.splice(at..at, name.iter().copied().chain([0]));
}

/// Returns each name of a list.
pub(super) fn split(names: &[u8]) -> impl Iterator<Item = &[u8]> {
    names.split(|byte| *byte == 0).filter(|name| !name.is_empty())
}

fn contains(names: &[u8], name: &[u8]) -> bool {
    split(names).any(|known| known == name)
}

/// Returns the names without those that only root sees.
fn without_trusted(names: &[u8]) -> Vec<u8> {
    let names = names.split_inclusive(|byte| *byte == 0);
    names.filter(|name| !name.starts_with(b"trusted.")).flatten().copied().collect()
}
