//! A mirror that is compared with its volume.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use pelago_server::{MirrorPhase, MirrorStore, Server, Verified};
use pelago_store::folder::Folder;
use pelago_store::key::{self, RowKind};
use pelago_store::rows::{Inline, Row as _};
use pelago_store::table::fjall::{self, FjallTable};
use pelago_store::table::{Batch, Table as _, TableRead as _};
use pelago_store::volume::Volume;
use pelago_wire::mirror::GroupPart;
use pelago_wire::{Code, Handle, Name, NewMode, Reply, Request};

use super::pair::{
    Event, Fate, Keeper, MIB, Pair, connect_to, contents, cut, fill, noise, put_at, start,
};
use super::primary::put;
use crate::harness::requests::{call, lookup, put as put_in, unlink};
use crate::harness::rig::DEADLINE;

fn verify(server: &Server, repairs: bool) -> Verified {
    assert!(server.verify_mirror(repairs, None).unwrap());
    wait(server)
}

/// Waits until the verification has ended.
fn wait(server: &Server) -> Verified {
    let begun = Instant::now();
    loop {
        let verified = server.verified().unwrap();
        if verified.finished.is_some() {
            return verified;
        }
        assert!(begun.elapsed() < DEADLINE, "{verified:?}");
        // Polled, as the command does.
        thread::sleep(Duration::from_millis(5));
    }
}

/// Changes bytes of the largest file of the mirror, and removes the next one.
fn damage(pair: &Pair) {
    let contents = contents(&pair.mirror());
    let mut bytes = fs::read(&contents[0]).unwrap();
    bytes[3_000_000] ^= 1;
    fs::write(&contents[0], &bytes).unwrap();
    fs::remove_file(&contents[1]).unwrap();
}

/// A content file that is longer there by whole blocks differs too.
#[test]
fn a_file_that_is_too_long_at_the_mirror_is_found() {
    let pair = Pair::new();
    pair.alone(|server| put(server, "whole", &noise(2 << 20)));
    pair.served(|_| {});
    let file = fs::OpenOptions::new().write(true).open(&contents(&pair.mirror())[0]).unwrap();
    file.set_len(4 << 20).unwrap();
    pair.served(|server| {
        assert_eq!(verify(server, true).differing, ["/whole"]);
        let commit = server.next_commit().unwrap();
        assert_eq!(server.wait_for_mirror(commit, DEADLINE), Ok(true));
        assert_eq!(verify(server, false).differences, 0);
    });
}

#[test]
fn a_mirror_that_is_equal_is_found_to_be_so_while_programs_write() {
    let pair = Pair::new();
    pair.alone(fill);
    pair.served(|server| {
        assert!(server.verify_mirror(false, None).unwrap());
        assert!(!server.verify_mirror(false, None).unwrap(), "one at a time");
        for number in 0..200 {
            put_at(server, "large", number * 1000, &[number as u8; 100]);
            put(server, &format!("new {number}"), &[1; 50_000]);
        }
        while server.verified().unwrap().finished.is_none() {
            // Polled, as the command does.
            thread::sleep(Duration::from_millis(5));
        }
        let verified = verify(server, false);
        assert_eq!((verified.differences, verified.differing), (0, Vec::new()));
        assert!(
            verified.rows > 500 && verified.files > 200,
            "{} {}",
            verified.rows,
            verified.files
        );
        assert!(verified.bytes > 10 << 20, "{}", verified.bytes);
        assert!(verified.changing.is_empty());
    });
    pair.expect_equal();
}

#[test]
fn what_is_damaged_at_the_mirror_is_named_and_repaired() {
    let pair = Pair::new();
    pair.alone(fill);
    pair.served(|_| {});
    damage(&pair);
    pair.served(|server| {
        let found = verify(server, false);
        assert_eq!(found.differing, ["/large", "/sparse"], "{found:?}");
        assert_eq!(verify(server, false).differences, 2, "nothing was repaired");
        assert_eq!(verify(server, true).differences, 2);
        let commit = server.next_commit().unwrap();
        assert_eq!(server.wait_for_mirror(commit, DEADLINE), Ok(true));
        assert_eq!(verify(server, false).differences, 0);
    });
    pair.expect_equal();
}

/// A moment at which the line stands still, and its end.
struct Pause {
    reached: Receiver<()>,
    go_on: Sender<()>,
}

