//! A copy of a table in another folder of the same file system, while the table may be open in
//! another process.
//!
//! A table is `flushed`, and in `engine` the marker `version`, journals, and for each keyspace
//! `current`, which names the version file `v`N, and the sorted runs that this one lists. The lock
//! files are not copied: their holders are of the other folder.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::sync_record::SyncRecord;
use super::{journal, manifest, runs};
use crate::folder::Folder;
use crate::table::Error;

/// The result of one attempt.
#[derive(Debug)]
pub(crate) enum Carried {
    /// The copy is a state that the table had at one moment, and is safe.
    Whole,
    /// The table changed meanwhile, or a file was missing: why, if that is known.
    Changed(Option<Error>),
}

/// The folders of the keyspaces in `engine`.
const KEYSPACES: [&str; 2] = ["keyspaces/0", "keyspaces/1"];
/// Folders in `engine`, each after those that it is in.
const FOLDERS: [&str; 5] =
    ["keyspaces", "keyspaces/0", "keyspaces/1", "keyspaces/0/tables", "keyspaces/1/tables"];
/// Most bytes of `flushed` and of `current` that are compared.
const SMALL_BYTES: usize = 1024;
/// Bytes that are copied at a time.
const CHUNK_BYTES: usize = 128 << 10;
/// Permissions of a copy.
const FILE_MODE: u32 = 0o600;

/// The files that name all other files of a table.
#[derive(Debug, PartialEq, Eq)]
struct Names {
    flushed: Vec<u8>,
    journals: Vec<u64>,
    currents: Vec<Vec<u8>>,
}

impl Names {
    fn read(home: &Path) -> io::Result<Self> {
        let engine = home.join("engine");
        let flushed = read_small(&SyncRecord::path(home))?;
        let journals = journal::list(&engine)?;
        let currents =
            KEYSPACES.iter().map(|keyspace| read_small(&engine.join(keyspace).join("current")));
        Ok(Self { flushed, journals, currents: currents.collect::<io::Result<_>>()? })
    }
}

/// Copies the table in the folder `from` into the empty folder `to`. Nothing in `from` is changed.
///
/// # Errors
/// [`Error`]; [`Error::Corrupt`] if a file is damaged. Half of the copy is there then.
pub(crate) fn carry(from: &Folder, to: &Folder) -> Result<Carried, Error> {
    let [home, copy] = [from.proc_path(), to.proc_path()];
    let named = |error: Error| error.with_folder(&copy, to.path());
    let failed = |error| Error::from_io("taking over a table", error);
    let before = match Names::read(&home) {
        Err(error) if is_gone(&error) => return Ok(Carried::Changed(Some(missing(from, error)))),
        read => read.map_err(failed)?,
    };
    let copied = copy_all(&home, &copy, &before.journals);
    let after = match Names::read(&home) {
        Err(error) if is_gone(&error) => return Ok(Carried::Changed(Some(missing(from, error)))),
        read => read.map_err(failed)?,
    };
    match copied {
        Err(Failed::Io(error)) if is_full(&error) => Err(failed(error)),
        _ if before != after => Ok(Carried::Changed(None)),
        Ok(()) => Ok(Carried::Whole),
        Err(Failed::Io(error)) if is_gone(&error) => {
            Ok(Carried::Changed(Some(missing(from, error))))
        }
        Err(Failed::Io(error)) => Err(failed(error)),
        Err(Failed::Table(error)) => Err(named(error)),
    }
}

/// A failure of a copy.
enum Failed {
    Io(io::Error),
    Table(Error),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Returns whether the error says that a file is not there, or no longer.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::StaleNetworkFileHandle)
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn missing(from: &Folder, error: io::Error) -> Error {
    let what = format!("a file of it is missing ({error})");
    Error::Corrupt { path: from.path().to_path_buf(), what }
}

/// Copies in the order in which nothing gets lost between two files: the engine writes a run, then
/// names it in a version, and then deletes the journal that had its rows.
fn copy_all(home: &Path, copy: &Path, journals: &[u64]) -> Result<(), Failed> {
    copy_file(&SyncRecord::path(home), &SyncRecord::path(copy))?;
    let [from, to] = [home.join("engine"), copy.join("engine")];
    fs::create_dir(&to)?;
    for id in journals {
        copy_file(&journal::path(&from, *id), &journal::path(&to, *id))?;
    }
    for folder in FOLDERS {
        fs::create_dir(to.join(folder))?;
    }
    for keyspace in KEYSPACES {
        copy_keyspace(&from.join(keyspace), &to.join(keyspace))?;
    }
    copy_file(&from.join("version"), &to.join("version"))?;
    create(&to.join("lock"))?.sync_all()?;
    for folder in FOLDERS.iter().rev() {
        File::open(to.join(folder))?.sync_all()?;
    }
    File::open(to)?.sync_all()?;
    Ok(File::open(copy)?.sync_all()?)
}

