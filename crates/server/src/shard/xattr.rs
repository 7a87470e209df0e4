//! Extended attributes.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use pelago_store::key::{self, Key};
use pelago_store::rows::{Rnode, Row, Xattr};
use pelago_store::table::{Batch, Table};
use pelago_wire::{Code, Context, Error, Handle, InodeId, Reply, XattrFlags, limits};

use super::acl::List;
use super::find::later_than;
use super::tx::Tx;
use super::{Shard, damaged, failed};
use crate::answers::Asked;
use crate::cache::Node;

/// What the names of a file's extended attributes may begin with, but for [`List`]s.
const PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

/// An extended attribute that is set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SetXattr<'a> {
    /// Its name, prefix included.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// Whether it must exist or must not.
    pub flags: XattrFlags,
    /// Clear the setgid bit if it is an access control list.
    pub kill_setgid: bool,
}

impl Shard {
    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `NoXattr`, for a file that is gone too; `NotSupported` for a name of no known kind.
    pub(crate) fn get_xattr(&self, handle: Handle, name: &[u8]) -> Result<Vec<u8>, Error> {
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
    pub(crate) fn list_xattr(&self, caller: &Context, handle: Handle) -> Result<Vec<u8>, Error> {
        let mut state = self.lock();
        let node = self.node(&mut state, handle)?;
        let names = self.xattr_names(&node.rnode)?;
        Ok(if caller.uid == 0 { names } else { without_trusted(&names) })
    }

    /// Sets an extended attribute. An access control list changes the mode; one that says no more
    /// than the mode is not kept.
    ///
    /// # Errors
    /// `Exists` and `NoXattr` as the flags ask; `Range` for a name that is too long, `TooBig` for a
    /// value, and where all names together are; `NotSupported` for a name of no known kind. For an
    /// access control list also as [`List::set`].
    pub(crate) fn set_xattr(
        &self,
        handle: Handle,
        xattr: &SetXattr<'_>,
        asked: impl Into<Asked>,
    ) -> Result<(), Error> {
        let SetXattr { name, value, flags, .. } = *xattr;
        let list = check_name(name)?;
        if value.len() > limits::XATTR_VALUE_BYTES {
            return Err(Code::TooBig.into());
        }
        let mut state = self.lock();
        let mut node = self.node(&mut state, handle)?;
        let names = self.xattr_names(&node.rnode)?;
        let exists = has(&names, name);
        match flags {
            XattrFlags::Create if exists => return Err(Code::Exists.into()),
            XattrFlags::Replace if !exists => return Err(Code::NoXattr.into()),
            _ => {}
        }
        let value = match list {
            None => Some(Cow::Borrowed(value)),
            Some(list) => list.set(&mut node.rnode, xattr)?.map(Cow::Owned),
        };
        if !exists && value.is_some() && names.len() + name.len() + 1 > limits::XATTR_LIST_BYTES {
            // Not `NoSpace`, as others say: that is the word for a medium that is full.
            return Err(Code::TooBig.into());
        }
        // Before the first is there. Files inherit only what another one was given.
        self.has_xattrs.store(true, Ordering::Release);
        let mut tx = self.begin_tx(&state, asked);
        match value {
            Some(value) => put(&mut tx, &mut node.rnode, name, &value),
            None if exists => delete(&mut tx, &mut node.rnode, name, &names),
            None => {}
        }
        put_changed(&mut tx, node);
        self.finish_tx(&mut state, tx)
    }

    /// Removes an extended attribute. An access control list that is not there is as good as
    /// removed; the mode stays.
    ///
    /// # Errors
    /// `NoXattr`, `Stale`; `NotSupported` for a name of no known kind.
    pub(crate) fn remove_xattr(
        &self,
        handle: Handle,
        name: &[u8],
        asked: impl Into<Asked>,
    ) -> Result<(), Error> {
        let list = check_name(name)?;
        let mut state = self.lock();
        let mut node = self.node(&mut state, handle)?;
        let names = self.xattr_names(&node.rnode)?;
        match (list, has(&names, name)) {
            (_, true) => {}
            (Some(_), false) => return Ok(()),
            (None, false) => return Err(Code::NoXattr.into()),
        }
        let mut tx = self.begin_tx(&state, asked);
        delete(&mut tx, &mut node.rnode, name, &names);
        put_changed(&mut tx, node);
        self.finish_tx(&mut state, tx)
    }

    /// Deletes all extended attributes of a file that goes.
    pub(super) fn drop_xattrs(&self, batch: &mut Batch, ino: InodeId) -> Result<(), Error> {
        let range = key::xattrs_of(ino);
        let visited = self.table.scan(&range.from, &range.to, &mut |key, _| {
            batch.delete(key.to_vec());
            ControlFlow::Continue(())
        });
        visited.map_err(|error| failed("removing extended attributes", &error))
    }

    /// The value of an extended attribute, where it is there.
    pub(super) fn stored_xattr(&self, ino: InodeId, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let key = key::xattr(ino, name);
        let Some(value) = self.get(&key)? else { return Ok(None) };
        let (_, row) = Xattr::decode(&value).map_err(|error| damaged(&key, error))?;
        Ok(Some(row.value.to_vec()))
    }

    fn xattr_names(&self, rnode: &Rnode) -> Result<Vec<u8>, Error> {
        let mut names = Vec::new();
        if !rnode.flags.has_xattrs {
            return Ok(names);
        }
        let range = key::xattrs_of(rnode.ino);
        let visited = self.table.scan(&range.from, &range.to, &mut |key, _| {
            if let Some(Key::Xattr { name, .. }) = Key::parse(key) {
                names.extend_from_slice(name);
                names.push(0);
            }
            ControlFlow::Continue(())
        });
        visited.map_err(|error| failed("listing extended attributes", &error))?;
        Ok(names)
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

fn put(tx: &mut Tx, rnode: &mut Rnode, name: &[u8], value: &[u8]) {
    tx.batch.put(key::xattr(rnode.ino, name), Xattr { value }.encode(tx.stamp));
    rnode.flags.has_xattrs = true;
    if let Some(list) = List::named(name) {
        list.keep(rnode, true);
    }
}

/// One of `names`, all that there are, goes.
fn delete(tx: &mut Tx, rnode: &mut Rnode, name: &[u8], names: &[u8]) {
    tx.batch.delete(key::xattr(rnode.ino, name));
    rnode.flags.has_xattrs = names.len() > name.len() + 1;
    if let Some(list) = List::named(name) {
        list.keep(rnode, false);
    }
}

fn put_changed(tx: &mut Tx, mut node: Node) {
    node.rnode.ctime = later_than(node.rnode.ctime, tx.now);
    node.rnode.version += 1;
    tx.put_node(node);
    tx.answer(&Reply::Done);
}

/// Whether a name is among these, each with a NUL behind it.
fn has(names: &[u8], name: &[u8]) -> bool {
    names.split(|byte| *byte == 0).any(|known| known == name)
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
