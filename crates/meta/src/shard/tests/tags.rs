//! Rows of tags: there is one for each tag, and no other, whatever happens to the file (I-12).

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use pelago_store::key::{Key, RowKind};
use pelago_store::rows::{Tag, Xattr};
use pelago_store::table::TableRead;
use pelago_wire::xattr::tag_key;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;
use crate::shard::{stored, tags::TAGS_AT_ONCE};

type Keys = BTreeSet<Vec<u8>>;

/// Returns the rows of tags that there are, and those that there should be.
fn tag_rows(table: &FakeTable) -> (Keys, Keys) {
    let mut found = Keys::new();
    let mut wanted = Keys::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        match Key::parse(key).unwrap() {
            Key::Tag { .. } => drop(found.insert(key.to_vec())),
            Key::Xattr { ino, name } => {
                let value = Xattr::decode(value).unwrap().1.value;
                wanted.extend(tag_key(name).map(|tag| key::tag(tag, value, ino)));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    };
    table.scan(&[], &[], visit).unwrap();
    (found, wanted)
}

/// Asserts that the rows of tags are right, and that each leads to its file if there is one.
/// Returns how many there are.
fn check(table: &FakeTable) -> usize {
    let (found, wanted) = tag_rows(table);
    assert_eq!(found, wanted);
    for key in &found {
        let Some(Key::Tag { ino, .. }) = Key::parse(key) else { unreachable!() };
        let value = table.get(key).unwrap().unwrap();
        let (_, Tag { dir, hash }) = Tag::decode(&value).unwrap();
        let node = stored::node(table, Handle { ino, dir, hash }).unwrap();
        let is_removed = table.get(&key::orphan(ino)).unwrap().is_some();
        assert!(node.is_some() || is_removed, "the hint of {ino} leads nowhere");
    }
    found.len()
}

impl Rig {
    fn tag(&self, node: Handle, key: &str, value: &[u8]) {
        let name = format!("user.tag.{key}");
        self.shard
            .set_xattr(node, &xattr(name.as_bytes(), value, XattrFlags::Any), at(120))
            .unwrap();
    }

    fn tags(&self) -> usize {
        check(&self.table)
    }

    /// Does what the worker `tags` does. Returns the files that were found by their names only.
    fn complete(&self) -> usize {
        let mut from = Vec::new();
        loop {
            let (keys, next) = self.shard.stray_tags(&from).unwrap();
            self.shard.delete_stray_tags(&keys).unwrap();
            let Some(next) = next else { break };
            from = next;
        }
        let mut from = Vec::new();
        let mut lost = Vec::new();
        loop {
            let (inos, next) = self.shard.files_without_tag_rows(&from).unwrap();
            let handles: Vec<_> = inos.into_iter().map(Handle::own).collect();
            lost.extend(self.shard.put_tag_rows(&handles).unwrap());
            let Some(next) = next else { break };
            from = next;
        }
        let (found, _) = self.shard.find_embedded(&[], &|ino| lost.contains(&ino)).unwrap();
        self.shard.put_tag_rows(&found).unwrap();
        found.len()
    }
}

#[test]
fn a_tag_has_one_row_until_it_goes() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 110).handle;
    rig.tag(file, "project", b"reef");
    let row = key::tag("project", b"reef", file.ino);
    let value = rig.table.get(&row).unwrap().unwrap();
    let hint = Tag { dir: ROOT.ino, hash: file.hash };
    assert_eq!(Tag::decode(&value).unwrap().1, hint);
    // As a request that is repeated.
    rig.tag(file, "project", b"reef");
    assert_eq!(rig.tags(), 1);
    let long = [7; 300];
    for value in [&long[..], b"", b"\0", &long] {
        rig.tag(file, "project", value);
        assert!(rig.row_keys().contains(&key::tag("project", value, file.ino)));
        assert_eq!(rig.tags(), 1);
    }
    rig.tag(file, "other", b"");
    assert_eq!(rig.tags(), 2);
    rig.shard.remove_xattr(file, b"user.tag.project", at(130)).unwrap();
    assert_eq!(rig.tags(), 1);
    rig.shard.unlink(ROOT, &name("f"), at(140)).unwrap();
    assert_eq!(rig.tags(), 0);
}

