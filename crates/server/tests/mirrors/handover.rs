//! A volume that is handed over to its mirror, and a mirror that is compared with its volume.

use std::fs;
use std::path::PathBuf;

use pelago_check as check;
use pelago_server::{HandOverError, Options, Server, StartError, Verified};
use pelago_store::volume::VolumeError;
use pelago_wire::{Code, Handle};

use super::primary::{put, read};
use super::resync::{Pair, fill, noise, put_at, start};
use crate::harness::requests::unlink;
use crate::harness::rig::DEADLINE;

impl Pair {
    /// Serves the volume with its mirror, and calls `act` when the mirror has all.
    fn served<T>(&self, act: impl FnOnce(&Server) -> T) -> T {
        let server = start(&self.volume());
        self.connect(&server);
        let commit = server.next_commit().unwrap();
        assert_eq!(server.wait_for_mirror(commit, DEADLINE), Ok(true));
        let result = act(&server);
        // It may have stopped.
        let _stopped = server.stop();
        result
    }

    /// Returns the paths of the content files of the mirror, the largest first.
    fn contents(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut dirs = vec![self.mirror().join("content")];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                match entry.file_type().unwrap().is_dir() {
                    true => dirs.push(entry.path()),
                    false => files.push(entry.path()),
                }
            }
        }
        files.sort_by_key(|path| std::cmp::Reverse(fs::metadata(path).unwrap().len()));
        files
    }
}

#[test]
fn a_volume_that_is_handed_over_goes_on_at_its_mirror() {
    let pair = Pair::new();
    pair.alone(fill);
    let mirror = pair.mirror();
    pair.served(|server| {
        put(server, "last", b"change");
        unlink(server, Handle::ROOT, "removed").unwrap();
        assert_eq!(server.catch_up_mirror(DEADLINE), Ok(()));
        put(server, "after", b"that");
        assert_eq!(server.hand_over(DEADLINE), Ok(2));
        assert!(matches!(server.hand_over(DEADLINE), Err(HandOverError::NotStopped(_))));
    });
    let refused = Server::start(&pair.volume(), Options::default()).err().unwrap();
    let is_replaced = matches!(refused, StartError::Volume(VolumeError::NotPrimary { .. }));
    assert!(is_replaced, "{refused:?}");
    let plan = check::plan(&mirror).unwrap();
    assert!(plan.findings.is_empty(), "{:?}", plan.findings);
    let server = start(&mirror);
    assert_eq!(server.reign(), 2);
    assert_eq!(read(&server, "last").unwrap(), b"change");
    assert_eq!(read(&server, "after").unwrap(), b"that");
    assert_eq!(read(&server, "removed"), Err(Code::NotFound));
    assert!(read(&server, "large").unwrap() == noise(5 << 20));
    put(&server, "new", b"here");
    server.stop().unwrap();
}

#[test]
fn a_volume_without_a_mirror_is_handed_over_to_nobody_and_goes_on() {
    let pair = Pair::new();
    pair.alone(|server| {
        assert_eq!(server.catch_up_mirror(DEADLINE), Err(HandOverError::NoMirror));
        put(server, "file", b"bytes");
    });
    pair.alone(|server| assert_eq!(read(server, "file").unwrap(), b"bytes"));
}

fn verify(server: &Server, repairs: bool) -> Verified {
    assert!(server.verify_mirror(repairs));
    let begun = std::time::Instant::now();
    loop {
        let verified = server.verified().unwrap();
        if verified.finished.is_some() {
            return verified;
        }
        assert!(begun.elapsed() < DEADLINE, "{verified:?}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Changes bytes of the largest file of the mirror, and removes the next one.
fn damage(pair: &Pair) {
    let contents = pair.contents();
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
    let file = fs::OpenOptions::new().write(true).open(&pair.contents()[0]).unwrap();
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
            std::thread::sleep(std::time::Duration::from_millis(5));
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
