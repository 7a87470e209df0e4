//! The worker `tags`, over tables whose tags have no rows yet.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use pelago_store::hash::NameHasher;
use pelago_store::key::{self, Key, RowKind};
use pelago_store::rows::{Row, Stamp, Tag, Xattr};
use pelago_store::table::fake::FakeTable;
use pelago_store::table::{self, Batch, Table, TableRead};
use pelago_wire::xattr::tag_key;
use pelago_wire::{Handle, InodeId, NameHash, NewMode, Request, XattrFlags};

use crate::background::{CompleteTags, NextRun, Worker};
use crate::testing::{ROOT, Rig, name};

const FILES: usize = 40;

type Keys = BTreeSet<Vec<u8>>;

/// Returns the names of a file that is the last of the root, and of one before all others.
fn last_and_first() -> (String, String) {
    let hash = |text: &String| NameHasher::new(7).hash(text.as_bytes());
    let names: Vec<_> = (0..100_000).map(|at| format!("n{at}")).collect();
    let by_hash = || names.iter().map(|name| (hash(name), name.clone()));
    (by_hash().max().unwrap().1, by_hash().min().unwrap().1)
}

/// Returns the rows of tags that there are, and those that there should be.
fn tag_rows(table: &FakeTable) -> (Keys, Keys) {
    let mut found = Keys::new();
    let mut wanted = Keys::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        match Key::parse(key) {
            Some(Key::Xattr { ino, name }) => {
                let value = Xattr::decode(value).unwrap().1.value;
                wanted.extend(tag_key(name).map(|tag| key::tag(tag, value, ino)));
            }
            _ if RowKind::of(key) == Some(RowKind::Tag) => drop(found.insert(key.to_vec())),
            _ => {}
        }
        ControlFlow::Continue(())
    };
    table.scan(&[], &[], visit).unwrap();
    (found, wanted)
}

fn tag(rig: &Rig, node: Handle, value: &[u8]) {
    let name = b"user.tag.k".to_vec();
    let value = value.to_vec();
    let flags = XattrFlags::Any;
    rig.call(Request::SetXattr { node, name, value, flags, kill_setgid: false }).unwrap();
}

/// A volume with tagged files, some of which have moved or have a row of their own, none of whose
/// tags has a row, and with rows of no tag. All that is safe.
fn without_rows() -> Rig {
    let rig = Rig::new();
    for at in 0..FILES {
        let entry = rig.file(&format!("f{at}"), b"");
        tag(&rig, entry.handle, b"old");
        match at % 4 {
            0 => rig.rename(&format!("f{at}"), &format!("moved{at}")).unwrap(),
            1 => {
                let node = entry.handle;
                let dir = ROOT;
                let name = name(&format!("link{at}"));
                drop(rig.call(Request::Link { node, dir, name }).unwrap());
            }
            _ => {}
        }
    }
    let (found, wanted) = tag_rows(&rig.table);
    assert_eq!((found.len(), &found), (FILES, &wanted));
    let mut batch = Batch::new();
    found.iter().for_each(|key| batch.delete(key.clone()));
    let hint = Tag { dir: InodeId::ROOT, hash: NameHash(1) };
    let ino = rig.lookup("f2").unwrap().attr.ino;
    for stray in [key::tag("k", b"none", ino), key::tag("k", b"old", InodeId::from_raw(77))] {
        batch.put(stray, hint.encode(Stamp::default()));
    }
    rig.table.write(&batch).unwrap();
    rig.table.persist().unwrap();
    rig.after_kill()
}

fn worker(rig: &Rig) -> CompleteTags {
    CompleteTags::new(Arc::clone(&rig.shard), Arc::clone(&rig.durability), None)
}

/// Asserts that the tags are said to be complete only if they are, and safe.
fn expect_honest(rig: &Rig) -> bool {
    let complete = rig.shard.tags_are_complete();
    if complete {
        let (found, wanted) = tag_rows(&rig.table.fork_crashed(0));
        assert_eq!(found, wanted);
    }
    complete
}

