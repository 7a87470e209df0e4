//! The state of a volume after the machine or the process dies, or the table fails, at any moment.

use std::collections::HashSet;

use pelago_server::Options;
use pelago_store::table::Error;
use pelago_wire::{Code, FileKind, Handle, Request, limits};

use crate::harness::program::{Random, is_expected, step};
use crate::harness::rig::{Rig, Tree, by_hand};

/// What a directory counts is known again only when a worker has counted.
fn without_counts(mut tree: Tree) -> Tree {
    for seen in tree.values_mut().filter(|seen| seen.kind == FileKind::Directory) {
        seen.links = 0;
        seen.size = 0;
    }
    tree
}

/// Bytes in content files may be newer than the rows that a crash has left.
fn without_content(tree: &Tree) -> Tree {
    let mut tree = without_counts(tree.clone());
    for seen in tree.values_mut().filter(|seen| seen.size > limits::INLINE_DEFAULT_BYTES as u64) {
        seen.size = 0;
        seen.bytes.0.clear();
    }
    tree
}

/// Runs random programs and crashes after every batch: what is left is always whole, shows exactly
/// what was done until then where an operation had just ended, and gives no number out twice.
#[test]
fn a_crash_leaves_a_prefix_of_what_was_done() {
    for seed in 0..6 {
        let rig = Rig::new(by_hand());
        let mut random = Random(seed);
        rig.put(Handle::ROOT, "first", b"").unwrap();
        rig.sync();
        let mut used = HashSet::new();
        let mut after = Vec::new();
        for _ in 0..40 {
            if let Err(code) = step(&rig, &mut random) {
                assert!(is_expected(code), "seed {seed}: {code:?}");
            }
            let batches = rig.table.unsafe_batches();
            let tree = without_content(&rig.tree());
            used.extend(tree.values().map(|seen| seen.ino));
            after.push((batches, tree));
        }
        for keep in 0..=rig.table.unsafe_batches() {
            let left = rig.crashed(keep, by_hand());
            left.expect_whole(&format!("seed {seed}, {keep} batches kept"));
            if let Some((_, tree)) = after.iter().rev().find(|(batches, _)| *batches == keep) {
                let left = without_content(&left.tree());
                assert_eq!(left, *tree, "seed {seed}, {keep} batches kept");
            }
            if let Ok((entry, _)) = left.create(Handle::ROOT, "new") {
                assert!(!used.contains(&entry.attr.ino.raw()), "seed {seed}, {keep}");
            }
        }
    }
}

/// What was safe before a crash is there after it, whatever came behind.
#[test]
fn what_is_safe_stays() {
    for seed in 10..14 {
        let rig = Rig::new(by_hand());
        let mut random = Random(seed);
        for _ in 0..30 {
            step(&rig, &mut random).ok();
        }
        rig.sync();
        let tree = without_counts(rig.tree());
        assert_eq!(without_counts(rig.crashed(0, by_hand()).tree()), tree, "seed {seed}");
        assert_eq!(without_counts(rig.crashed(usize::MAX, by_hand()).tree()), tree);
    }
}

/// A server that stops cleanly and one whose process dies lose nothing that was answered.
#[test]
fn a_restart_shows_the_same_files() {
    for cleanly in [true, false] {
        let mut rig = Rig::new(by_hand());
        let mut random = Random(77);
        for _ in 0..4 {
            for _ in 0..20 {
                step(&rig, &mut random).ok();
            }
            let before = without_counts(rig.tree());
            rig = rig.restarted(cleanly, by_hand());
            rig.expect_whole("restarted");
            assert_eq!(without_counts(rig.tree()), before);
        }
    }
}

/// After an unclean stop the counts of directories come right by themselves.
#[test]
fn directories_are_counted_again() {
    let rig = Rig::new(by_hand());
    let dir = rig.make_dir(Handle::ROOT, "dir").unwrap().handle;
    for number in 0..300 {
        rig.put(dir, &format!("f{number}"), b"").unwrap();
    }
    rig.make_dir(dir, "below").unwrap();
    let left = rig.crashed(usize::MAX, Options { workers: true, ..by_hand() });
    crate::harness::until("the count is right", || {
        let attr = left.lookup(Handle::ROOT, "dir").unwrap().attr;
        (attr.size, attr.links) == (301, 3)
    });
    left.server.stop().unwrap();
    left.expect_whole("counted and stopped");
}

/// Files that were removed while they were open, or had content files, leave nothing behind.
#[test]
fn what_was_removed_is_reaped() {
    let rig = Rig::new(Options { workers: true, ..Options::default() });
    let (_, open) = rig.create(Handle::ROOT, "open").unwrap();
    rig.write(open, 0, &[1; 100_000]).unwrap();
    rig.put(Handle::ROOT, "large", &[2; 100_000]).unwrap();
    rig.unlink(Handle::ROOT, "open").unwrap();
    rig.unlink(Handle::ROOT, "large").unwrap();
    crate::harness::until("one is reaped", || rig.check().checked.content_files == 1);
    rig.close(open).unwrap();
    crate::harness::until("the other is reaped", || rig.check().checked.content_files == 0);
    rig.server.stop().unwrap();
    rig.expect_whole("reaped and stopped");
}

/// Whichever write or persist fails: who asked is told, what is in memory is what is in the table,
/// and the next start finds a whole volume with everything that was safe.
#[test]
fn a_table_that_fails_is_never_ahead_or_behind() {
    let broken = || Error::from_io("testing", std::io::Error::other("broken"));
    for fails_for_good in [false, true] {
        for call in 0..60 {
            let rig = Rig::new(by_hand());
            let mut random = Random(5);
            for _ in 0..10 {
                step(&rig, &mut random).ok();
            }
            rig.sync();
            let safe = without_counts(rig.tree());
            rig.table.fail_at(call, if fails_for_good { broken() } else { Error::NoSpace });
            let mut failed = false;
            for _ in 0..15 {
                match step(&rig, &mut random) {
                    Ok(()) => {}
                    Err(Code::NoSpace | Code::Io) => failed = true,
                    Err(code) => assert!(is_expected(code), "call {call}: {code:?}"),
                }
                if failed && fails_for_good {
                    break;
                }
            }
            let when = format!("call {call}, for good: {fails_for_good}");
            if !fails_for_good {
                // A file that could not be committed when it was closed is now.
                let sync = || rig.call(Request::FsyncDir { dir: Handle::ROOT, since: None });
                crate::harness::until("everything is committed", || sync().is_ok());
                let left = rig.crashed(usize::MAX, by_hand());
                left.expect_whole(&when);
                assert_eq!(without_counts(left.tree()), without_counts(rig.tree()), "{when}");
            } else if failed {
                let left = rig.crashed(0, by_hand());
                left.expect_whole(&when);
                let left = without_counts(left.tree());
                assert_eq!(left.keys().collect::<Vec<_>>(), safe.keys().collect::<Vec<_>>());
            }
        }
    }
}