/// A query cannot name them.
#[test]
fn other_attributes_have_no_rows() {
    let rig = Rig::new();
    let dir = rig.dir(ROOT, "d", 110).handle;
    let long = "k".repeat(65);
    for key in ["a b", "ä", long.as_str()] {
        rig.tag(dir, key, b"v");
    }
    for name in [&b"user.tag"[..], b"user.a", b"trusted.tag.a"] {
        rig.shard.set_xattr(dir, &xattr(name, b"v", XattrFlags::Any), at(120)).unwrap();
    }
    assert_eq!(rig.tags(), 0);
    rig.tag(dir, "a", b"v");
    assert_eq!(rig.tags(), 1);
    rig.shard.remove_dir(ROOT, &name("d"), at(130)).unwrap();
    assert_eq!(rig.tags(), 0);
}

#[test]
fn a_row_leads_to_a_file_that_was_renamed_or_linked() {
    let rig = Rig::new();
    let dir = rig.dir(ROOT, "d", 110).handle;
    let file = rig.file(ROOT, "a", 111).handle;
    rig.tag(file, "k", b"1");
    rig.rename(ROOT, "a", dir, "b", RenameFlags::Replace).unwrap();
    assert_eq!(rig.tags(), 1);
    // Another file at the place of the hint.
    rig.file(ROOT, "a", 112);
    assert_eq!(rig.tags(), 1);
    rig.shard.link(rig.lookup(dir, "b").unwrap().handle, ROOT, &name("c"), at(130)).unwrap();
    rig.shard.unlink(dir, &name("b"), at(140)).unwrap();
    rig.tag(file, "k2", b"1");
    assert_eq!(rig.tags(), 2);
    rig.shard.unlink(ROOT, &name("c"), at(150)).unwrap();
    assert_eq!(rig.tags(), 0);
}

#[test]
fn the_rows_of_a_replaced_file_go_with_it() {
    for open in [false, true] {
        let rig = Rig::new();
        let new = rig.file(ROOT, "new", 110).handle;
        let old = rig.file(ROOT, "old", 111).handle;
        rig.tag(new, "k", b"1");
        rig.tag(old, "k", b"1");
        if open {
            rig.shard.acquire(old).unwrap();
        }
        rig.rename(ROOT, "new", ROOT, "old", RenameFlags::Exchange).unwrap();
        rig.rename(ROOT, "old", ROOT, "new", RenameFlags::Replace).unwrap();
        assert_eq!(rig.tags(), if open { 2 } else { 1 });
        if open {
            // It can still be tagged.
            rig.tag(Handle::own(old.ino), "k", b"2");
            assert_eq!(rig.tags(), 2);
            assert!(rig.shard.release(old.ino));
            rig.shard.remove_unnamed(old.ino).unwrap().unwrap();
        }
        assert_eq!(rig.tags(), 1);
    }
}

#[test]
fn a_file_without_a_name_has_rows_as_any_other() {
    let rig = Rig::new();
    let kept = rig.unnamed(110).handle;
    let dropped = rig.unnamed(111).handle;
    for file in [kept, dropped] {
        rig.tag(file, "k", b"1");
    }
    assert_eq!(rig.tags(), 2);
    rig.shard.link(kept, ROOT, &name("f"), at(120)).unwrap();
    assert!(rig.shard.release(dropped.ino));
    rig.shard.remove_unnamed(dropped.ino).unwrap().unwrap();
    assert_eq!(rig.tags(), 1);
}

/// Values of tags are read to delete their rows, so fewer are deleted at once.
#[test]
fn many_tags_are_deleted_in_pieces() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 110).handle;
    (0..=TAGS_AT_ONCE).for_each(|number| rig.tag(file, &format!("{number}"), &[7; 300]));
    let removed = rig.shard.unlink(ROOT, &name("f"), at(130)).unwrap();
    assert!(removed.orphaned, "a worker does the rest");
    assert_eq!(rig.tags(), TAGS_AT_ONCE + 1);
    rig.shard.remove_unnamed(file.ino).unwrap().unwrap();
    assert_eq!(rig.tags(), 0);
}

