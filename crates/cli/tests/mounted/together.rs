//! Concurrent programs.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crate::harness::program::run;
use crate::mounted::on_mount;

const THREADS: u32 = 8;

#[test]
fn many_create_and_remove_in_one_directory() {
    on_mount(|root| {
        thread::scope(|scope| {
            for worker in 0..THREADS {
                scope.spawn(move || {
                    for number in 0..200 {
                        let path = root.join(format!("w{worker}-{number}"));
                        fs::write(&path, path.as_os_str().as_encoded_bytes()).unwrap();
                        if number % 2 == 0 {
                            fs::remove_file(&path).unwrap();
                        }
                    }
                });
            }
        });
        let left = fs::read_dir(root).unwrap().count();
        assert_eq!(left, THREADS as usize * 100);
    });
}

/// Of many concurrent creates of one name, one succeeds.
#[test]
fn one_of_many_makes_a_name() {
    on_mount(|root| {
        let made = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for number in 0..100 {
                        if File::create_new(root.join(format!("f{number}"))).is_ok() {
                            made.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), 100);
    });
}

/// A name that is replaced exists at each moment. A reader that was overtaken twice between lookup
/// and open may get `ESTALE`, never `ENOENT`.
#[test]
fn a_name_that_is_replaced_is_always_there() {
    on_mount(|root| {
        fs::write(root.join("name"), "old").unwrap();
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 0..300 {
                    fs::write(root.join("new"), format!("{number}")).unwrap();
                    fs::rename(root.join("new"), root.join("name")).unwrap();
                }
            });
            while !writer.is_finished() {
                match fs::read(root.join("name")) {
                    Ok(bytes) => assert!(!bytes.is_empty()),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::StaleNetworkFileHandle),
                }
            }
        });
        assert_eq!(fs::read(root.join("name")).unwrap(), b"299");
    });
}

/// Directories that are moved into each other concurrently never form a loop.
#[test]
fn crossing_renames_make_no_circle() {
    on_mount(|root| {
        fs::create_dir_all(root.join("a/x")).unwrap();
        fs::create_dir_all(root.join("b/y")).unwrap();
        thread::scope(|scope| {
            let swap = |from: &'static str, to: &'static str| {
                scope.spawn(move || {
                    for _ in 0..200 {
                        // One of two crossing renames is refused, or its path no longer exists.
                        let _refused = fs::rename(root.join(from), root.join(to));
                        let _back = fs::rename(root.join(to), root.join(from));
                    }
                });
            };
            swap("a", "b/y/a");
            swap("b", "a/x/b");
        });
        let mut found = run(std::process::Command::new("find").arg(root)).expect_success().out;
        found.retain(|c| c != '\n');
        for name in ["x", "y"] {
            assert!(found.contains(&format!("/{name}")), "{found}");
        }
    });
}

/// Locks exclude other programs on the same machine.
#[test]
fn locks_hold() {
    on_mount(|root| {
        let path = root.join("lock");
        let one = File::create(&path).unwrap();
        let other = File::open(&path).unwrap();
        one.try_lock().unwrap();
        assert!(other.try_lock_shared().is_err());
        one.unlock().unwrap();
        other.try_lock_shared().unwrap();
    });
}
