//! Each kind of damage, done to a whole volume: it is found, and repaired without losing what could
//! be kept.

use std::sync::Arc;

use pelago_meta::durability::Durability;
use pelago_meta::recovery::{self, FirstRows};
use pelago_meta::shard::{
    self, BytesChange, Inherited, InlineBytes, LiveAttrs, Move, NameThere, NewInode, SetXattr,
    Shard, WritingRow,
};
use pelago_store::content::ContentStore;
use pelago_store::hash::NameHasher;
use pelago_store::key::{self, RowKind};
use pelago_store::rows::{
    HighWater, Inline as InlineRow, Moved, NameRow, Orphan, ParentPointer, Partition, Rnode,
    RnodeFlags, Row, Stamp, Tag, Writing, Xattr, XattrNames,
};
use pelago_store::table::fake::FakeTable;
use pelago_store::table::{Batch, Table, TableRead};
use pelago_store::volume::VolumeId;
use pelago_wire::xattr::{ACL_ACCESS, ACL_DEFAULT};
use pelago_wire::{
    Context, Entry, FileKind, Generation, Handle, InodeId, Name, NameHash, NewMode, RenameFlags,
    ShardId, Time, XattrFlags,
};

use super::{Applied, Damage, Parts, Plan, apply_on, plan_on};

mod content;
mod index;
mod inodes;
mod names;
mod sites;
mod tags;

const VOLUME: VolumeId = VolumeId([7; 16]);
const CALLER: Context = Context::direct(10, 20);
const NOW: Time = Time { seconds: 1_000_000, nanos: 0 };
const STAMP: Stamp = Stamp { epoch: 1, sequence: 1 };

/// The volume of another site than that of the root.
const SITE: ShardId = ShardId { site: 3, shard: 0 };