/// A write that fails has changed neither the attribute nor the row.
#[test]
fn a_failed_change_of_a_tag_changes_nothing() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 110).handle;
    rig.tag(file, "k", b"1");
    let fail = || rig.table.fail_at(0, pelago_store::table::Error::NoSpace);
    fail();
    let two = xattr(b"user.tag.k", b"2", XattrFlags::Any);
    rig.shard.set_xattr(file, &two, at(130)).unwrap_err();
    fail();
    rig.shard.remove_xattr(file, b"user.tag.k", at(130)).unwrap_err();
    assert_eq!(rig.tags(), 1);
    assert!(rig.row_keys().contains(&key::tag("k", b"1", file.ino)));
}

impl Rig {
    /// Deletes the rows of all tags, as if a program had set them that knows no such rows.
    fn forget_tag_rows(&self) -> usize {
        let (rows, _) = tag_rows(&self.table);
        let mut batch = Batch::new();
        rows.iter().for_each(|key| batch.delete(key.clone()));
        self.table.write(&batch).unwrap();
        rows.len()
    }

    fn put_stray(&self, key: Vec<u8>) {
        let mut batch = Batch::new();
        let row = Tag { dir: ROOT.ino, hash: NameHash(1) };
        batch.put(key, row.encode(Stamp::default()));
        self.table.write(&batch).unwrap();
    }
}

#[test]
fn missing_rows_are_put_and_strays_are_deleted() {
    let rig = Rig::new();
    let dir = rig.dir(ROOT, "d", 110).handle;
    let file = rig.file(dir, "f", 111).handle;
    let moved = rig.file(dir, "m", 111).handle;
    for node in [dir, file, moved, rig.unnamed(112).handle] {
        (0..2 * TAGS_AT_ONCE).for_each(|number| rig.tag(node, &format!("{number}"), b"1"));
    }
    rig.rename(dir, "m", ROOT, "m", RenameFlags::Replace).unwrap();
    let rows = rig.forget_tag_rows();
    assert_eq!(rows, 8 * TAGS_AT_ONCE);
    let rig = rig.cold();
    // One is right again, by an operation.
    rig.tag(dir, "0", b"2");
    for value in [&b"1"[..], b"3"] {
        rig.put_stray(key::tag("0", value, dir.ino));
        rig.put_stray(key::tag("gone", value, InodeId::from_raw(77)));
    }
    assert_eq!(rig.complete(), 1, "only one file has neither a row of its own nor has moved");
    assert_eq!(rig.tags(), rows);
}

#[derive(Debug, Clone)]
enum Op {
    Create(u8),
    Tag {
        file: u8,
        key: u8,
        value: u8,
    },
    Untag {
        file: u8,
        key: u8,
    },
    Unlink(u8),
    Rename {
        from: u8,
        to: u8,
        exchange: bool,
    },
    Link {
        from: u8,
        to: u8,
    },
    Open(u8),
    Release,
    RemoveOrphans,
    /// Deletes the rows of all tags, and then adds them.
    Complete,
    Persist,
}

fn any_op() -> impl Strategy<Value = Op> {
    let file = 0..4_u8;
    prop_oneof![
        3 => file.clone().prop_map(Op::Create),
        8 => (file.clone(), 0..3_u8, 0..4_u8)
            .prop_map(|(file, key, value)| Op::Tag { file, key, value }),
        2 => (file.clone(), 0..3_u8).prop_map(|(file, key)| Op::Untag { file, key }),
        2 => file.clone().prop_map(Op::Unlink),
        4 => (file.clone(), file.clone(), any::<bool>())
            .prop_map(|(from, to, exchange)| Op::Rename { from, to, exchange }),
        2 => (file.clone(), file.clone()).prop_map(|(from, to)| Op::Link { from, to }),
        1 => file.prop_map(Op::Open),
        1 => Just(Op::Release),
        1 => Just(Op::RemoveOrphans),
        1 => Just(Op::Complete),
        1 => Just(Op::Persist),
    ]
}

/// A run of a random program.
struct Run {
    rig: Rig,
    dirs: [Handle; 2],
    open: Vec<InodeId>,
}

impl Run {
    fn new() -> Self {
        let rig = Rig::new();
        let dirs = [ROOT, rig.dir(ROOT, "d", 105).handle];
        rig.table.persist().unwrap();
        Self { rig, dirs, open: Vec::new() }
    }