/// Copies a version, and links the sorted runs that it lists.
fn copy_keyspace(from: &Path, to: &Path) -> Result<(), Failed> {
    let current = read_small(&from.join("current"))?;
    let Some(version) = manifest::named_by(&current) else {
        let what = "it names no manifest".to_owned();
        return Err(Failed::Table(Error::Corrupt { path: to.join("current"), what }));
    };
    copy_file(&from.join(&version), &to.join(&version))?;
    let file = create(&to.join("current"))?;
    file.write_all_at(&current, 0)?;
    file.sync_all()?;
    for run in runs::listed(to).map_err(Failed::Table)? {
        fs::hard_link(runs::path(from, run.id), runs::path(to, run.id))?;
    }
    Ok(())
}

/// Copies a file that may grow meanwhile, as long as it is now. Chunks of zeros stay holes: the
/// engine makes a new journal 64 MiB long.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let [source, copy] = [File::open(from)?, create(to)?];
    let len = source.metadata()?.len();
    copy.set_len(len)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < len {
        let wanted = chunk.len().min((len - at) as usize);
        let read = source.read_at(&mut chunk[..wanted], at)?;
        if read == 0 {
            // It was cut while it was read.
            copy.set_len(at)?;
            break;
        }
        let bytes = &chunk[..read];
        if bytes.iter().any(|byte| *byte != 0) {
            copy.write_all_at(bytes, at)?;
        }
        at += read as u64;
    }
    copy.sync_all()
}

fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(FILE_MODE).open(path)
}

/// Reads the beginning of a small file.
fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    File::open(path)?.take(SMALL_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::super::{FjallTable, Options};
    use super::*;
    use crate::table::{Batch, Table, TableRead};

    /// Attempts to copy a table that another thread changes all the time, and how long they last.
    const TRIES: u32 = 1000;
    const TIME: Duration = Duration::from_secs(4);
    /// Little memory means many seals, flushes and compactions.
    const OPTIONS: Options = Options { memory_bytes: 8 << 20 };

    fn row(number: u64) -> Vec<u8> {
        format!("{number:016x}").into_bytes()
    }

    /// Writes and persists numbers, and closes and opens the table now and then, which empties its
    /// journals, until it is told to stop.
    fn write(folder: &Folder, safe: &AtomicU64, stop: &AtomicBool) {
        let mut number = 0;
        for _ in 0..10_000 {
            let table = FjallTable::open_in(folder, OPTIONS).unwrap();
            for _ in 0..150 {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                number += 1;
                let mut batch = Batch::new();
                // Few rows stay, so that a copy is fast.
                batch.put(row(number % 64), [&number.to_le_bytes()[..], &[7; 40_000]].concat());
                batch.put(b"newest".to_vec(), number.to_le_bytes().to_vec());
                table.write(&batch).unwrap();
                if number.is_multiple_of(20) {
                    table.persist().unwrap();
                    safe.store(number, Ordering::Release);
                }
            }
            table.close().unwrap();
        }
    }

    /// Stops the writer, also if a check fails.
    struct Stopping<'a>(&'a AtomicBool);

    impl Drop for Stopping<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }

    fn number(value: &[u8]) -> u64 {
        u64::from_le_bytes(*value.first_chunk().unwrap())
    }

    /// Checks that a copy has all batches up to its newest one; returns the number of that.
    fn newest(copy: &Folder) -> u64 {
        let table = FjallTable::open_in(copy, OPTIONS).unwrap();
        let newest = table.get(b"newest").unwrap().map_or(0, |value| number(&value));
        let mut rows = 0;
        table
            .scan(b"0", b"g", &mut |key, value| {
                let wrote = number(value);
                assert_eq!(key, row(wrote % 64));
                assert!(wrote <= newest && wrote + 64 > newest, "{wrote} of {newest}");
                rows += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(rows, newest.min(64));
        newest
    }

    /// The owner before is busy, and does not know yet that it was taken over.
    #[test]
    fn a_copy_of_a_busy_table_has_all_that_was_safe_when_it_began() {
        let temp = tempfile::tempdir().unwrap();
        let store = Folder::open(temp.path()).unwrap();
        let from = store.create_folder("from").unwrap();
        let safe = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let writer = thread::Builder::new().name("owner".to_owned());
            let writer = writer.spawn_scoped(scope, || write(&from, &safe, &stop)).unwrap();
            let stopping = Stopping(&stop);
            let mut copies = 0;
            let began = Instant::now();
            for attempt in 0..TRIES {
                let name = format!("copy.{attempt}");
                let to = store.create_folder(&name).unwrap();
                let before = safe.load(Ordering::Acquire);
                let carried = carry(&from, &to).unwrap();
                if before > 0 && matches!(carried, Carried::Whole) {
                    let newest = newest(&to);
                    assert!(newest >= before, "{before} was safe, {newest} is there");
                    copies += 1;
                }
                store.remove_tree(&name).unwrap();
                let is_enough = copies > 0 && began.elapsed() > TIME;
                if is_enough || writer.is_finished() {
                    break;
                }
            }
            drop(stopping);
            writer.join().unwrap();
            assert!(copies > 0, "no copy was ever whole");
        });
    }
}
