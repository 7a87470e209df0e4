//! Extended attributes.
//!
//! Their names stand in one row, so that whoever sets, lists or removes some reads no values: those
//! may be gigabytes. Access control lists are not among them, because the rnode tells of each.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use pelago_store::key;
use pelago_store::rows::{Rnode, Row, Stamp, Xattr, XattrNames};
use pelago_store::table::{Batch, Table};
use pelago_wire::{Code, Context, Error, Handle, InodeId, Reply, XattrFlags, limits};

use super::Shard;
use super::acl::{List, SetXattr};
use super::lookup::later_than;
use super::txn::Txn;
use crate::reply_cache::OpContext;
use crate::row_cache::Node;
use pelago_store::report::row_damaged;

/// What the names of a file's extended attributes may begin with, but for [`List`]s.
const PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
/// Extended attributes of a file that goes that are deleted under one hold of the lock.
const AT_ONCE: usize = limits::LOCK_ROWS / 8;

impl Shard {
    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `NoXattr`, for a file that is gone too; `NotSupported` for a name of no known kind.
    pub fn get_xattr(&self, handle: Handle, name: &[u8]) -> Result<Vec<u8>, Error> {
        let list = check_name(name)?;
        // `ls -l` asks for two of each file, and most volumes have none at all.
        if !self.has_xattrs.load(Ordering::Acquire) {
            return Err(Code::NoXattr.into());
        }
        let state = self.lock();
        // A row that is not at hand is not sought: it would take longer than finding nothing.
        let kept = state.rows.node(handle.ino).is_none_or(|node| match list {
            Some(list) => list.is_kept(&node.rnode),
            None => node.rnode.flags.has_xattrs,
        });
        if !kept {
            return Err(Code::NoXattr.into());
        }
        self.stored_xattr(handle.ino, name)?.ok_or_else(|| Code::NoXattr.into())
    }

    /// The names of all extended attributes that this caller may see, each with a NUL behind it:
    /// those of `trusted.` are for root.
    ///
    /// # Errors
    /// `Stale`.
    pub fn list_xattr(&self, caller: &Context, handle: Handle) -> Result<Vec<u8>, Error> {
        let mut state = self.lock();
        let node = self.node(&mut state, handle)?;
        let lists = List::ALL.iter().filter(|list| list.is_kept(&node.rnode));
        let mut all: Vec<u8> = lists.flat_map(|list| [list.name(), &[0]].concat()).collect();
        all.extend(self.xattr_names(&node.rnode)?);
        Ok(if caller.uid == 0 { all } else { without_trusted(&all) })
    }

