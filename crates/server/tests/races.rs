//! Orders of events that could lose data: files that change after they lost their last name, a disk
//! that fills up during a group commit, a table that loses unsafe changes, and many callers at
//! once.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use pelago_server::Options;
use pelago_store::table::Error;
use pelago_wire::{Code, FileKind, Handle, NewMode, RenameFlags, Reply, Request};

use crate::harness::program::{Random, is_expected, step};
use crate::harness::rig::{Rig, by_hand, entry, name};

const ROOT: Handle = Handle::ROOT;

fn rename(rig: &Rig, from: &str, to: &str) -> Result<(), Code> {
    let from = name(from);
    let to = name(to);
    let flags = RenameFlags::Replace;
    rig.call(Request::Rename { from_dir: ROOT, from, to_dir: ROOT, to, flags }).map(drop)
}

/// A file that gets its content file when it has no name any more leaves nothing behind, whether it
/// is closed or its server dies.
#[test]
fn a_file_that_grows_behind_its_last_name_is_reaped() {
    let options = Options { workers: true, ..Options::default() };
    let rig = Rig::new(options.clone());
    let (_, open) = rig.create(ROOT, "file").unwrap();
    rig.unlink(ROOT, "file").unwrap();
    rig.write(open, 0, &[1; 100_000]).unwrap();
    assert_eq!(rig.check().checked.content_files, 1);
    let left = rig.crashed(usize::MAX, options);
    crate::harness::until("it is reaped behind a crash", || {
        left.check().checked.content_files == 0
    });
    rig.close(open).unwrap();
    crate::harness::until("it is reaped", || rig.check().checked.content_files == 0);
}

/// A rename over a file whose new bytes are in memory still: the name leads to the old bytes or to
/// the new ones, wherever the process dies.
#[test]
fn a_rename_over_a_file_never_leads_to_nothing() {
    let rig = Rig::new(by_hand());
    rig.put(ROOT, "file", b"old").unwrap();
    let (_, open) = rig.create(ROOT, "new").unwrap();
    rig.sync();
    rig.write(open, 0, b"new").unwrap();
    rename(&rig, "new", "file").unwrap();
    for keep in 0..=rig.table.unsafe_batches() {
        let left = rig.crashed(keep, by_hand());
        let found = left.lookup(ROOT, "file").unwrap();
        let bytes = left.read(found.handle, 10).unwrap();
        assert!([&b"old"[..], b"new"].contains(&&*bytes), "{keep}: {}", bytes.escape_ascii());
    }
}

/// What an exchange answers of the other file is what it shows from then on.
#[test]
fn an_exchange_answers_no_past() {
    let rig = Rig::new(by_hand());
    rig.put(ROOT, "a", b"a").unwrap();
    rig.put(ROOT, "b", b"b").unwrap();
    let from = name("a");
    let to = name("b");
    let flags = RenameFlags::Exchange;
    let request = Request::Rename { from_dir: ROOT, from, to_dir: ROOT, to, flags };
    let Ok(Reply::Renamed { replaced: Some(other), .. }) = rig.call(request) else {
        panic!("an exchange answers both files");
    };
    assert_eq!(other, rig.lookup(ROOT, "a").unwrap());
}

/// Counts that find no space keep no fsync from its promise.
#[test]
fn an_fsync_is_kept_though_counts_find_no_space() {
    let rig = Rig::new(by_hand());
    let (_, open) = rig.create(ROOT, "file").unwrap();
    rig.write(open, 0, b"bytes").unwrap();
    // Behind the file's own commit.
    rig.table.fail_at(1, Error::NoSpace);
    rig.fsync(open).unwrap();
    let left = rig.crashed(0, by_hand());
    let found = left.lookup(ROOT, "file").unwrap();
    assert_eq!(left.read(found.handle, 10).unwrap(), b"bytes");
    left.expect_whole("crashed behind an fsync");
}

