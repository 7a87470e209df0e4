//! Each kind of damage, done to a volume that was whole: it is found, and repaired without losing
//! what could be kept.

use std::sync::Arc;

use pelago_store::content::ContentStore;
use pelago_store::hash::NameHasher;
use pelago_store::key::{self, RowKind};
use pelago_store::rows::{
    HighWater, Inline as InlineRow, Moved, NameRow, Orphan, ParentPointer, Partition, Rnode,
    RnodeFlags, Row, Stamp, Writing, Xattr, XattrNames,
};
use pelago_store::table::fake::FakeTable;
use pelago_store::table::{Batch, Table, TableRead};
use pelago_store::volume::VolumeId;
use pelago_wire::{
    Context, Entry, FileKind, Generation, Handle, InodeId, Name, NameHash, NewMode, RenameFlags,
    Time, XattrFlags,
};

use super::{Applied, Damage, Parts, Plan, apply_on, plan_on};
use pelago_meta::durability::Durability;
use pelago_meta::recovery;
use pelago_meta::shard::{
    self, BytesChange, Inline, LiveAttrs, Move, NewNode, SetXattr, Shard, WritingRow,
};
use pelago_store::volume::Owner;
use pelago_wire::xattr::{ACL_ACCESS, ACL_DEFAULT};

const VOLUME: VolumeId = VolumeId([7; 16]);
const CALLER: Context = Context::direct(10, 20);
const NOW: Time = Time { seconds: 1_000_000, nanos: 0 };
const STAMP: Stamp = Stamp { epoch: 1, sequence: 1 };

/// A volume with some of everything.
struct Rig {
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
        let folder = tempfile::tempdir().unwrap();
        let content = ContentStore::open(folder.path()).unwrap();
        let table = FakeTable::new();
        let start = recovery::begin(&table, VOLUME, Owner::default(), NOW).unwrap();
        let hasher = NameHasher::new(7);
        let shard = Shard::new(shard::Parts {
            table: Arc::new(table.clone()),
            hasher,
            durability: Arc::new(Durability::default()),
            epoch: start.epoch,
            next_id: start.next_id,
            cache_bytes: 1 << 20,
            started: NOW,
        });
        let make = |dir: Handle, text: &str, new| {
            shard.create(&CALLER, dir, &name(text), new, false, NOW).unwrap()
        };
        let dir = make(Handle::ROOT, "dir", NewNode::directory(NewMode::exactly(0o755)));
        make(dir.handle, "below", NewNode::directory(NewMode::exactly(0o755)));
        let small = make(dir.handle, "small", NewNode::file(NewMode::exactly(0o644)));
        let live = |size| LiveAttrs { size, blocks: 0, mtime: NOW, ctime: NOW };
        let change = BytesChange {
            live: Some(live(5)),
            inline: Inline::Put(b"hello"),
            ..BytesChange::NOTHING
        };
        shard.commit_bytes(small.handle, &change).unwrap();
        let xattr =
            SetXattr { name: b"user.a", value: b"b", flags: XattrFlags::Any, kill_setgid: false };
        shard.set_xattr(small.handle, &xattr, NOW).unwrap();
        let large = make(Handle::ROOT, "large", NewNode::file(NewMode::exactly(0o644)));
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
        let (from, to) = (name("large"), name("renamed"));
        let wanted = Move { from_dir: Handle::ROOT, from: &from, to_dir: dir.handle, to: &to };
        let renamed = shard.rename(&CALLER, wanted, RenameFlags::Replace, NOW).unwrap();
        let large = Entry { handle: renamed.moved, ..large };
        let linked = make(Handle::ROOT, "one", NewNode::file(NewMode::exactly(0o600)));
        let linked = shard.link(linked.handle, dir.handle, &name("two"), NOW).unwrap();
        let gone = make(Handle::ROOT, "gone", NewNode::file(NewMode::exactly(0o644)));
        shard.acquire(gone.handle).unwrap();
        shard.unlink(Handle::ROOT, &name("gone"), NOW).unwrap();
        shard.finish().unwrap();
        table.persist().unwrap();
        Self { table, content, hasher, dir, small, large, linked, _folder: folder }
    }

    fn parts(&self) -> Parts<'_> {
        Parts { table: &self.table, content: &self.content, volume: VOLUME, hasher: self.hasher }
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

    fn own(&self, ino: InodeId) -> Rnode {
        let value = self.table.get(&key::inode(ino)).unwrap().unwrap();
        Rnode::decode(&value).unwrap().1
    }

    /// Proves that the damage is found, that nothing is found that was not looked for, and that the
    /// repair leaves a volume that is whole.
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

    fn is_lost(&self, ino: InodeId) -> bool {
        self.name_row(InodeId::ROOT, &format!("lost+found.{ino}")).is_some()
    }
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
fn rows_about_names_are_found_and_repaired() {
    let rig = Rig::new();
    let (dir, linked) = (rig.dir.handle.ino, rig.linked.handle.ino);
    // A name that leads to nothing.
    let nothing = NameRow::Link { ino: InodeId::from_raw(99), kind: FileKind::Regular };
    rig.put(rig.name_key(dir, "nothing"), nothing.encode(STAMP));
    rig.expect(&[Damage::NameOfNothing, Damage::Counts]);
    assert_eq!(rig.name_row(dir, "nothing"), None);
    // A name of another kind than its file.
    let wrong = NameRow::Link { ino: linked, kind: FileKind::Fifo };
    rig.put(rig.name_key(dir, "two"), wrong.encode(STAMP));
    rig.expect(&[Damage::NameKind]);
    // A name that its file does not list, and one that is not there.
    let two = key::parent_pointer(linked, dir, rig.hasher.hash(b"two"), b"two");
    rig.delete(two.clone());
    rig.expect(&[Damage::NameUnlisted, Damage::Links]);
    assert!(rig.table.get(&two).unwrap().is_some());
    rig.delete(rig.name_key(dir, "two"));
    rig.expect(&[Damage::NameMissing]);
    assert_eq!(rig.name_row(dir, "two").unwrap().ino(), linked);
    assert_eq!(rig.own(linked).links, 2);
    // A name where its hash does not lead.
    let value = rig.table.get(&rig.name_key(dir, "small")).unwrap().unwrap();
    rig.delete(rig.name_key(dir, "small"));
    rig.put(key::name(dir, NameHash(1), b"small"), value);
    rig.expect(&[Damage::NameHash]);
    assert_eq!(rig.rnode_at(dir, "small").size, 5);
}

