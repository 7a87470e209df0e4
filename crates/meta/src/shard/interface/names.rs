//! Operations on names.

use pelago_wire::{Context, Entry, Error, Handle, Name, RenameFlags, Time};

use crate::reply_cache::OpContext;
use crate::shard::list::Listed;
use crate::shard::rename::Renamed;
use crate::shard::{
    Move, NewInode, Page, Removed, Shard, create, link, list, lookup, remove, rename,
};

impl Shard {
    /// Returns what a name leads to.
    ///
    /// # Errors
    /// `NotFound`; `NotDirectory`, `Stale` for the directory.
    pub fn lookup(&self, dir: Handle, name: &Name) -> Result<Entry, Error> {
        let key = self.entry_key(dir.ino, name);
        let mut found = lookup::lookup(&mut self.lock(), &key)?;
        let mut refreshed = None;
        // Its attributes are read again after each refresh, which is done without the lock; the
        // name may lead to another file by then.
        while refreshed != Some(found.attr.ino) && self.open_inodes.refresh(found.attr.ino) {
            refreshed = Some(found.attr.ino);
            found = lookup::lookup(&mut self.lock(), &key)?;
        }
        Ok(found)
    }

    /// Returns the directory above a directory. The root is above itself.
    ///
    /// # Errors
    /// `NotDirectory`, `Stale`.
    pub fn parent(&self, dir: Handle) -> Result<Entry, Error> {
        lookup::parent(&mut self.lock(), dir)
    }

    /// Returns a page of a directory, without `.` and `..`, and whether the listing ends with it.
    ///
    /// # Errors
    /// `Stale`, `NotDirectory`; `TooBig` if more names share a hash than cookies can tell apart.
    pub fn list(&self, page: Page<'_>) -> Result<Listed, Error> {
        list::list(self, page)
    }

    /// Makes a node under a free name. `acquire`: it is open from the beginning, as by
    /// [`Shard::acquire`].
    ///
    /// # Errors
    /// `Exists`; `NameTooLong`, `Invalid` for a target; `Stale`, `NotDirectory` for the directory.
    pub fn create(
        &self,
        context: &Context,
        dir: Handle,
        name: &Name,
        new: NewInode,
        acquire: bool,
        now: Time,
    ) -> Result<Entry, Error> {
        new.check()?;
        let key = self.entry_key(dir.ino, name);
        let mut txn = self.begin(OpContext::by(context, now));
        let entry = create::create(&mut txn, context, &key, new)?;
        let _locked = txn.commit()?;
        if acquire {
            self.open_inodes.acquire(entry.attr.ino, false);
        }
        Ok(entry)
    }

    /// Makes a file without a name, by the rules of a directory, which does not change. The file is
    /// open from the beginning: [`Shard::link`] gives it a name, or its last [`Shard::release`]
    /// ends it.
    ///
    /// # Errors
    /// `Stale`, `NotDirectory` for the directory.
    pub fn create_unnamed(
        &self,
        context: &Context,
        dir: Handle,
        new: NewInode,
        now: Time,
    ) -> Result<Entry, Error> {
        let mut txn = self.begin(now);
        let entry = create::create_unnamed(&mut txn, context, dir, new)?;
        let _locked = txn.commit()?;
        self.open_inodes.acquire(entry.attr.ino, true);
        Ok(entry)
    }

    /// Gives a file one more name, or its first.
    ///
    /// # Errors
    /// `NotPermitted` for a directory, `Exists`, `TooManyLinks`, `NotFound` for a file that has
    /// lost its last name; `Stale`; `NotDirectory` for the directory.
    pub fn link(
        &self,
        file: Handle,
        dir: Handle,
        name: &Name,
        op: impl Into<OpContext>,
    ) -> Result<Entry, Error> {
        self.open_inodes.refresh(file.ino);
        let key = self.entry_key(dir.ino, name);
        let mut txn = self.begin(op);
        let linked = link::link(&mut txn, file, &key)?;
        let mut locked = txn.commit()?;
        if linked.was_unnamed {
            self.open_inodes.set_named(file.ino);
        }
        if let Some((key, named)) = linked.first {
            locked.state.rows.put_named(key.dir, key.hash, named);
        }
        Ok(linked.entry)
    }

    /// Removes a name that is no directory's.
    ///
    /// # Errors
    /// `NotFound`, `IsDirectory`; `Stale`, `NotDirectory` for the directory.
    pub fn unlink(
        &self,
        dir: Handle,
        name: &Name,
        op: impl Into<OpContext>,
    ) -> Result<Removed, Error> {
        let key = self.entry_key(dir.ino, name);
        let mut txn = self.begin(op);
        let removed = remove::unlink(&mut txn, &key)?;
        txn.commit()?;
        Ok(removed)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `NotEmpty`; `Stale` for the directory above.
    pub fn remove_dir(
        &self,
        dir: Handle,
        name: &Name,
        op: impl Into<OpContext>,
    ) -> Result<Removed, Error> {
        let key = self.entry_key(dir.ino, name);
        let mut txn = self.begin(op);
        let removed = remove::remove_dir(&mut txn, &key)?;
        txn.commit()?;
        Ok(removed)
    }

    /// Moves a name, as `renameat2` does. May climb a long way up the tree, outside of the lock.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `NotEmpty`, `IsDirectory`, `NotDirectory`, `WouldLoop`; `Stale` for
    /// the directories.
    pub fn rename(
        &self,
        context: &Context,
        names: Move<'_>,
        flags: RenameFlags,
        op: impl Into<OpContext>,
    ) -> Result<Renamed, Error> {
        rename::rename(self, context, names, flags, op.into())
    }

    /// As [`Shard::rename`], for threads that must not wait; `None`, and nothing is done, if it
    /// would take long.
    ///
    /// # Errors
    /// As [`Shard::rename`].
    pub fn rename_at_once(
        &self,
        context: &Context,
        names: Move<'_>,
        flags: RenameFlags,
        op: impl Into<OpContext>,
    ) -> Result<Option<Renamed>, Error> {
        rename::rename_at_once(self, context, names, flags, op.into())
    }
}
