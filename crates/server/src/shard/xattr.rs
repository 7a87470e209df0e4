//! Extended attributes.

use std::ops::ControlFlow;

use pelago_store::key::{self, Key};
use pelago_store::rows::{Row, Xattr};
use pelago_store::table::Batch;
use pelago_wire::{Code, Error, Handle, InodeId, Reply, XattrFlags, limits};

use super::find::later_than;
use super::{Shard, damaged, failed};
use crate::answers::Asked;

/// Names that a file's extended attributes may begin with.
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
    /// `NoXattr`, `Stale`; `NotSupported` for a name of no known kind.
    pub(crate) fn get_xattr(&self, handle: Handle, name: &[u8]) -> Result<Vec<u8>, Error> {
        check_name(name)?;
        let mut state = self.lock();
        let node = self.node(&mut state, handle)?;
        if !node.rnode.flags.has_xattrs {
            return Err(Code::NoXattr.into());
        }
        self.stored_xattr(handle.ino, name)?.ok_or_else(|| Code::NoXattr.into())
    }

    /// The names of all extended attributes, each with a NUL behind it.
    ///
    /// # Errors
    /// `Stale`.
    pub(crate) fn list_xattr(&self, handle: Handle) -> Result<Vec<u8>, Error> {
        let mut state = self.lock();
        let node = self.node(&mut state, handle)?;
        if !node.rnode.flags.has_xattrs {
            return Ok(Vec::new());
        }
        self.xattr_names(handle.ino)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `Exists` and `NoXattr` as the flags ask; `Range` for a name that is too long, `TooBig` for a
    /// value, and where all names together are; `NotSupported` for a name of no known kind.
    pub(crate) fn set_xattr(
        &self,
        handle: Handle,
        xattr: &SetXattr<'_>,
        asked: impl Into<Asked>,
    ) -> Result<(), Error> {
        let SetXattr { name, value, flags, .. } = *xattr;
        check_name(name)?;
        if value.len() > limits::XATTR_VALUE_BYTES {
            return Err(Code::TooBig.into());
        }
        let mut state = self.lock();
        let mut node = self.node(&mut state, handle)?;
        let names = match node.rnode.flags.has_xattrs {
            true => self.xattr_names(handle.ino)?,
            false => Vec::new(),
        };
        let exists = names.split(|byte| *byte == 0).any(|known| known == name);
        match flags {
            XattrFlags::Create if exists => return Err(Code::Exists.into()),
            XattrFlags::Replace if !exists => return Err(Code::NoXattr.into()),
            _ => {}
        }
        if !exists && names.len() + name.len() + 1 > limits::XATTR_LIST_BYTES {
            // Not `NoSpace`, as others say: that is the word for a medium that is full.
            return Err(Code::TooBig.into());
        }
        let mut tx = self.begin_tx(&state, asked);
        tx.batch.put(key::xattr(handle.ino, name), Xattr { value }.encode(tx.stamp));
        node.rnode.flags.has_xattrs = true;
        node.rnode.ctime = later_than(node.rnode.ctime, tx.now);
        node.rnode.version += 1;
        tx.put_node(node);
        tx.answer(&Reply::Done);
        self.finish_tx(&mut state, tx)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `NoXattr`, `Stale`; `NotSupported` for a name of no known kind.
    pub(crate) fn remove_xattr(
        &self,
        handle: Handle,
        name: &[u8],
        asked: impl Into<Asked>,
    ) -> Result<(), Error> {
        check_name(name)?;
        let mut state = self.lock();
        let mut node = self.node(&mut state, handle)?;
        if !node.rnode.flags.has_xattrs || self.stored_xattr(handle.ino, name)?.is_none() {
            return Err(Code::NoXattr.into());
        }
        let mut tx = self.begin_tx(&state, asked);
        tx.batch.delete(key::xattr(handle.ino, name));
        node.rnode.flags.has_xattrs = self.xattr_names(handle.ino)?.len() > name.len() + 1;
        node.rnode.ctime = later_than(node.rnode.ctime, tx.now);
        node.rnode.version += 1;
        tx.put_node(node);
        tx.answer(&Reply::Done);
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

    fn stored_xattr(&self, ino: InodeId, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let key = key::xattr(ino, name);
        let Some(value) = self.get(&key)? else { return Ok(None) };
        let (_, row) = Xattr::decode(&value).map_err(|error| damaged(&key, error))?;
        Ok(Some(row.value.to_vec()))
    }

    fn xattr_names(&self, ino: InodeId) -> Result<Vec<u8>, Error> {
        let range = key::xattrs_of(ino);
        let mut names = Vec::new();
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

fn check_name(name: &[u8]) -> Result<(), Error> {
    if name.len() > limits::XATTR_NAME_BYTES {
        return Err(Code::Range.into());
    }
    let Some(prefix) = PREFIXES.iter().find(|prefix| name.starts_with(prefix)) else {
        return Err(Code::NotSupported.into());
    };
    if name.len() == prefix.len() || name.contains(&0) {
        return Err(Code::Invalid.into());
    }
    Ok(())
}