#[test]
fn what_has_lost_its_place_gets_a_name_in_the_root() {
    let rig = Rig::new();
    let (dir, small) = (rig.dir.handle.ino, rig.small.handle.ino);
    // A directory without a name.
    rig.delete(rig.name_key(InodeId::ROOT, "dir"));
    rig.delete(key::parent_pointer(dir, InodeId::ROOT, rig.hasher.hash(b"dir"), b"dir"));
    rig.expect(&[Damage::Lost, Damage::Counts]);
    assert!(rig.is_lost(dir));
    // Names in a directory that is gone.
    rig.delete(key::inode(dir));
    rig.expect(&[Damage::NameNowhere]);
    assert!(rig.is_lost(small) && rig.is_lost(rig.large.handle.ino));
    let (one, ino) = (rig.name_row(InodeId::ROOT, "one"), rig.linked.handle.ino);
    assert_eq!(one.unwrap().ino(), ino);
    assert_eq!(rig.own(ino).links, 1);
}

/// Users can make files of any name: what is found again takes the name of none of them.
#[test]
fn a_lost_file_takes_no_name_that_is_there() {
    let rig = Rig::new();
    let (dir, small) = (rig.dir.handle.ino, rig.small.handle.ino);
    let taken = rig.rnode_at(dir, "small");
    for (number, lost) in [dir, small, small].into_iter().enumerate() {
        let text = match number {
            2 => format!("lost+found.{lost}.1"),
            _ => format!("lost+found.{lost}"),
        };
        let ino = InodeId::from_raw(40 + number as u64);
        let theirs = Rnode { ino, flags: RnodeFlags::default(), size: 0, ..taken.clone() };
        rig.put(rig.name_key(InodeId::ROOT, &text), NameRow::Rnode(theirs).encode(STAMP));
    }
    rig.expect(&[Damage::Counts]);
    // The directory, and then all that was in it.
    rig.delete(rig.name_key(InodeId::ROOT, "dir"));
    rig.delete(key::parent_pointer(dir, InodeId::ROOT, rig.hasher.hash(b"dir"), b"dir"));
    rig.expect(&[Damage::Lost, Damage::Counts]);
    rig.delete(key::inode(dir));
    rig.expect(&[Damage::NameNowhere]);
    let at = |text: String| rig.name_row(InodeId::ROOT, &text).map(|row| row.ino().raw());
    assert_eq!(at(format!("lost+found.{dir}")), Some(40));
    assert_eq!(at(format!("lost+found.{small}")), Some(41));
    assert_eq!(at(format!("lost+found.{small}.1")), Some(42));
    assert_eq!(at(format!("lost+found.{small}.2")), Some(small.raw()));
}