/// Has the line stand still before the first part for which `is_there` is true.
fn pause_before(
    pair: &Pair,
    mut is_there: impl FnMut(&GroupPart) -> bool + Send + 'static,
) -> Pause {
    let (reach, reached) = channel();
    let (go_on, going_on) = channel();
    let mut is_over = false;
    pair.decide(move |event| {
        if let Event::Sends(part) = event
            && !is_over
            && is_there(part)
        {
            is_over = true;
            reach.send(()).unwrap();
            going_on.recv_timeout(DEADLINE).unwrap();
        }
        Fate::Arrives
    });
    Pause { reached, go_on }
}

impl Pause {
    fn during(self, act: impl FnOnce()) {
        self.reached.recv_timeout(DEADLINE).unwrap();
        act();
        self.go_on.send(()).unwrap();
    }
}

fn flip_byte(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[0] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// A file that cannot be read here is named, and not compared. Others are, and groups go on.
#[test]
fn a_file_that_cannot_be_read_at_home_is_named() {
    let pair = Pair::new();
    pair.alone(|server| {
        put(server, "bad", &noise(300_000));
        put(server, "good", &noise(200_000));
    });
    let bad = contents(&pair.volume()).remove(0);
    let aside = bad.with_extension("aside");
    let (connected, connections) = channel();
    pair.decide(move |event| {
        if let Event::Connects = event {
            connected.send(()).unwrap();
        }
        Fate::Arrives
    });
    pair.served(|server| {
        fs::rename(&bad, &aside).unwrap();
        fs::create_dir(&bad).unwrap();
        let verified = verify(server, false);
        assert_eq!((verified.differing, verified.files), (vec!["/bad".to_owned()], 1));
        assert_eq!(server.mirror().unwrap().phase, MirrorPhase::Follows);
        fs::remove_dir(&bad).unwrap();
        fs::rename(&aside, &bad).unwrap();
        assert_eq!(verify(server, false).files, 2);
    });
    assert_eq!(connections.try_iter().count(), 1, "the connection was never lost");
    pair.expect_equal();
}

/// Most of its blocks are compared when it becomes shorter than that.
#[test]
fn a_file_that_shrinks_between_two_slices_is_compared_from_its_start() {
    let pair = Pair::new();
    pair.alone(|server| {
        put(server, "file", &noise(MIB));
        cut(server, "file", 50 * MIB as u64);
    });
    pair.served(|server| {
        let mut questions = 0;
        let pause = pause_before(&pair, move |part| {
            // After that of the rows, and two slices of content.
            questions += usize::from(*part == GroupPart::Abort);
            questions == 3
        });
        assert!(server.verify_mirror(false, None).unwrap());
        pause.during(|| {
            cut(server, "file", 3 * MIB as u64);
            // The next cut is taken, which is sent before the next slice.
            thread::sleep(Duration::from_millis(100));
        });
        let verified = wait(server);
        assert_eq!((verified.differences, verified.changing), (0, Vec::new()));
        assert_eq!((verified.files, verified.bytes), (1, 3 * MIB as u64));
    });
    pair.expect_equal();
}

/// It may differ because its last changes are forgotten.
#[test]
fn a_file_that_is_removed_while_it_is_compared_does_not_differ() {
    let pair = Pair::new();
    pair.alone(|server| {
        put(server, "removed", &noise(300_000));
        put(server, "stays", &noise(200_000));
    });
    pair.served(|_| {});
    for file in contents(&pair.mirror()) {
        flip_byte(&file);
    }
    pair.served(|server| {
        let pause = pause_before(&pair, |part| matches!(part, GroupPart::Blocks(_)));
        assert!(server.verify_mirror(true, None).unwrap());
        pause.during(|| unlink(server, Handle::ROOT, "removed").unwrap());
        let verified = wait(server);
        assert_eq!((verified.differing, verified.changing), (vec!["/stays".to_owned()], vec![]));
        let commit = server.next_commit().unwrap();
        assert_eq!(server.wait_for_mirror(commit, DEADLINE), Ok(true));
        assert_eq!(verify(server, false).differences, 0);
    });
}

fn make_dir(server: &Server, dir: Handle, text: &str) -> Handle {
    let name = Name::new(text.as_bytes()).unwrap();
    let request = Request::MakeDir { dir, name, mode: NewMode::exactly(0o755) };
    match call(server, request, &[]).unwrap() {
        Reply::Entry(entry) => entry.handle,
        other => panic!("{other:?}"),
    }
}

/// Only what is below it counts, a name of a linked file too, and the folder itself.
#[test]
fn a_folder_or_a_file_is_compared_alone() {
    let pair = Pair::new();
    pair.alone(|server| {
        let outer = make_dir(server, Handle::ROOT, "outer");
        let inner = make_dir(server, outer, "inner");
        put_in(server, inner, "one", &noise(300_000)).unwrap();
        put_in(server, inner, "tiny", b"in a row").unwrap();
        put_in(server, outer, "two", &noise(200_000)).unwrap();
        put(server, "beside", &noise(100_000));
        let node = lookup(server, Handle::ROOT, "beside").unwrap().handle;
        let name = Name::new(b"linked").unwrap();
        call(server, Request::Link { node, dir: inner, name }, &[]).unwrap();
    });
    pair.served(|_| {});
    contents(&pair.mirror()).iter().for_each(|file| flip_byte(file));
    pair.served(|server| {
        let outer = lookup(server, Handle::ROOT, "outer").unwrap().handle;
        let inner = lookup(server, outer, "inner").unwrap().handle;
        let one = lookup(server, inner, "one").unwrap().handle;
        let tiny = lookup(server, inner, "tiny").unwrap().handle;
        let below = |handle: Handle, repairs| {
            assert_eq!(server.verify_mirror(repairs, Some(handle.ino)), Ok(true));
            let found = wait(server);
            assert_eq!(found.below, Some(handle.ino));
            (found.differing, found.files)
        };
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(below(one, false), (all(&["/outer/inner/one"]), 0));
        assert_eq!(below(tiny, false), (vec![], 0));
        let (differing, _) = below(inner, false);
        assert_eq!(differing.len(), 2, "{differing:?}");
        assert_eq!(differing.last().unwrap(), "/outer/inner/one");
        assert_eq!(below(outer, true).0.len(), 3);
        let commit = server.next_commit().unwrap();
        assert_eq!(server.wait_for_mirror(commit, DEADLINE), Ok(true));
        assert_eq!(below(inner, false), (vec![], 2));
        assert_eq!(verify(server, false).differences, 0);
        unlink(server, inner, "one").unwrap();
        assert_eq!(server.verify_mirror(false, Some(one.ino)).unwrap_err().code, Code::Stale);
    });
    pair.expect_equal();
}

/// Has the mirror's process killed and started, with other bytes in the rows of small files.
fn damage_rows(pair: &Pair, server: &Server, keeper: &Keeper) {
    let mut store = keeper.store.lock();
    let mut is_cut = false;
    pair.decide(move |event| match event {
        Event::Sends(_) if !std::mem::replace(&mut is_cut, true) => Fate::IsLost,
        Event::Connects | Event::Sends(_) => Fate::Arrives,
    });
    put(server, "another", b"bytes");
    let begun = Instant::now();
    while server.mirror().unwrap().phase == MirrorPhase::Follows {
        assert!(begun.elapsed() < DEADLINE);
        // Polled: a thread of the server notices it.
        thread::sleep(Duration::from_millis(5));
    }
    *store = None;
    let mut mirrors = fs::read_dir(pair.mirrors().join("mirrors")).unwrap();
    let volume = Volume::open_mirror(&mirrors.next().unwrap().unwrap().path()).unwrap();
    let table = FjallTable::open_in(volume.table(), fjall::Options::default()).unwrap();
    let range = key::all(RowKind::Inline);
    let mut batch = Batch::new();
    let scanned = table.scan(&range.from, &range.to, &mut |row_key, value| {
        let (stamp, _) = Inline::decode(value).unwrap();
        batch.put(row_key.to_vec(), Inline { bytes: b"damaged" }.encode(stamp));
        ControlFlow::Continue(())
    });
    scanned.unwrap();
    table.write(&batch).unwrap();
    table.close().unwrap();
    *store = Some(MirrorStore::open(&Folder::open(&pair.mirrors()).unwrap()).unwrap());
}

/// A row that differs is named by the path of its file, though it has no more than its number.
#[test]
fn rows_that_differ_are_named_by_the_paths_of_their_files() {
    let pair = Pair::new();
    let server = start(&pair.volume());
    let dir = make_dir(&server, Handle::ROOT, "dir");
    put_in(&server, dir, "tiny", b"in a row").unwrap();
    put(&server, "other", b"in a row too");
    let keeper = pair.keep();
    connect_to(&server, &keeper, |_| {});
    let has_all = || {
        let commit = server.next_commit().unwrap();
        assert_eq!(server.wait_for_mirror(commit, DEADLINE), Ok(true));
    };
    has_all();
    damage_rows(&pair, &server, &keeper);
    has_all();
    assert_eq!(verify(&server, false).differing, ["/dir/tiny", "/other"]);
    assert_eq!(server.verify_mirror(true, Some(dir.ino)), Ok(true));
    assert_eq!(wait(&server).differing, ["/dir/tiny"]);
    has_all();
    assert_eq!(verify(&server, false).differences, 0);
    server.stop().unwrap();
    drop(server);
    *keeper.store.lock() = None;
    pair.expect_equal();
}
