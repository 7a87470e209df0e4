//! Operations on attributes and extended attributes.

use std::sync::atomic::Ordering;

use pelago_store::volume::{SHARD, SITE};
use pelago_wire::{Attr, Code, Context, Entry, Error, FileKind, Handle, InodeId, SetAttr, limits};

use crate::reply_cache::OpContext;
use crate::row_cache::Node;
use crate::shard::{SetXattr, Shard, set_attr, xattr};

impl Shard {
    /// Returns the attributes as they are now.
    ///
    /// # Errors
    /// `Stale`.
    pub fn attr(&self, handle: Handle) -> Result<Attr, Error> {
        self.open_inodes.refresh(handle.ino);
        let mut locked = self.lock();
        let node = locked.node(handle)?;
        locked.attr_of(&node.rnode)
    }

    /// Returns the handle with its newest hint, and the attributes as they are now.
    ///
    /// # Errors
    /// `Stale`.
    pub fn entry(&self, handle: Handle) -> Result<Entry, Error> {
        self.open_inodes.refresh(handle.ino);
        let mut locked = self.lock();
        let node = locked.node(handle)?;
        locked.entry_of(&node)
    }

    /// Returns the row of a file and its location, without what open files know better.
    ///
    /// # Errors
    /// `Stale`.
    pub fn stored_node(&self, handle: Handle) -> Result<Node, Error> {
        self.lock().node(handle)
    }

    /// Whether an inode has ever had this id.
    #[must_use]
    pub fn has_issued(&self, ino: InodeId) -> bool {
        let is_ours = (ino.site(), ino.shard()) == (SITE, SHARD);
        is_ours && ino.counter() < self.lock().state.ids.next()
    }

    /// Whether the bytes of an inode are in a content file.
    ///
    /// # Errors
    /// `Stale`.
    pub fn has_content(&self, handle: Handle) -> Result<bool, Error> {
        let mut locked = self.lock();
        if let Some(node) = locked.state.rows.node(handle.ino) {
            return Ok(node.rnode.flags.has_content);
        }
        Ok(locked.node(handle)?.rnode.flags.has_content)
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// `Stale`; `Invalid` for other kinds of files.
    pub fn read_link(&self, handle: Handle) -> Result<Vec<u8>, Error> {
        let node = self.lock().node(handle)?;
        match node.rnode.kind {
            FileKind::Symlink => Ok(node.rnode.target),
            _ => Err(Code::Invalid.into()),
        }
    }

    /// Changes attributes in the row. The caller changes a size, and the times of an open file
    /// that has [`LiveAttrs`](crate::shard::LiveAttrs).
    ///
    /// # Errors
    /// `Stale`; `Invalid` for a mode or a time out of range.
    pub fn set_attr(
        &self,
        handle: Handle,
        set: &SetAttr,
        op: impl Into<OpContext>,
    ) -> Result<Attr, Error> {
        set_attr::check(set)?;
        self.open_inodes.refresh(handle.ino);
        let mut txn = self.begin(op);
        let attr = set_attr::set_attr(&mut txn, handle, set)?;
        txn.commit()?;
        Ok(attr)
    }

    /// Returns the value of an extended attribute.
    ///
    /// # Errors
    /// `NoXattr`, also for a file that is gone; `Range`, `Invalid`, `NotSupported` for the name.
    pub fn get_xattr(&self, handle: Handle, name: &[u8]) -> Result<Vec<u8>, Error> {
        let list = xattr::check_name(name)?;
        // `ls -l` asks for two of each file, and most volumes have none at all.
        if !self.has_xattrs.load(Ordering::Acquire) {
            return Err(Code::NoXattr.into());
        }
        xattr::get(&self.lock(), handle, name, list)
    }

    /// Returns the names of all extended attributes that a caller may see, each followed by a NUL.
    /// Names in `trusted.` are for root.
    ///
    /// # Errors
    /// `Stale`.
    pub fn list_xattr(&self, caller: &Context, handle: Handle) -> Result<Vec<u8>, Error> {
        xattr::list(&mut self.lock(), caller, handle)
    }

    /// Sets an extended attribute. An access control list changes the mode; one that says no more
    /// than the mode is not stored.
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
        let list = xattr::check_name(xattr.name)?;
        if xattr.value.len() > limits::XATTR_VALUE_BYTES {
            return Err(Code::TooBig.into());
        }
        let mut txn = self.begin(op);
        xattr::set(&mut txn, handle, xattr, list)?;
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
        let list = xattr::check_name(name)?;
        let mut txn = self.begin(op);
        xattr::remove(&mut txn, handle, name, list)?;
        txn.commit()?;
        Ok(())
    }
}