/// A name that stands where its hash does not lead, and another file that has it where it does.
#[test]
fn a_misplaced_name_takes_no_name_that_is_there() {
    let rig = Rig::new();
    let (dir, small) = (rig.dir.handle.ino, rig.small.handle.ino);
    let theirs = Rnode {
        ino: InodeId::from_raw(41),
        flags: RnodeFlags::default(),
        size: 0,
        ..rig.rnode_at(dir, "small")
    };
    let value = rig.table.get(&rig.name_key(dir, "small")).unwrap().unwrap();
    rig.put(key::name(dir, NameHash(1), b"small"), value);
    rig.put(rig.name_key(dir, "small"), NameRow::Rnode(theirs).encode(STAMP));
    rig.expect(&[Damage::NameHash]);
    assert_eq!(rig.rnode_at(dir, "small").ino.raw(), 41);
    assert_eq!(rig.rnode_at(InodeId::ROOT, &format!("lost+found.{small}")).size, 5);
}

#[test]
fn a_loop_of_directories_is_cut() {
    let rig = Rig::new();
    let dir = rig.dir.handle.ino;
    let below = rig.name_row(dir, "below").unwrap().ino();
    let (in_root, hash) = (rig.name_key(InodeId::ROOT, "dir"), rig.hasher.hash(b"dir"));
    let link = NameRow::Link { ino: dir, kind: FileKind::Directory };
    rig.delete(in_root);
    rig.delete(key::parent_pointer(dir, InodeId::ROOT, hash, b"dir"));
    rig.put(rig.name_key(below, "dir"), link.encode(STAMP));
    rig.put(key::parent_pointer(dir, below, hash, b"dir"), ParentPointer.encode(STAMP));
    rig.expect(&[Damage::Loop]);
    assert!(rig.is_lost(dir) || rig.is_lost(below));
}

#[test]
fn counts_flags_and_marks_are_set_right() {
    let rig = Rig::new();
    let (dir, small, large) = (rig.dir.handle.ino, rig.small.handle.ino, rig.large.handle.ino);
    let wrong = Partition { names: 1, ..Partition::default() };
    rig.put(key::partition(dir, 0), wrong.encode(STAMP));
    rig.put(key::partition(InodeId::from_raw(77), 0), wrong.encode(STAMP));
    rig.expect(&[Damage::Counts, Damage::Counts]);
    let dirty = Partition { names: 1, dirty: true, ..Partition::default() };
    rig.put(key::partition(dir, 0), dirty.encode(STAMP));
    assert!(rig.plan().is_whole(), "a dirty count is the server's business");

    rig.put(key::xattr(InodeId::from_raw(77), b"user.x"), Xattr { value: b"" }.encode(STAMP));
    rig.expect(&[Damage::XattrStray]);
    let names = XattrNames { names: b"user.x\0" }.encode(STAMP);
    rig.put(key::xattr_names(InodeId::from_raw(77)), names);
    rig.expect(&[Damage::XattrStray]);
    rig.put(key::xattr(small, b"user.b"), Xattr { value: b"" }.encode(STAMP));
    rig.expect(&[Damage::XattrNames]);
    rig.delete(key::xattr_names(small));
    rig.expect(&[Damage::XattrNames]);
    let listed = rig.table.get(&key::xattr_names(small)).unwrap().unwrap();
    assert_eq!(XattrNames::decode(&listed).unwrap().1.names, b"user.a\0user.b\0");
    rig.delete(key::xattr(small, b"user.b"));
    rig.expect(&[Damage::XattrNames]);
    rig.delete(key::xattr(small, b"user.a"));
    rig.expect(&[Damage::XattrFlag, Damage::XattrNames]);
    for (ino, name) in [(small, ACL_ACCESS), (dir, ACL_DEFAULT)] {
        rig.put(key::xattr(ino, name), Xattr { value: b"" }.encode(STAMP));
        rig.expect(&[Damage::XattrFlag]);
        rig.delete(key::xattr(ino, name));
        rig.expect(&[Damage::XattrFlag]);
    }
    rig.put(key::moved(large), Moved { dir, hash: NameHash(1) }.encode(STAMP));
    rig.expect(&[Damage::Moved]);
    rig.delete(key::moved(large));
    rig.expect(&[Damage::Moved]);
    assert!(rig.table.get(&key::moved(large)).unwrap().is_some());
    rig.put(key::orphan(small), Orphan { generation: None }.encode(STAMP));
    rig.expect(&[Damage::OrphanStray]);
    let mark = Writing { dir, hash: NameHash(0), generation: Generation::FIRST };
    rig.put(key::writing(small), mark.encode(STAMP));
    assert!(rig.plan().is_whole(), "it only takes space");
    rig.expect(&[Damage::MarkStray]);
    let mark = HighWater { next: 3 };
    rig.put(key::high_water(0), mark.encode(STAMP));
    rig.expect(&[Damage::Number]);
    let unnamed = rig.table.get(&key::high_water(0)).unwrap().unwrap();
    assert!(HighWater::decode(&unnamed).unwrap().1.next > 8);
}

