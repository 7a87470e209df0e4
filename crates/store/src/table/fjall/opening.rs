//! The opening of a table, the first time and again.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{io, thread};

use super::disk_space::{self, DiskSpace};
use super::engine::Engine;
use super::journal::Position;
use super::options::Options;
use super::panics::catch_panic;
use super::sync_record::SyncRecord;
use super::tail::JournalTail;
use super::verify;
use crate::table::Error;

/// The time within which the threads of the engine must close their files.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between two looks through the descriptors of this process until then.
const CLOSE_POLL: Duration = Duration::from_micros(200);

/// Takes the lock of the table in the folder `home`, without waiting. The lock lasts as long as the
/// file is open.
pub(super) fn lock(home: &Path) -> Result<File, Error> {
    let path = home.join("owner");
    let failed = |error| Error::from_io("locking the table", error);
    let file =
        File::options().write(true).create(true).truncate(false).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::InUse { path }),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Opens the table in the folder `home`, journal-only if the disk is nearly full. `after_failure`
/// says that the table has just failed: then a compaction may have run out of space, and the space
/// for a whole one must be free.
pub(super) fn open(
    home: &Path,
    options: &Options,
    after_failure: bool,
) -> Result<(Engine, JournalTail, SyncRecord), Error> {
    let failed = |error| Error::from_io("opening the table", error);
    let folder = home.join("engine");
    let end = verify::verify(home, &folder)?;
    let journal_only = end.is_some() && !has_space(&folder, after_failure).map_err(failed)?;
    let mut engine = open_engine(&folder, options, journal_only);
    // The engine ran out of space while it opened: it needs less without flushes.
    if end.is_some() && !journal_only && matches!(engine, Err(Error::NoSpace | Error::Stopped)) {
        wait_until_closed(&folder)?;
        engine = open_engine(&folder, options, true);
    }
    let engine = engine?;
    if engine.is_journal_only() {
        tracing::warn!(
            "the disk is nearly full: the table keeps new rows in memory and in its journal until \
             there is space again"
        );
    }
    let end = end.unwrap_or(Position { journal: 0, bytes: 0 });
    let tail = JournalTail::open(&folder, end).map_err(failed)?;
    let record = match SyncRecord::open(home)? {
        Some(record) => record,
        None => {
            sync_new(&folder).map_err(failed)?;
            SyncRecord::create(home, end).map_err(failed)?
        }
    };
    Ok((engine, tail, record))
}

fn open_engine(folder: &Path, options: &Options, journal_only: bool) -> Result<Engine, Error> {
    catch_panic(|| Engine::open(folder, options, journal_only)).unwrap_or_else(|panic| {
        let what = format!("the engine panicked while it opened its files: {panic}");
        Err(Error::Corrupt { path: folder.to_owned(), what })
    })
}

fn has_space(engine: &Path, after_failure: bool) -> io::Result<bool> {
    let mut bytes = disk_space::bytes_to_open(engine)?;
    if after_failure {
        bytes += disk_space::bytes_to_compact(engine)?;
    }
    Ok(DiskSpace::of(engine)?.fits(bytes))
}

/// Makes the names of the files of a new database safe. The engine syncs the files, but not all
/// folders that hold them.
fn sync_new(engine: &Path) -> io::Result<()> {
    for folder in ["keyspaces/0", "keyspaces/1", "keyspaces", ""] {
        File::open(engine.join(folder))?.sync_all()?;
    }
    Ok(())
}

/// Waits until this process has no file below `engine` open. Threads of the engine outlive it for a
/// moment, and may write to files as they close them.
///
/// # Errors
/// `ETIMEDOUT` after a minute.
pub(super) fn wait_until_closed(engine: &Path) -> Result<(), Error> {
    let Ok(engine) = fs::canonicalize(engine) else {
        return Ok(());
    };
    let deadline = Instant::now() + CLOSE_TIMEOUT;
    while has_open_file_below(&engine) {
        if Instant::now() > deadline {
            return Err(Error::from_io("closing the engine", io::ErrorKind::TimedOut.into()));
        }
        // Linux reports no close of a descriptor by another thread, so it is polled.
        thread::sleep(CLOSE_POLL);
    }
    Ok(())
}

fn has_open_file_below(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return false;
    };
    entries
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .any(|target| target.starts_with(folder))
}
