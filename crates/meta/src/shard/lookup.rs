//! Lookups: nodes by handle and by name, and the parents of directories. The caches come before the
//! table.

use pelago_store::report::row_damaged;
use pelago_store::rows::{NameRow, Rnode, Row};
use pelago_wire::{Attr, Code, Entry, Error, FileKind, Handle, InodeId, Name, Time, limits};

use super::locked::Locked;
use super::txn::DirEntryKey;
use super::{Shard, stored};
use crate::directory::Directory;
use crate::row_cache::{Named, Node};

impl Shard {
    /// Returns the node to which a name leads.
    ///
    /// # Errors
    /// `NotFound`; `Elsewhere` for a directory of another site; `NotDirectory`, `Stale` for the
    /// directory of the name.
    pub fn lookup(&self, dir: Handle, name: &Name) -> Result<Entry, Error> {
        let key = self.entry_key(dir.ino, name);
        let mut found = lookup(&mut self.lock(), &key)?;
        let mut refreshed = None;
        // The attributes are read again after each refresh, which is done without the lock; the
        // name may lead to another file by then.
        while refreshed != Some(found.attr.ino) && self.open_inodes.refresh(found.attr.ino) {
            refreshed = Some(found.attr.ino);
            found = lookup(&mut self.lock(), &key)?;
        }
        Ok(found)
    }

    /// Returns the parent of a directory. The root is its own parent.
    ///
    /// # Errors
    /// `NotDirectory`, `Stale`; `Elsewhere` if its name is at another site.
    pub fn parent(&self, dir: Handle) -> Result<Entry, Error> {
        parent(&mut self.lock(), dir)
    }
}

/// Returns the node to which a name leads. The attributes of a file that is written without
/// requests are those of its last refresh.
///
/// # Errors
/// `NotFound`; `NotDirectory`, `Stale` for the directory.
pub(super) fn lookup(locked: &mut Locked<'_>, key: &DirEntryKey) -> Result<Entry, Error> {
    let node = locked.find_entry(key)?;
    locked.entry_of(&node)
}

/// Returns the parent of a directory. The root is its own parent.
///
/// # Errors
/// `NotDirectory`, `Stale`.
pub(super) fn parent(locked: &mut Locked<'_>, dir: Handle) -> Result<Entry, Error> {
    locked.load_directory(dir)?;
    let parent = locked.parent_of(dir.ino)?;
    let node = locked.node(Handle::own(parent))?;
    locked.entry_of(&node)
}

/// The most names of a directory that are counted under the lock; a worker counts larger
/// directories.
pub(super) const RECOUNT_NAMES: usize = limits::LOCK_ROWS / 16;

