//! Tests of the operations on one file in several mounts, on a plain directory of this machine.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::os::unix::fs::symlink;

use pelago_workload::together::{Bounds, run};

const BOUNDS: Bounds = Bounds { longest: 50_000, largest: 20_000 };

fn new_dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// One directory, as two mounts that agree.
#[test]
fn a_directory_agrees_with_itself() {
    let dir = new_dir();
    let roots = [dir.path().to_owned(), dir.path().to_owned()];
    for seed in 0..5 {
        run(&roots, seed, 2000, BOUNDS).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

/// The second directory leads to the file by a link, so it shows the bytes and misses each rename.
#[test]
fn a_directory_that_misses_a_change_is_found_out() {
    let dir = new_dir();
    let other = new_dir();
    symlink(dir.path().join("file-1"), other.path().join("file-1")).unwrap();
    let wrong = run(&[dir.path().to_owned(), other.path().to_owned()], 1, 2000, BOUNDS);
    let said = wrong.unwrap_err().to_string();
    assert!(said.contains("rename to"), "{said}");
}
