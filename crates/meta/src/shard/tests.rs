//! The shard over the fake table, one file for each operation or promise.

use std::sync::Arc;
use std::thread;

use pelago_store::hash::NameHasher;
use pelago_store::key;
use pelago_store::rows::{Rnode, Row, Stamp};
use pelago_store::table::fake::FakeTable;
use pelago_store::table::{Batch, Table, TableRead};
use pelago_store::volume::Owner;
use pelago_wire::{
    Code, Context, Cookie, Entry, FileKind, Handle, InodeId, Name, NameHash, NewMode, RenameFlags,
    SetAttr, SetTime, ShardId, Time, XattrFlags,
};

use super::rename::Renamed;
use super::{BytesChange, InlineBytes, LiveAttrs, Move, NewInode, Page, Parts, SetXattr, Shard};
use crate::durability::Durability;

mod acl;
mod attr_source;
mod changed_rows;
mod claimed_ids;
mod climb;
mod counts;
mod create;
mod equal_hashes;
mod failed_write;
mod full_disk;
mod handles;
mod list;
mod lock_cost;
mod open_inodes;
mod orphans;
mod remove;
mod removed;
mod rename;
mod sessions;
mod set_attr;
mod shared_changes;
mod sites;
mod tags;
mod xattr;

const CALLER: Context = Context::direct(10, 20);
const ROOT: Handle = Handle::ROOT;

/// A shard over a fake table with a root directory.
struct Rig {
    table: FakeTable,
    shard: Shard,
}

impl Rig {
    fn new() -> Self {
        let table = FakeTable::new();
        let mut batch = Batch::new();
        let stamp = Stamp { epoch: 1, sequence: 0 };
        let root = Rnode::root(Owner { uid: 0, gid: 0 }, at(1));
        batch.put(key::inode(InodeId::ROOT), root.encode(stamp));
        table.write(&batch).unwrap();
        table.persist().unwrap();
        Self::over(table, 1, at(100))
    }

    /// A run of the shard over a table.
    fn over(table: FakeTable, epoch: u32, started: Time) -> Self {
        let shard = Shard::new(Parts {
            id: ShardId::FIRST,
            table: Arc::new(table.clone()),
            hasher: NameHasher::new(7),
            durability: Arc::new(Durability::default()),
            epoch,
            next_id: 1000 * u64::from(epoch),
            cache_bytes: 1 << 20,
            started,
        });
        Self { table, shard }
    }

    /// A run over the same table, with nothing in memory.
    fn cold(&self) -> Self {
        Self::over(self.table.clone(), 9, at(900))
    }

    /// A run after a crash of the machine that kept the first `keep` unsafe batches.
    fn crashed(&self, keep: usize) -> Self {
        Self::over(self.table.fork_crashed(keep), 2, at(500))
    }

    fn unnamed(&self, seconds: i64) -> Entry {
        let new = NewInode::file(NewMode::exactly(0o644));
        self.shard.create_unnamed(&CALLER, ROOT, new, at(seconds)).unwrap()
    }

    fn file(&self, dir: Handle, text: &str, seconds: i64) -> Entry {
        self.make(dir, text, NewInode::file(NewMode::exactly(0o644)), seconds)
    }

    fn dir(&self, dir: Handle, text: &str, seconds: i64) -> Entry {
        self.make(dir, text, NewInode::directory(NewMode::exactly(0o755)), seconds)
    }

    fn make(&self, dir: Handle, text: &str, new: NewInode, seconds: i64) -> Entry {
        self.shard.create(&CALLER, dir, &name(text), new, at(seconds)).unwrap()
    }

    fn lookup(&self, dir: Handle, text: &str) -> Result<Entry, Code> {
        self.shard.lookup(dir, &name(text)).map_err(|error| error.code)
    }

    fn rename(
        &self,
        from_dir: Handle,
        from: &str,
        to_dir: Handle,
        to: &str,
        flags: RenameFlags,
    ) -> Result<Renamed, Code> {
        let from = name(from);
        let to = name(to);
        let names = Move { from_dir, from: &from, to_dir, to: &to };
        self.shard.rename(&CALLER, names, flags, at(300)).map_err(|error| error.code)
    }

    fn links(&self, handle: Handle) -> u32 {
        self.shard.attr(handle).unwrap().links
    }

    /// All names of a directory, sorted.
    fn names(&self, dir: Handle) -> Vec<String> {
        let page =
            Page { dir, after: Cookie::START, behind: None, entries: 1000, attributes: true };
        let (entries, end) = self.shard.list(page).unwrap();
        assert!(end);
        let mut names: Vec<_> = entries.iter().map(|entry| entry.name.to_string()).collect();
        names.sort();
        names
    }

    /// The keys of all rows.
    fn row_keys(&self) -> std::collections::BTreeSet<Vec<u8>> {
        let mut keys = std::collections::BTreeSet::new();
        let visit = &mut |key: &[u8], _: &[u8]| {
            keys.insert(key.to_vec());
            std::ops::ControlFlow::Continue(())
        };
        self.table.scan(&[], &[], visit).unwrap();
        keys
    }
}

fn xattr<'a>(name: &'a [u8], value: &'a [u8], flags: XattrFlags) -> SetXattr<'a> {
    SetXattr { name, value, flags, kill_setgid: false }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn at(seconds: i64) -> Time {
    Time { seconds, nanos: 0 }
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}
