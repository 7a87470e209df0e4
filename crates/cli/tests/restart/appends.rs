//! Appends when the server is killed in the middle of them.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{fs, thread};

use crate::harness::program::until;
use crate::restart::World;

/// Appends lines until it is told to stop. Returns how many.
fn append(path: &Path, writer: usize, stop: &AtomicBool, done: &AtomicU64) -> u64 {
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            return round;
        }
        let line = line(writer, round);
        let wrote = file.write(line.as_bytes());
        assert_eq!(wrote.expect("an append in spite of the kill"), line.len());
        done.fetch_add(1, Ordering::Relaxed);
    }
    unreachable!("it is told to stop")
}

fn line(writer: usize, round: u64) -> String {
    let width = 20 + (round * 7 + writer as u64) % 90;
    format!("{writer} {round} {}\n", "x".repeat(width as usize))
}

/// On three mounts at once. A file begins in a row and moves to a content file, and the server is
/// killed in both times.
#[test]
fn appends_of_three_mounts_are_whole_and_there_once() {
    const MOUNTS: usize = 3;
    const FILES: usize = 8;
    let Some(mut world) = World::new() else { return };
    let mut roots = vec![world.point.clone()];
    roots.extend((1..MOUNTS).map(|_| world.mount_other()));
    for number in 0..FILES {
        let name = format!("log {number}");
        // Within the inline limit every other time.
        let before_kill = if number % 2 == 0 { 25 } else { 150 };
        let stop = AtomicBool::new(false);
        let done = AtomicU64::new(0);
        let lines: Vec<u64> = thread::scope(|scope| {
            let start = |(writer, root): (usize, &std::path::PathBuf)| {
                let path = root.join(&name);
                let stop = &stop;
                let done = &done;
                scope.spawn(move || append(&path, writer, stop, done))
            };
            let writers: Vec<_> = roots.iter().enumerate().map(start).collect();
            let wait_for = |more: u64| {
                let before = done.load(Ordering::Relaxed);
                until("lines are appended", || {
                    let failed = writers.iter().any(thread::ScopedJoinHandle::is_finished);
                    failed || done.load(Ordering::Relaxed) >= before + more
                });
            };
            wait_for(before_kill);
            world.restart();
            wait_for(60);
            stop.store(true, Ordering::Relaxed);
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let text = fs::read_to_string(roots[0].join(&name)).unwrap();
        for (writer, lines) in lines.into_iter().enumerate() {
            let own = |line: &&str| line.starts_with(&format!("{writer} "));
            let found: String = text.split_inclusive('\n').filter(own).collect();
            let expected: String = (0..lines).map(|round| line(writer, round)).collect();
            assert!(found == expected, "{name}: the lines of mount {writer}:\n{found}");
        }
        let own = fs::read_to_string(world.volume.files().join(&name)).unwrap();
        assert!(own == text, "the server's own mount has the same");
    }
    world.finish();
}