/// A volume with a file, directory or row of each kind.
struct Rig {
    shard: ShardId,
    /// The root, or a directory whose name is in the root at another site.
    top: InodeId,
    table: FakeTable,
    content: ContentStore,
    hasher: NameHasher,
    dir: Entry,
    small: Entry,
    large: Entry,
    linked: Entry,
    _folder: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        Self::at(ShardId::FIRST)
    }

    fn at(id: ShardId) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let content = ContentStore::open(folder.path()).unwrap();
        let table = FakeTable::new();
        let start = recovery::begin(&table, VOLUME, id, &FirstRows::default(), NOW).unwrap();
        let hasher = NameHasher::new(7);
        let shard = Shard::new(shard::Parts {
            id,
            table: Arc::new(table.clone()),
            hasher,
            durability: Arc::new(Durability::default()),
            epoch: start.epoch,
            next_id: start.next_id,
            cache_bytes: 1 << 20,
            started: NOW,
        });
        let make = |dir: Handle, text: &str, new| {
            shard.create(&CALLER, dir, &name(text), new, NOW).unwrap()
        };
        let top = if id == ShardId::FIRST { Handle::ROOT } else { nameless(&shard) };
        let dir = make(top, "dir", NewInode::directory(NewMode::exactly(0o755)));
        make(dir.handle, "below", NewInode::directory(NewMode::exactly(0o755)));
        let small = make(dir.handle, "small", NewInode::file(NewMode::exactly(0o644)));
        let live = |size| LiveAttrs { size, blocks: 0, mtime: NOW, ctime: NOW };
        let change = BytesChange {
            live: Some(live(5)),
            inline: InlineBytes::Put(b"hello"),
            ..BytesChange::NOTHING
        };
        shard.commit_bytes(small.handle, &change).unwrap();
        let xattr =
            SetXattr { name: b"user.a", value: b"b", flags: XattrFlags::Any, kill_setgid: false };
        shard.set_xattr(small.handle, &xattr, NOW).unwrap();
        let tag = SetXattr { name: b"user.tag.k", value: b"v", ..xattr };
        let large = make(top, "large", NewInode::file(NewMode::exactly(0o644)));
        let file = content.create(large.handle.ino, Generation::FIRST).unwrap();
        file.write_at(&[1; 10_000], 0).unwrap();
        let change = BytesChange {
            live: Some(live(10_000)),
            generation: Some(Generation::FIRST),
            writing_row: WritingRow::Put,
            ..BytesChange::NOTHING
        };
        shard.commit_bytes(large.handle, &change).unwrap();
        shard.delete_writing_rows(&[large.handle.ino]).unwrap();
        shard.set_xattr(large.handle, &tag, NOW).unwrap();
        let from = name("large");
        let to = name("renamed");
        let wanted = Move { from_dir: top, from: &from, to_dir: dir.handle, to: &to };
        let renamed = shard.rename(&CALLER, wanted, RenameFlags::Replace, NOW).unwrap();
        let large = Entry { handle: renamed.moved, ..large };
        let linked = make(top, "one", NewInode::file(NewMode::exactly(0o600)));
        let linked = shard.link(linked.handle, dir.handle, &name("two"), NOW).unwrap();
        let gone = make(top, "gone", NewInode::file(NewMode::exactly(0o644)));
        [dir, linked, gone].iter().for_each(|node| {
            shard.set_xattr(node.handle, &tag, NOW).unwrap();
        });
        shard.acquire(gone.handle).unwrap();
        shard.unlink(top, &name("gone"), NOW).unwrap();
        shard.finish().unwrap();
        table.persist().unwrap();
        let top = top.ino;
        Self { shard: id, top, table, content, hasher, dir, small, large, linked, _folder: folder }
    }

    fn parts(&self) -> Parts<'_> {
        Parts {
            shard: self.shard,
            table: &self.table,
            content: &self.content,
            volume: VOLUME,
            hasher: self.hasher,
            tags_are_complete: true,
            has_sites: self.shard != ShardId::FIRST,
            index: None,
        }
    }

    fn plan(&self) -> Plan {
        plan_on(self.parts()).unwrap()
    }

    fn put(&self, key: Vec<u8>, value: Vec<u8>) {
        let mut batch = Batch::new();
        batch.put(key, value);
        self.table.write(&batch).unwrap();
    }

    fn delete(&self, key: Vec<u8>) {
        let mut batch = Batch::new();
        batch.delete(key);
        self.table.write(&batch).unwrap();
    }

    fn name_key(&self, dir: InodeId, text: &str) -> Vec<u8> {
        key::name(dir, self.hasher.hash(text.as_bytes()), text.as_bytes())
    }

    fn name_row(&self, dir: InodeId, text: &str) -> Option<NameRow> {
        let value = self.table.get(&self.name_key(dir, text)).unwrap()?;
        Some(NameRow::decode(&value).unwrap().1)
    }

    fn rnode_at(&self, dir: InodeId, text: &str) -> Rnode {
        match self.name_row(dir, text) {
            Some(NameRow::Rnode(rnode)) => rnode,
            other => panic!("{text}: {other:?}"),
        }
    }

    /// Returns the rnode of an inode with a row of its own.
    fn own(&self, ino: InodeId) -> Rnode {
        let value = self.table.get(&key::inode(ino)).unwrap().unwrap();
        Rnode::decode(&value).unwrap().1
    }

    /// Asserts that the damage is found, and that the repair leaves a whole volume.
    fn expect(&self, wanted: &[Damage]) -> Applied {
        let found = kinds(&self.plan());
        for damage in wanted {
            assert!(found.contains(damage), "{damage:?} not in {found:?}");
        }
        let applied = apply_on(self.parts()).unwrap();
        assert_eq!(kinds(&applied.before), found);
        assert!(applied.after.findings.is_empty(), "left: {:?}", applied.after.findings);
        assert!(applied.repaired > 0);
        applied
    }

    /// Deletes the name of the directory, and the parent pointer that could restore it.
    fn lose_dir_name(&self) {
        let dir = self.dir.handle.ino;
        let hash = self.hasher.hash(b"dir");
        self.delete(self.name_key(InodeId::ROOT, "dir"));
        self.delete(key::parent_pointer(dir, InodeId::ROOT, hash, b"dir"));
    }

    /// Returns the list of a file's extended attributes, each name with a zero after it.
    fn xattr_names(&self, ino: InodeId) -> Vec<u8> {
        let row = self.table.get(&key::xattr_names(ino)).unwrap().unwrap();
        XattrNames::decode(&row).unwrap().1.names.to_vec()
    }

    /// Returns whether a repair gave the inode a name in the root.
    fn is_lost(&self, ino: InodeId) -> bool {
        self.name_row(InodeId::ROOT, &format!("lost+found.{ino}")).is_some()
    }

    /// Returns the keys of all rows.
    fn keys(&self) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let visit = &mut |key: &[u8], _: &[u8]| {
            keys.push(key.to_vec());
            std::ops::ControlFlow::Continue(())
        };
        self.table.scan(&[], &[], visit).unwrap();
        keys
    }
}

