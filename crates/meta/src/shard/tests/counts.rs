//! Counts of directories after crashes, and scans.

use pelago_store::rows::Partition;

use super::*;
use crate::directory::{FilterState, RECORDED_CHANGES};
use crate::name_filter::Filter;
use crate::shard::Scanned;
use crate::shard::lookup::RECOUNT_NAMES;

/// After a crash the count in the row of a directory that had changed is not trusted, and its times
/// are no older than the changes that may have been lost.
#[test]
fn a_small_directory_is_counted_again_when_it_is_first_read_after_a_crash() {
    let rig = with_an_unsafe_name();
    let crashed = rig.crashed(rig.table.unsafe_batches());
    let attr = crashed.shard.attr(ROOT).unwrap();
    assert_eq!((attr.size, attr.mtime), (2, at(500)));
    assert_eq!(crashed.names(ROOT), strings(&["a", "b"]));
    crashed.shard.lookup(ROOT, &name("a")).unwrap();
    crashed.shard.write_counts().unwrap();
    let row = crashed.table.get(&key::partition(InodeId::ROOT, 0)).unwrap().unwrap();
    let (_, row) = Partition::decode(&row).unwrap();
    assert_eq!((row.names, row.dirty), (2, false), "the next group commit writes it");
}

#[test]
fn a_large_directory_waits_for_the_worker_after_a_crash() {
    let rig = with_an_unsafe_name();
    for number in 0..RECOUNT_NAMES {
        rig.file(ROOT, &format!("f{number}"), 130);
    }
    let crashed = rig.crashed(rig.table.unsafe_batches());
    assert_eq!(crashed.shard.attr(ROOT).unwrap().size, 1, "the count of its row");
    crashed.shard.lookup(ROOT, &name("a")).unwrap();
    assert!(crashed.shard.lock().state.directories.get(InodeId::ROOT).unwrap().needs_recount);
}

#[test]
fn a_count_is_right_after_a_crash_that_lost_the_change_too() {
    let lost = with_an_unsafe_name().crashed(0);
    let attr = lost.shard.attr(ROOT).unwrap();
    assert_eq!((lost.names(ROOT), attr.size, attr.mtime), (strings(&["a"]), 1, at(110)));
}

/// A file `a` whose count was written, and a file `b` that is not safe.
fn with_an_unsafe_name() -> Rig {
    let rig = Rig::new();
    rig.file(ROOT, "a", 110);
    rig.shard.write_counts().unwrap();
    rig.table.persist().unwrap();
    rig.file(ROOT, "b", 120);
    rig
}

/// A scan of a root with one name that finds another state than there is at its end: meanwhile a
/// directory was made, and the name removed and made again. `more`: pairs of changes beside these.
/// Returns whether the scan was in vain, and the root's filter is known.
fn scan_while_names_change(more: usize) -> (bool, bool) {
    let rig = Rig::new();
    rig.file(ROOT, "before", 110);
    {
        let mut locked = rig.shard.lock();
        let root = locked.state.directories.get_mut(InodeId::ROOT).unwrap();
        root.filter = FilterState::Absent;
        root.needs_recount = true;
    }
    let scan = rig.shard.begin_scan(InodeId::ROOT).unwrap().unwrap();
    assert!(scan.recounts);
    let mut filter = Filter::new();
    filter.insert(rig.shard.entry_key(InodeId::ROOT, &name("before")).hash);
    rig.dir(ROOT, "meanwhile", 120);
    for _ in 0..more {
        let mut locked = rig.shard.lock();
        let root = locked.state.directories.get_mut(InodeId::ROOT).unwrap();
        root.name_added(NameHash(7), true, at(130));
        root.name_removed(NameHash(7), true, at(130));
    }
    rig.shard.unlink(ROOT, &name("before"), at(140)).unwrap();
    rig.file(ROOT, "before", 150);
    let scanned = Scanned { names: 1, directories: 0, filter: Some(filter) };
    let in_vain = rig.shard.end_scan(InodeId::ROOT, Some(scanned));
    let locked = rig.shard.lock();
    let root = locked.state.directories.get(InodeId::ROOT).unwrap();
    assert_eq!((root.names, root.directories, root.needs_recount), (2, 1, false));
    (in_vain, matches!(root.filter, FilterState::Ready(_)))
}

#[test]
fn a_scan_takes_in_the_names_that_came_and_went_meanwhile() {
    assert_eq!(scan_while_names_change(0), (false, true));
}

#[test]
fn a_scan_with_too_many_changes_counts_right_and_leaves_no_filter() {
    assert_eq!(scan_while_names_change(RECORDED_CHANGES / 2), (true, false));
}