impl Locked<'_> {
    /// Returns the node of a handle.
    ///
    /// # Errors
    /// `Stale`.
    pub(super) fn node(&mut self, handle: Handle) -> Result<Node, Error> {
        if let Some(node) = self.state.rows.node(handle.ino) {
            return Ok(node.clone());
        }
        let node = stored::node(&*self.shard.table, handle)?.ok_or(Code::Stale)?;
        self.state.rows.put_node(node.clone());
        Ok(node)
    }

    /// Returns the target of a name in a loaded directory.
    pub(super) fn named(&mut self, key: &DirEntryKey) -> Result<Option<Named>, Error> {
        let directory = self.state.directories.get(key.dir);
        if directory.is_some_and(|directory| directory.lacks(key.hash)) {
            return Ok(None);
        }
        if let Some(named) = self.state.rows.named(key.dir, key.hash, &key.name) {
            return Ok(Some(named.clone()));
        }
        let row_key = key.row_key();
        let Some(value) = stored::get(&*self.shard.table, &row_key)? else { return Ok(None) };
        let (_, row) = NameRow::decode(&value).map_err(|error| row_damaged(&row_key, error))?;
        let is_embedded = matches!(row, NameRow::Rnode(_));
        let named = Named { name: key.name.clone(), ino: row.ino(), kind: row.kind(), is_embedded };
        if let NameRow::Rnode(rnode) = row {
            self.state.rows.put_node(Node { rnode, location: key.location() });
        }
        self.state.rows.put_named(key.dir, key.hash, named.clone());
        Ok(Some(named))
    }

    /// Returns the node of the target of a name.
    ///
    /// # Errors
    /// `Elsewhere` if it is a directory of another site.
    pub(super) fn node_named(&mut self, key: &DirEntryKey, named: &Named) -> Result<Node, Error> {
        if !self.shard.is_home_of(named.ino) {
            return Err(Code::Elsewhere.into());
        }
        let handle = match named.is_embedded {
            true => Handle::at(named.ino, key.dir, key.hash),
            false => Handle::own(named.ino),
        };
        self.node(handle).map_err(|error| match error.code {
            // The name has a row and the node has none: that is damage, not a stale handle of the
            // caller.
            Code::Stale => Code::Corrupt.into(),
            _ => error,
        })
    }

    /// Returns the node of a name, after loading its directory.
    ///
    /// # Errors
    /// `NotFound`; `Elsewhere` for a directory of another site; `Stale`, `NotDirectory` for the
    /// directory of the name.
    pub(super) fn find_entry(&mut self, key: &DirEntryKey) -> Result<Node, Error> {
        self.load_directory(Handle::own(key.dir))?;
        let named = self.named(key)?.ok_or(Code::NotFound)?;
        self.node_named(key, &named)
    }

    /// Checks that a handle is that of a directory, and loads its counts into memory.
    ///
    /// # Errors
    /// `Stale`, `NotDirectory`; `NotFound` for one that is being removed, as Linux has it.
    pub(super) fn load_directory(&mut self, dir: Handle) -> Result<(), Error> {
        if !self.state.closed.is_empty() && self.state.closed.contains(&dir.ino) {
            return Err(Code::NotFound.into());
        }
        if self.state.directories.get(dir.ino).is_some() {
            return Ok(());
        }
        let node = self.node(Handle::own(dir.ino))?;
        if node.rnode.kind != FileKind::Directory {
            return Err(Code::NotDirectory.into());
        }
        let directory = self.stored_directory(&node.rnode)?;
        let is_recounted = directory.is_dirty_in_table && !directory.needs_recount;
        self.state.directories.insert(dir.ino, directory);
        if is_recounted {
            self.state.directories.flagged_dirty(dir.ino);
        }
        Ok(())
    }

    /// Returns a directory with the values of its rows. A count that was lost in an unclean stop is
    /// counted again here if the directory is small, so that no program sees a wrong count.
    fn stored_directory(&self, rnode: &Rnode) -> Result<Directory, Error> {
        let table = &*self.shard.table;
        let row = stored::partition(table, rnode.ino)?;
        let mut directory = Directory::stored(row.as_ref(), rnode.mtime, self.shard.started);
        if directory.needs_recount
            && let Some(count) = stored::count_names(table, rnode.ino, RECOUNT_NAMES)?
        {
            directory.set_recounted(count);
        }
        Ok(directory)
    }

    /// Returns the parent of a loaded directory. The root is its own parent.
    pub(super) fn parent_of(&mut self, dir: InodeId) -> Result<InodeId, Error> {
        if dir == InodeId::ROOT {
            return Ok(dir);
        }
        if let Some(parent) = self.state.directories.get(dir).and_then(|known| known.parent) {
            return Ok(parent);
        }
        let name = stored::first_name_of(&*self.shard.table, dir)?;
        let (parent, _, _) = name.ok_or_else(|| self.shard.without_a_name())?;
        if let Some(known) = self.state.directories.get_mut(dir) {
            known.parent = Some(parent);
        }
        Ok(parent)
    }

    /// Returns the handle of a node, and its present attributes.
    pub(super) fn entry_of(&self, node: &Node) -> Result<Entry, Error> {
        Ok(Entry { handle: node.handle(), attr: self.attr_of(&node.rnode)? })
    }

    /// Returns the present attributes of a node; for a file that is written without requests, those
    /// of the last refresh.
    pub(super) fn attr_of(&self, rnode: &Rnode) -> Result<Attr, Error> {
        let attr = rnode.attr();
        if rnode.kind != FileKind::Directory {
            return Ok(self.shard.open_inodes.merge(rnode.ino, attr));
        }
        match self.state.directories.get(rnode.ino) {
            Some(directory) => Ok(directory_attr(attr, directory)),
            None => Ok(directory_attr(attr, &self.stored_directory(rnode)?)),
        }
    }
}

/// Merges counts and times into the attributes of a directory. The links of a directory are its own
/// name, its `.`, and the `..` of each directory in it; a removed directory has none.
fn directory_attr(attr: Attr, directory: &Directory) -> Attr {
    let links = u32::try_from(directory.directories).unwrap_or(u32::MAX).saturating_add(2);
    Attr {
        size: directory.names,
        links: if attr.links == 0 { 0 } else { links },
        mtime: directory.mtime,
        ctime: attr.ctime.max(directory.ctime),
        ..attr
    }
}

/// Returns a time that is later than `before`: `now`, if the clock has advanced.
pub(super) fn later_than(before: Time, now: Time) -> Time {
    now.max(before.next())
}
