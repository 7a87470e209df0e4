//! The rows that are collected for a mirror: an image that gets those of each cut equals the table.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::*;

type Image = BTreeMap<Vec<u8>, Vec<u8>>;

fn rows(table: &dyn TableRead) -> Image {
    let mut rows = Image::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        if key::is_mirrored(key) {
            rows.insert(key.to_vec(), value.to_vec());
        }
        ControlFlow::Continue(())
    };
    table.scan(&[], &[], visit).unwrap();
    rows
}

/// Cuts, and carries out in the image what has changed. Returns how many rows had.
fn cut(rig: &Rig, image: &mut Image) -> usize {
    let cut = rig.shard.cut(|| {}).unwrap();
    for key in cut.changed.keys() {
        match cut.snapshot.get(key).unwrap() {
            Some(value) => drop(image.insert(key.to_vec(), value)),
            None => drop(image.remove(key)),
        }
    }
    cut.changed.keys().count()
}

#[test]
fn nothing_is_collected_without_a_mirror() {
    let rig = Rig::new();
    rig.file(ROOT, "f", 2);
    assert_eq!(rig.shard.row_risk(), None);
}

#[test]
fn an_image_has_the_rows_of_each_cut() {
    let rig = Rig::new();
    rig.file(ROOT, "before", 2);
    rig.shard.collect_changes();
    let mut image = rows(&rig.table);
    let dir = rig.dir(ROOT, "d", 3).handle;
    let file = rig.file(dir, "f", 4).handle;
    assert!(rig.shard.row_risk().unwrap().bytes > 0);
    assert!(cut(&rig, &mut image) > 0);
    assert_eq!(image, rows(&rig.table));
    let set = xattr(b"user.a", b"value", XattrFlags::Any);
    rig.shard.set_xattr(file, &set, at(5)).unwrap();
    rig.shard.link(file, ROOT, &name("g"), at(6)).unwrap();
    rig.rename(dir, "f", ROOT, "h", RenameFlags::Replace).unwrap();
    rig.shard.remove_dir(ROOT, &name("d"), at(7)).unwrap();
    rig.shard.unlink(ROOT, &name("before"), at(8)).unwrap();
    rig.shard.write_counts().unwrap();
    cut(&rig, &mut image);
    assert_eq!(image, rows(&rig.table));
    assert_eq!(cut(&rig, &mut image), 0, "nothing since");
    assert!(rig.shard.cut(|| {}).unwrap().changed.is_empty());
}

#[test]
fn what_is_taken_back_is_in_the_next_cut() {
    let rig = Rig::new();
    rig.shard.collect_changes();
    let mut image = rows(&rig.table);
    rig.file(ROOT, "one", 2);
    let first = rig.shard.cut(|| {}).unwrap();
    rig.file(ROOT, "two", 3);
    let since = first.changed.risk().since;
    rig.shard.take_back(first.changed);
    assert_eq!(rig.shard.row_risk().unwrap().since, since, "the older of both");
    cut(&rig, &mut image);
    assert_eq!(image, rows(&rig.table));
}

/// No batch is written between the snapshot and what is called with it.
#[test]
fn a_cut_is_one_moment() {
    let rig = Rig::new();
    rig.shard.collect_changes();
    let mut sequence = None;
    let cut = rig.shard.cut(|| sequence = Some(rig.shard.durability.done())).unwrap();
    assert_eq!(sequence, Some(cut.sequence));
}

#[test]
fn keys_beyond_the_limit_are_not_kept() {
    let mut changed = super::super::ChangedRows::default();
    let mut number = 0_u64;
    while !changed.risk().has_more {
        let mut batch = Batch::new();
        for _ in 0..1000 {
            number += 1;
            batch.put([&[1; 300][..], &number.to_le_bytes()].concat(), Vec::new());
        }
        changed.add(&batch);
    }
    assert_eq!(changed.risk().memory, 0);
    assert!(!changed.is_empty());
    assert!(number > 60_000, "{number}");
}
