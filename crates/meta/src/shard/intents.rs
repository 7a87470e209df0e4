//! Changes of own directories whose names are at another site, as this site records them.
//!
//! Such a change takes a step at each site. It is recorded here before the other site is asked, and
//! forgotten once that has safely done its part, or has refused it. So a crash between the steps
//! leaves neither a name that leads nowhere nor a directory that no name leads to.
//!
//! A directory that is being removed is *closed*: nothing is found or made in it. It is empty when
//! it is closed, and so when its name goes.

use std::ops::ControlFlow;

use pelago_store::key::{self, Key, RowKind};
use pelago_store::report::{row_damaged, table_failed};
use pelago_store::rows::{IntentChange, IntentRow, Row as _};
use pelago_wire::{Attr, Code, Context, Error, FileKind, Handle, InodeId, Name, Time};

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
    /// Returns the changes that are not finished, each with its directory, and closes the
    /// directories that are being removed. Called before the first request. A damaged row is left
    /// out and logged.
    ///
    /// # Errors
    /// Those of the table.
    pub fn take_up_intents(&self) -> Result<Vec<(InodeId, IntentRow)>, Error> {
        let mut intents = Vec::new();
        let range = key::all(RowKind::Intent);
        let visited = self.table.scan(&range.from, &range.to, &mut |row_key, value| {
            match (Key::parse(row_key), IntentRow::decode(value)) {
                (Some(Key::Intent { number }), Ok((_, row))) => {
                    intents.push((InodeId::from_raw(number), row));
                }
                (_, Err(error)) => drop(row_damaged(row_key, error)),
                (_, Ok(_)) => {}
            }
            ControlFlow::Continue(())
        });
        visited.map_err(|error| table_failed("reading changes of two sites", &error))?;
        let removed = intents.iter().filter(|(_, row)| row.change == IntentChange::Remove);
        self.lock().state.closed.extend(removed.map(|(dir, _)| *dir));
        Ok(intents)
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
        // Closed or new.
        let intent = key::intent(ino.raw());
        if stored::get(&*self.table, &intent)?.is_some() {
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
        txn.put(intent, &at.intent(IntentChange::Remove));
        txn.set_closed(ino, true);
        txn.batch.allow_reserve();
        txn.commit()?;
        Ok(attr)
    }

    /// Opens a closed directory again: it keeps its name.
    ///
    /// # Errors
    /// Those of the table.
    pub fn open_dir_again(&self, dir: InodeId) -> Result<(), Error> {
        let mut txn = self.begin_upkeep();
        txn.delete(key::intent(dir.raw()));
        txn.set_closed(dir, false);
        txn.batch.allow_reserve();
        txn.commit().map(drop)
    }

    /// Records that a directory which was made here has its name at the other site.
    ///
    /// # Errors
    /// Those of the table.
    pub fn end_making(&self, dir: InodeId) -> Result<(), Error> {
        let mut txn = self.begin_upkeep();
        txn.delete(key::intent(dir.raw()));
        txn.batch.allow_reserve();
        txn.commit().map(drop)
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

impl Txn<'_> {
    /// Records that a directory is to get a name at another site.
    pub(super) fn put_making(&mut self, dir: InodeId, at: &NameThere) {
        self.put(key::intent(dir.raw()), &at.intent(IntentChange::Make));
    }
}
