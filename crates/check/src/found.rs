//! The directory that gets what has lost its name.
//!
//! It is the root, at the home of the root. Another site makes a directory of its own, and records
//! that its name is to be added to the root: the next start asks the other site for that, as after
//! a `mkdir` that was cut short.

use std::ops::ControlFlow;

use pelago_store::key::{self, Key, RowKind};
use pelago_store::rows::{HighWater, IntentChange, IntentRow, Partition, Rnode, Row};
use pelago_store::table::{self, Change, Table};
use pelago_store::volume::Owner;
use pelago_wire::{InodeId, Name};

use super::{Check, Parts};

/// The effect of a repair that gives a name to a file or directory, for a person.
pub(super) const GIVE_A_NAME: &str = "give it a name in the root directory";
const GIVE_A_NAME_ELSEWHERE: &str =
    "give it a name in a directory, which gets one in the root directory";

/// Returns the directory that gets what has lost its name; `None` if it does not exist yet.
pub(super) fn find(parts: Parts<'_>) -> Result<Option<InodeId>, table::Error> {
    if parts.shard.site == InodeId::ROOT.site() {
        return Ok(Some(InodeId::ROOT));
    }
    let mut made = Vec::new();
    let range = key::all(RowKind::Intent);
    parts.table.scan(&range.from, &range.to, &mut |row_key, value| {
        if let (Some(Key::Intent { number }), Ok((_, row))) =
            (Key::parse(row_key), IntentRow::decode(value))
            && row == intent(InodeId::from_raw(number))
        {
            made.push(InodeId::from_raw(number));
        }
        ControlFlow::Continue(())
    })?;
    for dir in made {
        if exists(parts.table, dir)? {
            return Ok(Some(dir));
        }
    }
    Ok(None)
}

fn exists(table: &dyn Table, dir: InodeId) -> Result<bool, table::Error> {
    let value = table.get(&key::inode(dir))?;
    Ok(value.is_some_and(|value| Rnode::decode(&value).is_ok()))
}

/// Returns the name of what is lost, or of the directory that gets it.
pub(super) fn lost_name(ino: InodeId) -> String {
    format!("lost+found.{ino}")
}

/// Returns the record by which a directory gets its name in the root.
fn intent(dir: InodeId) -> IntentRow {
    let name = Name::new(lost_name(dir).as_bytes()).expect("no slash, and short");
    IntentRow { change: IntentChange::Make, parent: InodeId::ROOT, name }
}

impl Check<'_> {
    /// Returns the directory that gets what has lost its name. If it does not exist yet there is
    /// `None`, it is made after this check, and the repair waits for the next one.
    pub(super) fn found_dir(&self) -> Option<InodeId> {
        self.wants_found.set(self.wants_found.get() || self.found.is_none());
        self.found
    }

    /// Returns the effect of a repair that gives a name, for a person.
    pub(super) fn gives_a_name(&self) -> &'static str {
        match self.shard.site == InodeId::ROOT.site() {
            true => GIVE_A_NAME,
            false => GIVE_A_NAME_ELSEWHERE,
        }
    }

    /// Adds the rows of the directory that gets what has lost its name to the plan, if a repair
    /// waits for it. Its id is the first one that the high-water mark leaves, or would if it were
    /// right.
    pub(super) fn make_found(&mut self) {
        self.plan.waits_for_found = self.wants_found.get();
        if !self.plan.waits_for_found {
            return;
        }
        let next = match self.high_water_is_right() {
            true => self.next_id,
            false => self.safe_next_id(),
        };
        let Some(dir) = self.shard.inode(next) else { return };
        let like = Rnode::root(Owner::default(), self.now);
        let rnode = Rnode { ino: dir, mode: 0o700, links: 1, ..like };
        let counts = Partition { mtime: rnode.mtime, ctime: rnode.ctime, ..Partition::default() };
        let mark = HighWater { next: next + 1 };
        self.plan.makes_found = vec![
            Change::Put(key::high_water(self.shard.shard), mark.encode(self.stamp)),
            Change::Put(key::inode(dir), rnode.encode(self.stamp)),
            Change::Put(key::partition(dir, 0), counts.encode(self.stamp)),
            Change::Put(key::intent(dir.raw()), intent(dir).encode(self.stamp)),
        ];
    }
}
