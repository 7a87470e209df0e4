//! A directory that rarely changes, and programs that read its attributes all the time.
//!
//! The mode and the size of a file count its changes, so they show which changes a program has
//! seen.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::kinds;
use crate::kit::load::Worker;

const FOLDER: &str = "quiet";
const FILES: u64 = 16;
/// Time between two changes.
const INTERVAL: Duration = Duration::from_secs(1);
/// The longest time that the thread of the changes sleeps.
const NAP: Duration = Duration::from_millis(20);
/// Modes that a file can have.
const MODES: u64 = 0o1000;

/// The changes of each file.
pub(super) struct Stats {
    files: Vec<Changes>,
}

#[derive(Default)]
struct Changes {
    modes: Count,
    bytes: Count,
}

/// The changes that were requested, and those that were acknowledged.
#[derive(Default)]
struct Count {
    asked: AtomicU64,
    answered: AtomicU64,
}

impl Stats {
    /// Makes the directory and its files.
    pub(super) fn prepare(own: &Path) -> Result<Self, String> {
        let folder = own.join(FOLDER);
        let make = || {
            fs::create_dir(&folder)?;
            (0..FILES).try_for_each(|number| {
                let path = file(own, number);
                fs::write(&path, "").and_then(|()| set_mode(&path, 0))
            })
        };
        make().map_err(|why| format!("{}: {why}", folder.display()))?;
        Ok(Self { files: (0..FILES).map(|_| Changes::default()).collect() })
    }

    /// Changes one file after the other until the time is over.
    pub(super) fn change(&self, worker: &mut Worker) -> Result<(), String> {
        let mut next = Instant::now();
        while worker.goes_on() {
            if Instant::now() < next {
                thread::sleep(NAP);
                continue;
            }
            next += INTERVAL;
            let number = worker.random.below(FILES);
            let path = file(&worker.folder, number);
            let changes = &self.files[number as usize];
            let is_mode = worker.random.below(2) == 0;
            let count = if is_mode { &changes.modes } else { &changes.bytes };
            let value = count.answered.load(Ordering::SeqCst) + 1;
            count.asked.store(value, Ordering::SeqCst);
            let changed = worker.timed(kinds::CHANGE, || match is_mode {
                true => set_mode(&path, value),
                false => grow(&path),
            });
            changed.map_err(|why| format!("change {value} of {}: {why}", path.display()))?;
            count.answered.store(value, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Reads attributes until the time is over: they must have all changes that were acknowledged
    /// before.
    pub(super) fn look(&self, worker: &mut Worker) -> Result<(), String> {
        let mut newest = vec![(0, 0); FILES as usize];
        let paths: Vec<PathBuf> = (0..FILES).map(|number| file(&worker.folder, number)).collect();
        while worker.goes_on() {
            let number = worker.random.below(FILES) as usize;
            let path = &paths[number];
            let changes = &self.files[number];
            let before = [&changes.modes, &changes.bytes].map(Count::answered);
            let seen = worker.timed(kinds::STAT, || fs::metadata(path));
            let after = [&changes.modes, &changes.bytes].map(Count::asked);
            let seen = match seen {
                Ok(seen) => seen,
                Err(why) => {
                    worker.finding(&format!("stat {}: {why}", path.display()));
                    continue;
                }
            };
            let found = [u64::from(seen.mode()) % MODES, seen.len()];
            if !is_between(found, before, after) {
                let path = path.display();
                worker.finding(&format!("{path} shows {found:?}, not {before:?} to {after:?}"));
            }
            let changed = (seen.ctime(), seen.ctime_nsec());
            if changed < newest[number] {
                let path = path.display();
                worker.finding(&format!("the time of change of {path} goes back"));
            }
            newest[number] = changed;
        }
        Ok(())
    }
}

impl Count {
    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    fn answered(&self) -> u64 {
        self.answered.load(Ordering::SeqCst)
    }
}

/// Returns whether a mode and a size were acknowledged, or requested since.
fn is_between([mode, size]: [u64; 2], before: [u64; 2], after: [u64; 2]) -> bool {
    // Modes begin again from 0.
    (before[0]..=after[0]).any(|count| count % MODES == mode)
        && (before[1]..=after[1]).contains(&size)
}

fn file(point: &Path, number: u64) -> PathBuf {
    point.join(FOLDER).join(format!("quiet-{number}"))
}

fn set_mode(path: &Path, count: u64) -> std::io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode((count % MODES) as u32))
}

/// Appends one byte.
fn grow(path: &Path) -> std::io::Result<()> {
    File::options().append(true).open(path)?.write_all(b".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_attributes_are_found() {
        assert!(is_between([3, 9], [3, 9], [3, 9]));
        assert!(is_between([4, 9], [3, 9], [4, 9]) && is_between([0, 0], [511, 0], [512, 0]));
        assert!(!is_between([2, 9], [3, 9], [3, 9]) && !is_between([3, 8], [3, 9], [3, 9]));
        assert!(!is_between([5, 9], [3, 9], [4, 9]));
    }
}