/// The mark of the next block of numbers is lost with a failed persist: no number of that block is
/// given out on the strength of it.
#[test]
fn a_lost_block_of_numbers_is_taken_again() {
    const HALF: usize = 1 << 15;
    let rig = Rig::new(by_hand());
    let make = |rig: &Rig, number: usize| {
        let dir = ROOT;
        let name = name(&number.to_string());
        let request = Request::MakeNode {
            dir,
            name,
            kind: FileKind::Fifo,
            mode: NewMode::exactly(0o600),
            rdev: 0,
        };
        entry(rig.call(request).unwrap()).unwrap().attr.ino
    };
    for number in 0..HALF - 10 {
        make(&rig, number);
    }
    rig.sync();
    for number in HALF - 10..HALF + 10 {
        make(&rig, number);
    }
    for call in 0..2 {
        rig.table.fail_at(call, Error::from_io("testing", std::io::Error::other("broken")));
    }
    assert!(rig.call(Request::FsyncDir { dir: ROOT, since: None }).is_err());
    crate::harness::until("it goes again", || {
        rig.call(Request::FsyncDir { dir: ROOT, since: None }).is_ok()
    });
    let last = (HALF + 10..2 * HALF + 100).map(|number| make(&rig, number)).max().unwrap();
    let left = rig.crashed(usize::MAX, by_hand());
    assert!(make(&left, 9 * HALF) > last);
}

/// Four callers change the same few names while groups are committed, marks settle, counts are
/// taken and what was removed is reaped: rows, counts and content files say the same afterwards.
#[test]
fn callers_that_meet_leave_a_whole_volume() {
    for seed in 0..20 {
        let options = Options {
            workers: true,
            sync_interval: Duration::from_millis(2),
            memory_bytes: 8 << 20,
            ..Options::default()
        };
        let rig = Arc::new(Rig::new(options.clone()));
        thread::scope(|scope| {
            for caller in 0..4 {
                let rig = &rig;
                scope.spawn(move || {
                    let mut random = Random(seed * 4 + caller);
                    for _ in 0..150 {
                        match step(rig, &mut random) {
                            Ok(()) | Err(Code::Stale) => {}
                            Err(code) => assert!(is_expected(code), "seed {seed}: {code:?}"),
                        }
                    }
                });
            }
        });
        let left = rig.crashed(usize::MAX, by_hand());
        left.expect_whole(&format!("seed {seed}, killed"));
        let killed = left.tree();
        let tree = rig.tree();
        assert_eq!(tree.keys().collect::<Vec<_>>(), killed.keys().collect::<Vec<_>>());
        for (path, seen) in &tree {
            assert_eq!(seen.bytes, killed[path].bytes, "seed {seed}: {path}");
        }
        rig.server.stop().unwrap();
        rig.expect_whole(&format!("seed {seed}, stopped"));
    }
}

/// A table that fails again and again, and loses each time what was not safe: what is served is
/// what the table has, whole, and everything that is fsynced at the end stays.
#[test]
fn what_is_served_is_what_a_table_has_that_was_opened_again() {
    for seed in 0..12 {
        let options = Options {
            workers: true,
            sync_interval: Duration::from_millis(1),
            ..Options::default()
        };
        let rig = Rig::new(options);
        rig.sync();
        let mut random = Random(1000 + seed);
        for number in 0..200 {
            if number % 20 == 10 {
                let broken = Error::from_io("testing", std::io::Error::other("broken"));
                rig.table.fail_at(random.below(6) as usize, broken);
            }
            match step(&rig, &mut random) {
                Ok(()) | Err(Code::Io | Code::Stale | Code::BadOpen) => {}
                Err(code) => assert!(is_expected(code), "seed {seed}, {number}: {code:?}"),
            }
        }
        // Until the last fault is behind.
        for number in 0..8 {
            crate::harness::until("it goes again", || {
                let made = rig.make_dir(ROOT, &format!("last{number}"));
                matches!(made, Ok(_) | Err(Code::Exists))
                    && rig.call(Request::FsyncDir { dir: ROOT, since: None }).is_ok()
            });
        }
        let left = rig.crashed(0, by_hand());
        let served = rig.tree();
        let kept = left.tree();
        assert_eq!(served.keys().collect::<Vec<_>>(), kept.keys().collect::<Vec<_>>());
        for (path, seen) in &served {
            assert_eq!(seen.bytes, kept[path].bytes, "seed {seed}: {path}");
        }
        rig.server.stop().unwrap();
        rig.expect_whole(&format!("seed {seed}, stopped"));
    }
}

/// A request meets the end of the table when nothing is left to commit.
#[test]
fn a_table_that_stops_in_silence_is_opened_again() {
    let rig = Rig::new(Options { sync_interval: Duration::from_millis(1), ..by_hand() });
    rig.sync();
    let broken = Error::from_io("testing", std::io::Error::other("broken"));
    rig.table.fail_at(0, broken);
    assert_eq!(rig.make_dir(ROOT, "dir").err(), Some(Code::Io));
    crate::harness::until("it goes again", || rig.make_dir(ROOT, "dir").is_ok());
}
