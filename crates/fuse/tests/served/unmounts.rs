//! Mounts that come and go under load.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::mount::{UnmountFlags, unmount};

use crate::alone::is_alone;
use crate::callers::caller;
use crate::cut_off::is_mounted;
use crate::{Mounted, mounted, until};

const ROUNDS: usize = 200;
const MOUNTS: usize = 8;
const CALLERS: usize = 3;

/// Alone, because it counts what the process has.
#[test]
fn two_hundred_unmounts_under_load_leave_nothing() {
    if !is_alone("unmounts::two_hundred_unmounts_under_load_leave_nothing") {
        return;
    }
    // The first one may leave what all others use.
    let Some(first) = mounted() else { return };
    load_and_unmount(first, true);
    let before = (count("/proc/self/fd"), count("/proc/self/task"));
    // Several at once: the kernel waits 50 ms with the end of a ring that has a request.
    thread::scope(|scope| {
        for number in 0..MOUNTS {
            caller(scope, move || {
                for round in 0..ROUNDS / MOUNTS {
                    load_and_unmount(mounted().expect("as before"), (number + round) % 2 == 0);
                }
            });
        }
    });
    // A thread that has been joined may be counted for an instant.
    until(|| count("/proc/self/fd") <= before.0 && count("/proc/self/task") <= before.1);
}

fn count(folder: &str) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// Unmounts while callers are at work: at once, or with the last of them.
fn load_and_unmount(mut mounted: Mounted, at_once: bool) {
    let folder = mounted.folder.path().to_owned();
    let has_ended = &AtomicBool::new(false);
    let rounds = &AtomicBool::new(false);
    let session = mounted.session.take().expect("a session");
    thread::scope(|scope| {
        for number in 0..CALLERS {
            let folder = &folder;
            caller(scope, move || {
                while !has_ended.load(Ordering::Relaxed) {
                    work(folder, number);
                    rounds.store(true, Ordering::Relaxed);
                }
            });
        }
        until(|| rounds.load(Ordering::Relaxed));
        if at_once {
            unmount(&folder, UnmountFlags::DETACH).unwrap();
        }
        has_ended.store(true, Ordering::Relaxed);
        if !at_once {
            until(|| unmount(&folder, UnmountFlags::empty()).is_ok());
        }
    });
    session.join().unwrap().unwrap();
    assert!(!is_mounted(&folder));
}

/// Looks a name up, makes a file, and reads it; in the folder below once the mount is gone.
fn work(folder: &Path, number: usize) {
    let path = folder.join(format!("file-{number}"));
    assert!(fs::metadata(folder.join("absent")).is_err());
    match fs::write(&path, b"bytes").and_then(|()| fs::read(&path)) {
        Ok(bytes) => assert_eq!(bytes, b"bytes"),
        // The mount is gone in between.
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
    }
    let _gone = fs::remove_file(&path);
}