/// Makes a directory that has its name in the root, at another site.
fn nameless(shard: &Shard) -> Handle {
    let parent = Rnode::root(Default::default(), NOW).attr();
    let inherited = Inherited { parent, default_acl: None };
    let at = NameThere { parent: InodeId::ROOT, name: name("top") };
    let new = NewInode::directory(NewMode::exactly(0o755));
    let made = shard.make_nameless_dir(&CALLER, new, &inherited, &at, NOW).unwrap();
    shard.forget_intent(made.handle.ino).unwrap();
    made.handle
}

fn kinds(plan: &Plan) -> Vec<Damage> {
    plan.findings.iter().map(|finding| finding.damage).collect()
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

#[test]
fn a_whole_volume_has_no_findings() {
    let rig = Rig::new();
    let plan = rig.plan();
    assert!(plan.is_whole() && plan.findings.is_empty(), "{:?}", plan.findings);
    assert_eq!((plan.checked.nodes, plan.checked.directories), (7, 3));
    assert_eq!(plan.checked.content_files, 1);
    let applied = apply_on(rig.parts()).unwrap();
    assert_eq!(applied.repaired, 0);
    assert!(plan_on(Parts { table: &FakeTable::new(), ..rig.parts() }).unwrap().is_whole());
}

#[test]
fn rows_that_cannot_be_read_cost_no_bytes_that_can() {
    let rig = Rig::new();
    let dir = rig.dir.handle.ino;
    let small = rig.small.handle.ino;
    let large = rig.large.handle.ino;
    for text in ["small", "renamed", "two"] {
        rig.put(rig.name_key(dir, text), b"damaged".to_vec());
    }
    rig.put(key::inode(dir), b"damaged".to_vec());
    rig.put(key::partition(dir, 0), b"damaged".to_vec());
    rig.expect(&[Damage::Row]);
    assert!(rig.is_lost(small) && rig.is_lost(large));
    assert_eq!(rig.rnode_at(InodeId::ROOT, &format!("lost+found.{large}")).size, 10_000);
    assert_eq!(rig.rnode_at(InodeId::ROOT, &format!("lost+found.{small}")).size, 5);
    assert_eq!(rig.name_row(dir, "two").unwrap().ino(), rig.linked.handle.ino);
    assert_eq!(rig.own(dir).kind, FileKind::Directory);
}

/// For each row that is damaged or missing, one repair leaves a whole volume.
#[test]
fn any_row_may_be_damaged_or_missing() {
    for site in [ShardId::FIRST, SITE] {
        let keys = Rig::at(site).keys();
        assert!(keys.len() > 20, "{}", keys.len());
        for key in &keys {
            for missing in [true, false] {
                let rig = Rig::at(site);
                match missing {
                    true => rig.delete(key.clone()),
                    false => rig.put(key.clone(), b"damaged".to_vec()),
                }
                let applied = apply_on(rig.parts()).unwrap();
                let left = &applied.after.findings;
                assert!(left.is_empty(), "{} missing {missing}: {left:?}", key.escape_ascii());
            }
        }
    }
}

#[test]
fn the_table_of_another_volume_is_left_alone() {
    let rig = Rig::new();
    let parts = Parts { volume: VolumeId([8; 16]), ..rig.parts() };
    assert!(matches!(apply_on(parts), Err(super::CheckError::Foreign { .. })));
}