    /// Sets an extended attribute. An access control list changes the mode; one that says no more
    /// than the mode is not kept.
    ///
    /// # Errors
    /// `Exists` and `NoXattr` as the flags ask; `Range` for a name that is too long, `TooBig` for a
    /// value, and where all names together are; `NotSupported` for a name of no known kind. For an
    /// access control list also as [`List::set`].
    pub fn set_xattr(
        &self,
        handle: Handle,
        xattr: &SetXattr<'_>,
        asked: impl Into<OpContext>,
    ) -> Result<(), Error> {
        let SetXattr { name, value, flags, .. } = *xattr;
        let list = check_name(name)?;
        if value.len() > limits::XATTR_VALUE_BYTES {
            return Err(Code::TooBig.into());
        }
        let mut state = self.lock();
        let mut node = self.node(&mut state, handle)?;
        let mut names = self.xattr_names(&node.rnode)?;
        let exists = match list {
            Some(list) => list.is_kept(&node.rnode),
            None => has(&names, name),
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
        let lists = List::ALL.iter().filter(|list| list.is_kept(&node.rnode));
        let all = lists.fold(names.len(), |sum, list| sum + list.name().len() + 1);
        if !exists && all + name.len() + 1 > limits::XATTR_LIST_BYTES {
            // Not `NoSpace`, as others say: that is the word for a medium that is full.
            return Err(Code::TooBig.into());
        }
        // Before the first is there. Files inherit only what another one was given.
        self.has_xattrs.store(true, Ordering::Release);
        let mut tx = self.begin_tx(&state, asked);
        match value {
            Some(value) => {
                tx.batch.put(
                    key::xattr(node.rnode.ino, name),
                    Xattr { value: &value }.encode(tx.stamp),
                );
                match list {
                    Some(list) => list.keep(&mut node.rnode, true),
                    None if exists => {}
                    None => {
                        insert(&mut names, name);
                        put_names(&mut tx, &node.rnode, &names);
                    }
                }
                node.rnode.flags.has_xattrs = true;
            }
            None if exists => delete(&mut tx, &mut node.rnode, (name, list), names),
            None => {}
        }
        put_changed(&mut tx, node);
        self.finish_txn(&mut state, tx)
    }

    /// Removes an extended attribute. An access control list that is not there is as good as
    /// removed; the mode stays.
    ///
    /// # Errors
    /// `NoXattr`, `Stale`; `NotSupported` for a name of no known kind.
    pub fn remove_xattr(
        &self,
        handle: Handle,
        name: &[u8],
        asked: impl Into<OpContext>,
    ) -> Result<(), Error> {
        let list = check_name(name)?;
        let mut state = self.lock();
        let mut node = self.node(&mut state, handle)?;
        let names = self.xattr_names(&node.rnode)?;
        match list {
            Some(list) if !list.is_kept(&node.rnode) => return Ok(()),
            None if !has(&names, name) => return Err(Code::NoXattr.into()),
            _ => {}
        }
        let mut tx = self.begin_tx(&state, asked);
        delete(&mut tx, &mut node.rnode, (name, list), names);
        put_changed(&mut tx, node);
        self.finish_txn(&mut state, tx)
    }

    /// Deletes the extended attributes of a file that goes, if they are few. Answers whether some
    /// are left for [`Shard::drop_some_xattrs`].
    pub(super) fn drop_xattrs(&self, batch: &mut Batch, rnode: &Rnode) -> Result<bool, Error> {
        for list in List::ALL.iter().filter(|list| list.is_kept(rnode)) {
            batch.delete(key::xattr(rnode.ino, list.name()));
        }
        let names = self.stored_names(rnode.ino)?;
        if split(&names).nth(AT_ONCE).is_some() {
            return Ok(true);
        }
        delete_all(batch, rnode.ino, &names);
        Ok(false)
    }

    /// Deletes some of the extended attributes that are left of a file. Answers whether there are
    /// more.
    ///
    /// # Errors
    /// Where the table fails.
    pub(super) fn drop_some_xattrs(
        &self,
        batch: &mut Batch,
        ino: InodeId,
        stamp: Stamp,
    ) -> Result<bool, Error> {
        let names = self.stored_names(ino)?;
        let bytes = split(&names).take(AT_ONCE).fold(0, |bytes, name| bytes + name.len() + 1);
        let (some, rest) = names.split_at(bytes);
        delete_all(batch, ino, some);
        if !rest.is_empty() {
            batch.put(key::xattr_names(ino), XattrNames { names: rest }.encode(stamp));
        }
        Ok(!rest.is_empty())
    }

    /// The value of an extended attribute, where it is there.
    pub(super) fn stored_xattr(&self, ino: InodeId, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let key = key::xattr(ino, name);
        let Some(value) = self.get(&key)? else { return Ok(None) };
        let (_, row) = Xattr::decode(&value).map_err(|error| row_damaged(&key, error))?;
        Ok(Some(row.value.to_vec()))
    }

    /// The names of all extended attributes but access control lists, each with a NUL behind it.
    fn xattr_names(&self, rnode: &Rnode) -> Result<Vec<u8>, Error> {
        match rnode.flags.has_xattrs {
            true => self.stored_names(rnode.ino),
            false => Ok(Vec::new()),
        }
    }

    fn stored_names(&self, ino: InodeId) -> Result<Vec<u8>, Error> {
        let key = key::xattr_names(ino);
        let Some(value) = self.get(&key)? else { return Ok(Vec::new()) };
        let (_, row) = XattrNames::decode(&value).map_err(|error| row_damaged(&key, error))?;
        Ok(row.names.to_vec())
    }
}

/// Whether any file has extended attributes; said to be so where the table does not tell.
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

/// An extended attribute goes; `names` are all that there are, but for access control lists.
fn delete(
    tx: &mut Txn,
    rnode: &mut Rnode,
    (name, list): (&[u8], Option<List>),
    mut names: Vec<u8>,
) {
    tx.batch.delete(key::xattr(rnode.ino, name));
    match list {
        Some(list) => list.keep(rnode, false),
        None => {
            names = split(&names)
                .filter(|known| *known != name)
                .fold(Vec::new(), |all, name| [&all, name, &[0]].concat());
            put_names(tx, rnode, &names);
        }
    }
    let lists = rnode.flags.has_acl || rnode.flags.has_default_acl;
    rnode.flags.has_xattrs = lists || !names.is_empty();
}

fn put_names(tx: &mut Txn, rnode: &Rnode, names: &[u8]) {
    let key = key::xattr_names(rnode.ino);
    match names.is_empty() {
        true => tx.batch.delete(key),
        false => tx.batch.put(key, XattrNames { names }.encode(tx.stamp)),
    }
}

fn delete_all(batch: &mut Batch, ino: InodeId, names: &[u8]) {
    split(names).for_each(|name| batch.delete(key::xattr(ino, name)));
    if !names.is_empty() {
        batch.delete(key::xattr_names(ino));
    }
}

/// Puts a name among these, in the order of their bytes.
fn insert(names: &mut Vec<u8>, name: &[u8]) {
    let before = split(names).take_while(|known| *known < name);
    let at = before.fold(0, |at, known| at + known.len() + 1);
    names.splice(at..at, name.iter().copied().chain([0]));
}

fn split(names: &[u8]) -> impl Iterator<Item = &[u8]> {
    names.split(|byte| *byte == 0).filter(|name| !name.is_empty())
}

fn put_changed(tx: &mut Txn, mut node: Node) {
    node.rnode.ctime = later_than(node.rnode.ctime, tx.now);
    node.rnode.version += 1;
    tx.put_node(node);
    tx.answer(&Reply::Done);
}

/// Whether a name is among these, each with a NUL behind it.
fn has(names: &[u8], name: &[u8]) -> bool {
    split(names).any(|known| known == name)
}

/// `names` without those that only root sees.
fn without_trusted(names: &[u8]) -> Vec<u8> {
    let names = names.split_inclusive(|byte| *byte == 0);
    names.filter(|name| !name.starts_with(b"trusted.")).flatten().copied().collect()
}

/// The access control list that has this name; `None` for any other name that may be.
fn check_name(name: &[u8]) -> Result<Option<List>, Error> {
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