#[test]
fn a_file_that_was_removed_and_not_buried_is_buried() {
    let rig = Rig::new();
    let range = key::all(RowKind::Orphan);
    let mut orphan = Vec::new();
    rig.table
        .scan(&range.from, &range.to, &mut |key, _| {
            orphan = key.to_vec();
            std::ops::ControlFlow::Break(())
        })
        .unwrap();
    rig.delete(orphan.clone());
    rig.expect(&[Damage::Unburied]);
    assert!(rig.table.get(&orphan).unwrap().is_some());
}

#[test]
fn bytes_are_found_missing_short_and_stray() {
    let rig = Rig::new();
    let (dir, small, large) = (rig.dir.handle.ino, rig.small.handle.ino, rig.large.handle.ino);
    rig.put(key::inline(small), InlineRow { bytes: b"hell" }.encode(STAMP));
    rig.expect(&[Damage::InlineSize]);
    assert_eq!(rig.rnode_at(dir, "small").size, 4);
    rig.put(key::inline(large), InlineRow { bytes: b"x" }.encode(STAMP));
    rig.expect(&[Damage::InlineStray]);
    rig.delete(key::inline(small));
    rig.expect(&[Damage::InlineMissing]);
    assert_eq!(rig.rnode_at(dir, "small").size, 0);

    let file = rig.content.open_file(large, Generation::FIRST, true).unwrap().unwrap();
    file.truncate(10).unwrap();
    rig.expect(&[Damage::ContentShort]);
    assert_eq!(rig.rnode_at(dir, "renamed").size, 10);
    rig.content.create(InodeId::from_raw(99), Generation::FIRST).unwrap();
    assert!(rig.plan().is_whole(), "it only takes space");
    rig.expect(&[Damage::ContentStray]);
    assert!(!rig.content.exists(InodeId::from_raw(99), Generation::FIRST).unwrap());
    rig.content.remove(large, Generation::FIRST).unwrap();
    let applied = apply_on(rig.parts()).unwrap();
    assert_eq!(kinds(&applied.after), [Damage::ContentMissing], "its bytes are gone");
}

#[test]
fn rows_that_cannot_be_read_cost_no_bytes_that_can() {
    let rig = Rig::new();
    let (dir, small, large) = (rig.dir.handle.ino, rig.small.handle.ino, rig.large.handle.ino);
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

/// Whatever row is damaged or missing, one repair leaves a volume that is whole.
#[test]
fn any_row_may_be_damaged_or_missing() {
    let mut keys = Vec::new();
    Rig::new()
        .table
        .scan(&[], &[], &mut |key, _| {
            keys.push(key.to_vec());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    assert!(keys.len() > 20, "{}", keys.len());
    for key in &keys {
        for missing in [true, false] {
            let rig = Rig::new();
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

#[test]
fn the_table_of_another_volume_is_left_alone() {
    let rig = Rig::new();
    let parts = Parts { volume: VolumeId([8; 16]), ..rig.parts() };
    assert!(matches!(apply_on(parts), Err(super::CheckError::Foreign { .. })));
}
