//! A mirror that is compared with its volume.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use pelago_server::{MirrorPhase, Server, Verified};
use pelago_wire::Handle;
use pelago_wire::mirror::GroupPart;

use super::pair::{Event, Fate, MIB, Pair, contents, cut, fill, noise, put_at};
use super::primary::put;
use crate::harness::requests::unlink;
use crate::harness::rig::DEADLINE;

fn verify(server: &Server, repairs: bool) -> Verified {
    assert!(server.verify_mirror(repairs));
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
        assert!(server.verify_mirror(false));
        assert!(!server.verify_mirror(false), "one at a time");
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
        assert!(server.verify_mirror(false));
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
        assert!(server.verify_mirror(true));
        pause.during(|| unlink(server, Handle::ROOT, "removed").unwrap());
        let verified = wait(server);
        assert_eq!((verified.differing, verified.changing), (vec!["/stays".to_owned()], vec![]));
        let commit = server.next_commit().unwrap();
        assert_eq!(server.wait_for_mirror(commit, DEADLINE), Ok(true));
        assert_eq!(verify(server, false).differences, 0);
    });
}
