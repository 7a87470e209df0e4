//! Bytes that a mount has kept back when the server is killed: the next run receives all of them,
//! in however many requests, before other clients go on.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use crate::restart::World;

/// Longer than a mount keeps bytes back. Only the clock ends this wait: the server, which would
/// report the bytes, is stopped.
const UNTIL_SENT: Duration = Duration::from_millis(400);
/// Longer than writes take that need no request to the server.
const PATIENCE: Duration = Duration::from_secs(30);

impl World {
    /// Opens a file that its mount has alone: it keeps back what is written.
    fn writer(&self, name: &str) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).open(self.path(name)).unwrap()
    }

    /// Stops the server, and writes: the mount answers all of it itself.
    fn write_alone(&self, write: impl FnOnce() + Send) {
        let server = self.volume.pid().unwrap();
        kill_process(server, Signal::STOP).unwrap();
        thread::scope(|scope| {
            let (sender, is_over) = channel();
            scope.spawn(move || {
                write();
                sender.send(()).unwrap();
            });
            let is_alone = is_over.recv_timeout(PATIENCE).is_ok();
            if !is_alone {
                kill_process(server, Signal::CONT).unwrap();
            }
            assert!(is_alone, "a write waits for the server");
        });
    }

    /// Expects these bytes in a file, also on the server's own mount, and no error of a writer.
    fn expect(&self, name: &str, file: &File, bytes: &[u8]) {
        file.sync_all().unwrap();
        for path in [self.path(name), self.volume.files().join(name)] {
            assert!(fs::read(&path).unwrap() == bytes, "{path:?}");
        }
    }
}

/// More places of one file than a mount sends at a time.
#[test]
fn bytes_of_many_places_survive_a_kill_of_the_server() {
    const PLACES: usize = 60;
    let Some(mut world) = World::new() else { return };
    let file = world.writer("places");
    let mut bytes = vec![0; 2 * PLACES - 1];
    world.write_alone(|| {
        for place in 0..PLACES {
            file.write_all_at(b"x", 2 * place as u64).unwrap();
            bytes[2 * place] = b'x';
        }
    });
    world.restart();
    world.expect("places", &file, &bytes);
    drop(file);
    world.finish();
}

/// Bytes that overlap some that were sent and not answered: the mount sends them after the answer.
#[test]
fn bytes_that_overlap_others_survive_a_kill_of_the_server() {
    let Some(mut world) = World::new() else { return };
    let file = world.writer("overlaps");
    world.write_alone(|| {
        file.write_all_at(b"first, ", 0).unwrap();
        thread::sleep(UNTIL_SENT);
        file.write_all_at(b"second", 3).unwrap();
        thread::sleep(UNTIL_SENT);
        file.write_all_at(b"third", 5).unwrap();
    });
    world.restart();
    world.expect("overlaps", &file, b"firsethird");
    drop(file);
    world.finish();
}

/// The server is killed again before the mount has sent all, and bytes of many files. A mount that
/// has come back keeps back what is written to new files as before.
#[test]
fn bytes_of_many_files_survive_two_kills_of_the_server() {
    const FILES: usize = 200;
    let Some(mut world) = World::new() else { return };
    for round in 1..=2 {
        let name = |number: usize| format!("file {round} {number}");
        let files: Vec<File> = (0..FILES).map(|number| world.writer(&name(number))).collect();
        world.write_alone(|| {
            for file in &files {
                file.write_all_at(format!("round {round}").as_bytes(), 0).unwrap();
            }
            thread::sleep(UNTIL_SENT);
            files.iter().for_each(|file| file.write_all_at(b"R", 0).unwrap());
        });
        world.restart();
        world.restart();
        for (number, file) in files.iter().enumerate() {
            world.expect(&name(number), file, format!("Round {round}").as_bytes());
        }
    }
    world.finish();
}