    /// Returns the directory and the name of a file.
    fn at(&self, file: u8) -> (Handle, String) {
        (self.dirs[usize::from(file % 2)], format!("f{}", file / 2))
    }

    fn find(&self, file: u8) -> Result<Handle, Code> {
        let (dir, text) = self.at(file);
        self.rig.lookup(dir, &text).map(|entry| entry.handle)
    }

    /// Carries out an operation, if it can be.
    fn apply(&mut self, op: &Op) -> Result<(), Code> {
        let code = |error: pelago_wire::Error| error.code;
        let shard = &self.rig.shard;
        match *op {
            Op::Create(file) => {
                let (dir, text) = self.at(file);
                let new = NewInode::file(NewMode::exactly(0o644));
                shard.create(&CALLER, dir, &name(&text), new, at(110)).map_err(code)?;
            }
            Op::Tag { file, key, value } => {
                let values = [&b""[..], b"v", &[0; 200], &[7; 300]];
                self.rig.tag(self.find(file)?, &format!("k{key}"), values[usize::from(value)]);
            }
            Op::Untag { file, key } => {
                let tag = format!("user.tag.k{key}");
                shard.remove_xattr(self.find(file)?, tag.as_bytes(), at(130)).map_err(code)?;
            }
            Op::Unlink(file) => {
                let (dir, text) = self.at(file);
                shard.unlink(dir, &name(&text), at(140)).map_err(code)?;
            }
            Op::Rename { from, to, exchange } => {
                let flags = if exchange { RenameFlags::Exchange } else { RenameFlags::Replace };
                let (from_dir, from) = self.at(from);
                let (to_dir, to) = self.at(to);
                self.rig.rename(from_dir, &from, to_dir, &to, flags)?;
            }
            Op::Link { from, to } => {
                let (dir, text) = self.at(to);
                shard.link(self.find(from)?, dir, &name(&text), at(150)).map_err(code)?;
            }
            Op::Open(file) => {
                let file = self.find(file)?;
                shard.acquire(file).map_err(code)?;
                self.open.push(file.ino);
            }
            Op::Release => drop(self.open.pop().map(|ino| shard.release(ino))),
            Op::RemoveOrphans => self.remove_orphans(),
            Op::Complete => {
                self.rig.forget_tag_rows();
                self.rig.complete();
                // No crash in between: such a volume does not say that its tags are complete.
                self.rig.table.persist().unwrap();
            }
            Op::Persist => self.rig.table.persist().unwrap(),
        }
        Ok(())
    }

    fn remove_orphans(&self) {
        let range = key::all(RowKind::Orphan);
        let mut orphans = Vec::new();
        let visit = &mut |key: &[u8], _: &[u8]| {
            if let Some(Key::Orphan { ino }) = Key::parse(key) {
                orphans.push(ino);
            }
            ControlFlow::Continue(())
        };
        self.rig.table.scan(&range.from, &range.to, visit).unwrap();
        for ino in orphans {
            if self.rig.shard.remove_unnamed(ino).unwrap().is_some() {
                self.rig.shard.delete_orphan_rows(&[ino]).unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(4),
        failure_persistence: None,
        cases: 2000,
        ..ProptestConfig::default()
    })]

    /// After each operation, after a crash between any two batches, and at the end of another run
    /// after that crash, the rows of tags are those of the attributes.
    #[test]
    fn rows_of_tags_are_those_of_the_attributes(
        ops in prop::collection::vec(any_op(), 1..40),
        later in prop::collection::vec(any_op(), 1..10),
        keep in any::<prop::sample::Index>(),
    ) {
        let mut run = Run::new();
        for op in &ops {
            let _may_fail = run.apply(op);
            run.rig.tags();
        }
        let batches = run.rig.table.unsafe_batches();
        for keep in 0..=batches {
            check(&run.rig.table.fork_crashed(keep));
        }
        let rig = run.rig.crashed(keep.index(batches + 1));
        let mut run = Run { rig, dirs: run.dirs, open: Vec::new() };
        run.remove_orphans();
        for op in &later {
            let _may_fail = run.apply(op);
            run.rig.tags();
        }
    }
}
