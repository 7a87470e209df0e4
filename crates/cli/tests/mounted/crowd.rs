//! Many concurrent callers: none is refused, and none blocks another.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::thread::{Builder, JoinHandle};

use rustix::fs::statvfs;

use crate::mounted::on_mount;

/// More threads than the kernel sends background requests, and more than any queue has slots.
const CALLERS: usize = 1400;
const ROUNDS: u64 = 2;

/// With any number of threads each write, `fsync`, `open` and `statfs` succeeds.
#[test]
fn many_callers_are_all_served() {
    on_mount(|root| {
        let errors = crowd(root, |root, number| {
            let file = File::create(root.join(format!("f{number}")))?;
            for round in 0..ROUNDS {
                file.write_all_at(&[number as u8; 8192], round * 8192)?;
                file.sync_all()?;
                statvfs(root)?;
            }
            Ok(())
        });
        assert_eq!(errors, BTreeMap::new());
    });
}

/// Large writes that wait for a slow file are neither refused nor lost.
#[test]
fn large_writes_of_many_callers_all_arrive() {
    on_mount(|root| {
        const SIZE: usize = 256 << 10;
        let errors = crowd(root, |root, number| {
            // Several threads write one file, and wait for each other.
            let path = root.join(format!("f{}", number % 8));
            let file = File::options().write(true).create(true).truncate(false).open(path)?;
            file.write_all_at(&vec![number as u8; SIZE], (number / 8 * SIZE) as u64)
        });
        assert_eq!(errors, BTreeMap::new());
        for number in 0..CALLERS {
            let mut bytes = vec![0; SIZE];
            let file = File::open(root.join(format!("f{}", number % 8))).unwrap();
            file.read_exact_at(&mut bytes, (number / 8 * SIZE) as u64).unwrap();
            assert!(bytes.iter().all(|byte| *byte == number as u8), "{number}");
        }
    });
}

/// Runs this in many threads, and counts each error.
fn crowd(
    root: &Path,
    work: impl Fn(&Path, usize) -> io::Result<()> + Send + Sync + 'static,
) -> BTreeMap<String, usize> {
    let work = Arc::new(work);
    let start = Arc::new(Barrier::new(CALLERS));
    let begin = |number| -> JoinHandle<io::Result<()>> {
        let work = Arc::clone(&work);
        let start = Arc::clone(&start);
        let root = root.to_owned();
        let run = move || {
            start.wait();
            work(&root, number)
        };
        Builder::new().stack_size(128 << 10).spawn(run).unwrap()
    };
    let threads: Vec<_> = (0..CALLERS).map(begin).collect();
    let mut errors = BTreeMap::new();
    for thread in threads {
        if let Err(error) = thread.join().unwrap() {
            *errors.entry(error.to_string()).or_default() += 1;
        }
    }
    errors
}
