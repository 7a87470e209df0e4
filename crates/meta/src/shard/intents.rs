//! Changes of own directories whose names are at another site, as this site records them.
//!
//! Such a change takes a step at each site. It is recorded here before the other site is asked, and
//! forgotten once that has safely done its part, or has refused it. So a crash between the steps
//! leaves neither a name that leads nowhere nor a directory that no name leads to.
//!
//! A directory that is being removed is *closed*: nothing is found or made in it. It is empty when
//! it is closed, and so when its name goes.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use pelago_store::key::{self, Key, RowKind};
use pelago_store::report::{row_damaged, table_failed};
use pelago_store::rows::{IntentChange, IntentRow, Row as _};
use pelago_store::table::{self, TableRead};
use pelago_wire::{Attr, Code, Context, Error, FileKind, Handle, InodeId, Name, Time};

use super::locked::Locked;
use super::lookup::later_than;
use super::txn::Txn;
use super::{Shard, remove, stored};
use crate::reply_cache::OpContext;

/// A name at another site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameThere {
    /// The directory of the other site that has the name.
    pub parent: InodeId,
    /// The name.
    pub name: Name,
}

impl NameThere {
    /// Returns the record of a change of the directory that has this name, or is to have it.
    fn intent(&self, change: IntentChange) -> IntentRow {
        IntentRow { change, parent: self.parent, name: self.name.clone() }
    }
}

impl Shard {
    /// Returns the directories with a change that is not finished, and closes those that are being
    /// removed. A record without its directory is deleted, and so is that of the removal of a
    /// directory that is not empty. A damaged record is left out and logged; that of a directory
    /// with damage stays.
    ///
    /// # Errors
    /// Those of the table.
    pub fn take_up_intents(&self) -> Result<Vec<(InodeId, IntentRow)>, Error> {
        let mut locked = self.lock();
        let failed = |error| table_failed("reading changes of two sites", &error);
        let mut intents = stored_intents(&*self.table).map_err(failed)?;
        let mut given_up = Vec::new();
        for (dir, row) in &intents {
            let is_full = match remove::expect_empty(&locked, *dir) {
                Err(error) => error.code == Code::NotEmpty,
                Ok(()) => false,
            };
            let is_absent = match locked.node(Handle::own(*dir)) {
                Err(error) => error.code == Code::Stale,
                Ok(_) => false,
            };
            if is_absent || (is_full && row.change == IntentChange::Remove) {
                given_up.push(*dir);
            }
        }
        intents.retain(|(dir, _)| !given_up.contains(dir));
        locked.close_removed(&intents);
        drop(locked);
        for dir in given_up {
            tracing::warn!(ino = %dir, "a change of two sites is given up");
            if let Err(error) = self.forget_intent(dir) {
                tracing::warn!(%error, ino = %dir, "its record stays until the next start");
            }
        }
        Ok(intents)
    }

    /// Returns the change of a directory that is not finished. If there is none, the directory is
    /// not closed.
    ///
    /// # Errors
    /// Those of the table; `Corrupt` for a damaged record.
    pub fn intent(&self, dir: InodeId) -> Result<Option<IntentRow>, Error> {
        let mut locked = self.lock();
        let key = key::intent(dir.raw());
        match stored::get(&*self.table, &key)? {
            Some(value) => {
                let row = IntentRow::decode(&value).map_err(|error| row_damaged(&key, error))?;
                Ok(Some(row.1))
            }
            None => {
                locked.state.closed.remove(&dir);
                Ok(None)
            }
        }
    }

    /// Returns whether a directory is being removed, and its name is at another site.
    pub fn is_closed(&self, dir: InodeId) -> bool {
        // Asked for each directory that a reply shows: mostly without the lock.
        self.has_closed.load(Ordering::Acquire) && self.lock().state.closed.contains(&dir)
    }

