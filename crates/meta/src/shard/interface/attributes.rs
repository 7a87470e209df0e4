//! Reads of one node, and accessors of the shard.

use std::sync::Arc;

use pelago_store::hash::NameHasher;
use pelago_store::table::Table;
use pelago_wire::{Attr, Code, Entry, Error, FileKind, Handle, InodeId};

use crate::place_hints::PlaceHints;
use crate::row_cache::Node;
use crate::shard::Shard;

impl Shard {
    /// Returns the present attributes.
    ///
    /// # Errors
    /// `Stale`.
    pub fn attr(&self, handle: Handle) -> Result<Attr, Error> {
        self.open_inodes.refresh(handle.ino);
        let mut locked = self.lock();
        let node = locked.node(handle)?;
        locked.attr_of(&node.rnode)
    }

    /// Returns the handle with its newest hint, and the present attributes.
    ///
    /// # Errors
    /// `Stale`.
    pub fn entry(&self, handle: Handle) -> Result<Entry, Error> {
        self.open_inodes.refresh(handle.ino);
        let mut locked = self.lock();
        let node = locked.node(handle)?;
        locked.entry_of(&node)
    }

    /// Returns the row of a file and its location, without the newer values of open files.
    ///
    /// # Errors
    /// `Stale`.
    pub fn stored_node(&self, handle: Handle) -> Result<Node, Error> {
        self.lock().node(handle)
    }

    /// Returns whether the row of a file has its present size and times: true unless it is a
    /// directory or open.
    #[must_use]
    pub fn attrs_are_in_row(&self, ino: InodeId, kind: FileKind) -> bool {
        kind != FileKind::Directory && !self.open_inodes.contains(ino)
    }

    /// Returns the table.
    pub(crate) fn table(&self) -> &dyn Table {
        &*self.table
    }

    /// Returns the names under which searches found files.
    pub(crate) fn place_hints(&self) -> Arc<PlaceHints> {
        Arc::clone(&self.place_hints)
    }

    /// Returns the hash of names.
    pub(crate) const fn hasher(&self) -> NameHasher {
        self.hasher
    }

    /// Returns whether an inode was ever given this id.
    #[must_use]
    pub fn has_issued(&self, ino: InodeId) -> bool {
        ino.home() == self.id && ino.counter() < self.lock().state.ids.next()
    }

    /// Returns the node of another site that has the bytes of a file, as its row says.
    ///
    /// # Errors
    /// `Stale`.
    pub fn bytes_at(&self, handle: Handle) -> Result<Option<InodeId>, Error> {
        let mut locked = self.lock();
        if let Some(node) = locked.state.rows.node(handle.ino) {
            return Ok(node.rnode.bytes_at);
        }
        Ok(locked.node(handle)?.rnode.bytes_at)
    }

    /// Returns whether the bytes of an inode are in a content file.
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
}