/// Lets the worker and the group commit work until the tags are complete.
fn finish(rig: &Rig, worker: &mut CompleteTags) {
    for _ in 0..100 {
        let done = worker.work();
        if expect_honest(rig) {
            return;
        }
        // While the table is stopped it fails, and tries again later.
        if done.is_ok_and(|done| done.next == NextRun::Soon) {
            continue;
        }
        assert!(rig.commit.reopen_table());
        rig.commit.run().unwrap();
    }
    panic!("the worker does not come to an end");
}

#[test]
fn tags_without_rows_get_them() {
    let rig = without_rows();
    let mut worker = worker(&rig);
    finish(&rig, &mut worker);
    assert_eq!(worker.work().unwrap().next, NextRun::OnNotify);
    assert_eq!(tag_rows(&rig.table).0.len(), FILES);
}

#[test]
fn a_volume_without_tags_is_complete_at_once() {
    let rig = Rig::new();
    let mut worker = worker(&rig);
    rig.commit.run().unwrap();
    while worker.work().unwrap().next == NextRun::Soon {}
    assert!(rig.shard.tags_are_complete());
}

/// Between any two steps tags change, files move, and files are removed.
#[test]
fn changes_beside_the_worker_are_not_lost() {
    for step in 0..8 {
        let rig = without_rows();
        let mut worker = worker(&rig);
        for _ in 0..step {
            worker.work().unwrap();
        }
        let file = |text: &str| rig.lookup(text).unwrap().handle;
        tag(&rig, file("f2"), b"new");
        rig.rename("f3", "a").unwrap();
        rig.rename("f6", "f7").unwrap();
        rig.unlink("f10");
        let node = file("f11");
        rig.call(Request::RemoveXattr { node, name: b"user.tag.k".to_vec() }).unwrap();
        tag(&rig, rig.file("another", b"").handle, b"new");
        finish(&rig, &mut worker);
        assert_eq!(tag_rows(&rig.table).0.len(), FILES - 2, "step {step}");
    }
}

/// A file that is sought by its name moves to the part of the names that was read.
#[test]
fn a_file_that_moves_behind_the_worker_is_found() {
    let rig = Rig::new();
    let (last, first) = last_and_first();
    let node = rig.file(&last, b"").handle;
    tag(&rig, node, b"old");
    for at in 0..5000 {
        let name = name(&format!("f{at}"));
        let mode = NewMode::exactly(0o755);
        rig.call(Request::MakeDir { dir: ROOT, name, mode }).unwrap();
    }
    let mut batch = Batch::new();
    batch.delete(key::tag("k", b"old", node.ino));
    rig.table.write(&batch).unwrap();
    rig.shard.forget_rows();
    let mut worker = worker(&rig);
    // Strays, missing rows, and the first names.
    for _ in 0..3 {
        assert_eq!(worker.work().unwrap().items, 0);
    }
    rig.rename(&last, &first).unwrap();
    finish(&rig, &mut worker);
    assert_eq!(tag_rows(&rig.table).0.len(), 1);
}

/// Whatever of the rows a crash leaves, another run completes them.
#[test]
fn a_crash_between_any_two_steps_costs_only_time() {
    for step in 0..8 {
        let rig = without_rows();
        let mut first = worker(&rig);
        for _ in 0..step {
            first.work().unwrap();
        }
        for keep in 0..=rig.table.unsafe_batches() {
            let rig = rig.after_crash(keep);
            finish(&rig, &mut worker(&rig));
            assert_eq!(tag_rows(&rig.table).0.len(), FILES, "step {step}, {keep} batches");
        }
    }
}

/// The rows that were written are lost, and the journal is safe again afterwards.
#[test]
fn a_failed_sync_between_any_two_steps_costs_only_time() {
    for step in 0..8 {
        let rig = without_rows();
        let mut worker = worker(&rig);
        for _ in 0..step {
            worker.work().unwrap();
        }
        rig.shard.write_counts().unwrap();
        let broken = table::Error::from_io("testing", std::io::Error::other("broken"));
        rig.table.fail_at(0, broken);
        // Without anything to commit it does not fail.
        let _failed = rig.commit.run();
        finish(&rig, &mut worker);
        assert_eq!(tag_rows(&rig.table).0.len(), FILES, "step {step}");
    }
}