    /// Closes an empty directory whose name is at another site, and records that it is to be
    /// removed. Returns its attributes.
    ///
    /// # Errors
    /// `NotEmpty`, `NotDirectory`, `Stale`; `Invalid` for a directory that has its name here;
    /// `Busy` if a change of it is not finished.
    pub fn close_dir(&self, dir: Handle, at: &NameThere, now: Time) -> Result<Attr, Error> {
        let mut txn = self.begin_removal(OpContext::by(&Context::direct(0, 0), now));
        let ino = dir.ino;
        // New, or closed.
        let intent = key::intent(ino.raw());
        if txn.state.closed.contains(&ino) || stored::get(&*self.table, &intent)?.is_some() {
            return Err(Code::Busy.into());
        }
        let node = txn.node(Handle::own(ino))?;
        if node.rnode.kind != FileKind::Directory {
            return Err(Code::NotDirectory.into());
        }
        if ino == InodeId::ROOT || stored::first_name_of(&*self.table, ino)?.is_some() {
            return Err(Code::Invalid.into());
        }
        remove::expect_empty(&txn, ino)?;
        let attr = txn.attr_of(&node.rnode)?;
        self.has_closed.store(true, Ordering::Release);
        txn.put(intent, &at.intent(IntentChange::Remove));
        txn.set_closed(ino, true);
        txn.batch.allow_reserve();
        txn.commit()?;
        Ok(attr)
    }

    /// Deletes the record of a change: the directory that was made has its name, or the one that is
    /// closed keeps it. A closed one stays closed until [`Shard::open_dir`].
    ///
    /// # Errors
    /// Those of the table.
    pub fn forget_intent(&self, dir: InodeId) -> Result<(), Error> {
        let mut txn = self.begin_upkeep();
        txn.delete(key::intent(dir.raw()));
        txn.batch.allow_reserve();
        txn.commit().map(drop)
    }

    /// Opens a closed directory, once the record of its removal is safely deleted: otherwise what
    /// is made in it could be in a closed directory after the next start.
    pub fn open_dir(&self, dir: InodeId) {
        self.lock().state.closed.remove(&dir);
    }

    /// Removes a directory that has no name at any site: it was closed and has lost its name, or it
    /// was made and got none. Returns its last attributes.
    ///
    /// # Errors
    /// `Stale`; `NotEmpty` for one that was not closed; those of the table.
    pub fn remove_nameless_dir(&self, dir: InodeId, now: Time) -> Result<Attr, Error> {
        let mut txn = self.begin_removal(OpContext::by(&Context::direct(0, 0), now));
        let mut node = txn.node(Handle::own(dir))?;
        remove::expect_empty(&txn, dir)?;
        node.rnode.links = 0;
        node.rnode.ctime = later_than(node.rnode.ctime, now);
        let attr = txn.attr_of(&node.rnode)?;
        remove::discard_directory(&mut txn, &node)?;
        txn.delete(key::intent(dir.raw()));
        txn.set_closed(dir, false);
        txn.batch.allow_reserve();
        txn.commit()?;
        Ok(attr)
    }
}

impl Locked<'_> {
    /// Closes the directories that are being removed, and no others.
    pub(super) fn close_removed(&mut self, intents: &[(InodeId, IntentRow)]) {
        let removed = intents.iter().filter(|(_, row)| row.change == IntentChange::Remove);
        self.state.closed = removed.map(|(dir, _)| *dir).collect();
        if !self.state.closed.is_empty() {
            self.shard.has_closed.store(true, Ordering::Release);
        }
    }
}

/// Returns the records of all changes that are not finished.
pub(super) fn stored_intents(
    table: &dyn TableRead,
) -> Result<Vec<(InodeId, IntentRow)>, table::Error> {
    let mut intents = Vec::new();
    let range = key::all(RowKind::Intent);
    table.scan(&range.from, &range.to, &mut |row_key, value| {
        match (Key::parse(row_key), IntentRow::decode(value)) {
            (Some(Key::Intent { number }), Ok((_, row))) => {
                intents.push((InodeId::from_raw(number), row));
            }
            (_, Err(error)) => drop(row_damaged(row_key, error)),
            (_, Ok(_)) => {}
        }
        ControlFlow::Continue(())
    })?;
    Ok(intents)
}

impl Txn<'_> {
    /// Records that a directory is to get a name at another site.
    pub(super) fn put_making(&mut self, dir: InodeId, at: &NameThere) {
        self.put(key::intent(dir.raw()), &at.intent(IntentChange::Make));
    }
}
