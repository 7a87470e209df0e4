//! The state of an open table, and its operations.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fjall::AbstractTree;
use parking_lot::{Mutex, RwLock};

use super::disk_space::{self, DiskSpace};
use super::engine::Engine;
use super::journal::{self, Position};
use super::opening::{lock, open, wait_until_closed};
use super::options::Options;
use super::panics::catch_panic;
use super::sync_record::SyncRecord;
use super::tail::{self, JournalTail};
use crate::folder::Folder;
use crate::reserve::Reserve;
use crate::table::{Batch, Error, MAX_KEY_BYTES, Usage};

/// Bytes after which the engine starts a new journal when a memtable is sealed.
const ROTATE_BYTES: u64 = 64_000_000;
/// Bytes of the smallest memtable that a persist seals only to let old journals go.
const SMALL_SEAL_BYTES: u64 = 4 << 20;

/// An open table. The lock order is the order of the fields: `sync_record`, `engine`, `tail`.
/// `lock_file` comes before them.
pub(super) struct TableInner {
    /// The folder of the table.
    folder: Folder,
    /// A path to the folder through its descriptor.
    home: PathBuf,
    options: Options,
    /// Locked during a persist, so that persists do not overlap.
    sync_record: Mutex<SyncRecord>,
    /// `None` after a close or a failed reopen. Read-locked while anything of the engine is used,
    /// recursively because a visitor of a scan may read; write-locked to replace the engine.
    engine: RwLock<Option<Engine>>,
    /// Write-locked while a batch is applied. So with a read lock the table is between two batches.
    tail: RwLock<JournalTail>,
    /// True while a batch is being applied.
    is_applying: AtomicBool,
    /// True if a write failed or the engine panicked. Every call then fails until a reopen.
    stopped: AtomicBool,
    /// The last result of [`Engine::is_under_pressure`].
    is_under_pressure: AtomicBool,
    /// The number of reopens. Snapshots taken before the last one are stale.
    reopens: AtomicU64,
    /// True if the engine is journal-only because it failed on a nearly full disk.
    failed_when_full: AtomicBool,
    /// The locked file; `None` after a close.
    lock_file: Mutex<Option<File>>,
}

impl TableInner {
    /// Opens the table in `folder`.
    pub(super) fn open(folder: &Folder, options: Options) -> Result<Self, Error> {
        let home = folder.proc_path();
        let named = |error: Error| error.with_folder(&home, folder.path());
        let lock_file = lock(&home).map_err(named)?;
        let (engine, tail, sync_record) = open(&home, &options, false).map_err(named)?;
        Ok(Self {
            folder: folder.clone(),
            home,
            options,
            sync_record: Mutex::new(sync_record),
            engine: RwLock::new(Some(engine)),
            tail: RwLock::new(tail),
            is_applying: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            is_under_pressure: AtomicBool::new(false),
            reopens: AtomicU64::new(0),
            failed_when_full: AtomicBool::new(false),
            lock_file: Mutex::new(Some(lock_file)),
        })
    }

    /// Makes everything safe, ends the engine, and empties the journals if all rows are flushed.
    pub(super) fn close(&self) -> Result<(), Error> {
        let persisted = self.persist();
        let flushed = persisted.is_ok().then(|| self.flush_all()).flatten();
        let ended = self.shut_down();
        if let (Ok(()), Some(last)) = (&ended, flushed)
            && let Err(error) = self.empty_journals(last)
        {
            tracing::warn!(%error, "the journals are not empty: the next open replays them");
        }
        drop(self.lock_file.lock().take());
        persisted.and(ended)
    }

    /// Returns whether the engine runs: neither a close nor a failed reopen ended it.
    pub(super) fn is_open(&self) -> bool {
        self.engine.read().is_some()
    }

    pub(super) fn set_reserve(&self, reserve: Arc<Reserve>) {
        self.tail.write().set_reserve(Some(reserve));
    }

    /// Returns how often the table was reopened.
    pub(super) fn reopens(&self) -> u64 {
        self.reopens.load(Ordering::Acquire)
    }

    pub(super) fn has_failed_sync(&self) -> bool {
        self.tail.read().has_failed_sync()
    }

    /// Runs `call` with the engine, or fails if the table stopped.
    pub(super) fn with_engine<T>(
        &self,
        call: impl FnOnce(&Engine) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // Checked before the lock too: a reopen waits for the write lock, and recursive readers
        // that overlap would keep it waiting for ever.
        if self.is_stopped() {
            return Err(Error::Stopped);
        }
        let engine = self.engine.read_recursive();
        let Some(engine) = engine.as_ref() else {
            return Err(Error::Stopped);
        };
        if self.is_stopped() {
            return Err(Error::Stopped);
        }
        let done = call(engine);
        if matches!(done, Err(Error::Stopped)) {
            self.stop();
        }
        done.map_err(|error| error.with_folder(&self.home, self.folder.path()))
    }

    /// Runs `call`, which runs code of the engine only, with the engine. A panic stops the table.
    pub(super) fn call_engine<T>(
        &self,
        call: impl FnOnce(&Engine) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.with_engine(|engine| self.catch(|| call(engine)))
    }

    /// Runs `call`, which runs code of the engine only. A panic stops the table.
    pub(super) fn catch<T>(&self, call: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        catch_panic(call).unwrap_or_else(|panic| {
            tracing::error!(panic, "the engine panicked: the table stops until it is reopened");
            self.stop();
            Err(Error::Stopped)
        })
    }

    /// Runs `call` while no batch is being applied.
    pub(super) fn between_batches<T>(&self, call: impl FnOnce() -> T) -> T {
        let _between = self.tail.read();
        call()
    }

    /// Implements [`crate::table::TableRead::get`].
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let value = self.call_engine(|engine| {
            engine.rows().get(key).map_err(|error| engine.error("reading a row", error))
        })?;
        // The row may be of a batch that is being applied. Wait until that is done, so that every
        // read that begins after this one sees the whole batch.
        if self.is_applying.load(Ordering::Acquire) {
            self.between_batches(|| ());
        }
        Ok(value.map(|value| value.to_vec()))
    }

    /// Applies a batch that is not empty and in which no key repeats.
    pub(super) fn write(&self, batch: &Batch) -> Result<(), Error> {
        let bytes = journal::batch_bytes(batch.changes().iter());
        self.with_engine(|engine| {
            let mut tail = self.tail.write();
            if self.is_stopped() {
                return Err(Error::Stopped);
            }
            tail.preallocate(bytes, batch.may_use_reserve())?;
            self.is_applying.store(true, Ordering::Release);
            let done = self.catch(|| engine.commit(batch));
            self.is_applying.store(false, Ordering::Release);
            if let Err(error) = done {
                self.stop();
                return Err(error);
            }
            tail.add_batch(bytes);
            if tail.unsealed_bytes() >= 2 * self.options.seal_bytes()
                && self.can_seal(engine, &mut tail)
            {
                self.seal(engine, &mut tail)?;
            }
            Ok(())
        })
    }

    /// Implements [`crate::table::Table::persist`].
    pub(super) fn persist(&self) -> Result<(), Error> {
        let mut sync_record = self.sync_record.lock();
        self.with_engine(|engine| {
            let (end, file) = {
                let mut tail = self.tail.write();
                if self.should_seal(engine, &tail) && self.can_seal(engine, &mut tail) {
                    self.seal(engine, &mut tail)?;
                }
                tail.follow_rotation()?;
                tail.end()?
            };
            // The engine's own sync would hold the lock of its journal, and stop every writer.
            if let Err(error) = file.sync_data() {
                self.stop();
                self.tail.write().set_sync_failed();
                return Err(Error::from_io("syncing the journal", error));
            }
            self.tail.write().set_safe(end);
            self.is_under_pressure.store(engine.is_under_pressure(), Ordering::Relaxed);
            let written = sync_record.advance(end);
            written.map_err(|error| Error::from_io("writing the table's sync record", error))
        })
    }

    /// Returns whether a persist should seal the memtable now.
    fn should_seal(&self, engine: &Engine, tail: &JournalTail) -> bool {
        let bytes = tail.unsealed_bytes();
        let is_long = tail.bytes() > ROTATE_BYTES || engine.journals() > 1;
        (bytes >= self.options.seal_bytes() || (bytes >= SMALL_SEAL_BYTES && is_long))
            && engine.sealed() == 0
    }

    /// Returns whether there is space to flush the memtable and to compact the run it becomes. If
    /// there is none, rows stay in memory and in the journal.
    fn can_seal(&self, engine: &Engine, tail: &mut JournalTail) -> bool {
        if engine.is_journal_only() || !tail.is_seal_check_due() {
            return false;
        }
        let needed = 2 * tail.unsealed_bytes();
        let has_space = DiskSpace::of(&self.home).is_ok_and(|space| space.fits(needed));
        if !has_space {
            tail.postpone_seal();
        }
        has_space
    }

    fn seal(&self, engine: &Engine, tail: &mut JournalTail) -> Result<(), Error> {
        let sealed = self.catch(|| engine.seal());
        if sealed.is_err() {
            self.stop();
        }
        sealed?;
        tail.set_sealed();
        self.is_under_pressure.store(engine.is_under_pressure(), Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn ingest(
        &self,
        rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Result<(), Error> {
        self.with_engine(|engine| {
            let failed = |error| engine.error("ingesting rows", error);
            let mut run = self.catch(|| engine.rows().start_ingestion().map_err(failed))?;
            let mut last: Option<Vec<u8>> = None;
            for (key, value) in rows {
                let is_sorted = last.as_ref().is_none_or(|last| *last < key);
                let fits = (1..=MAX_KEY_BYTES).contains(&key.len());
                self.catch(|| {
                    if !fits || !is_sorted || engine.rows().contains_key(&key).map_err(failed)? {
                        return Err(Error::Unsorted);
                    }
                    run.write(key.as_slice(), value).map_err(failed)
                })?;
                last = Some(key);
            }
            if last.is_none() {
                return Ok(());
            }
            let mut tail = self.tail.write();
            let done = self.catch(|| run.finish().map_err(failed));
            if done.is_err() {
                self.stop();
            }
            done?;
            // The engine flushes the memtable before it takes in a run.
            tail.set_sealed();
            Ok(())
        })
    }

    /// Returns whether writes may stall. Asks the engine only if the last result was true.
    pub(super) fn is_under_pressure(&self) -> bool {
        self.is_under_pressure.load(Ordering::Relaxed) && {
            let now = self.call_engine(|engine| Ok(engine.is_under_pressure())).unwrap_or(false);
            self.is_under_pressure.store(now, Ordering::Relaxed);
            now
        }
    }

    /// Implements [`crate::table::Table::reopen`].
    pub(super) fn reopen(&self) -> Result<bool, Error> {
        self.stop();
        // Locked until the table is open again, so that a close in between cannot give the folder
        // to another process.
        let lock_file = self.lock_file.lock();
        if lock_file.is_none() {
            return Err(Error::Stopped);
        }
        let mut sync_record = self.sync_record.lock();
        let mut engine = self.engine.write();
        let mut tail = self.tail.write();
        self.replace_engine(&mut engine, &mut tail, &mut sync_record, true)
    }

    /// Ends the engine and opens it again. The caller holds all locks.
    fn replace_engine(
        &self,
        engine: &mut Option<Engine>,
        tail: &mut JournalTail,
        sync_record: &mut SyncRecord,
        after_failure: bool,
    ) -> Result<bool, Error> {
        let reserve = tail.reserve();
        self.stop();
        self.end_engine(engine, tail)?;
        if !after_failure && tail.has_failed_sync() {
            // The engine met a failed sync that only now shows. The table stays stopped, so that
            // the caller of `reopen` learns that batches were dropped.
            return Err(Error::Stopped);
        }
        let opened = open(&self.home, &self.options, after_failure);
        let named = |error: Error| error.with_folder(&self.home, self.folder.path());
        let (new_engine, mut new_tail, new_record) = opened.map_err(named)?;
        new_tail.set_reserve(reserve);
        let failed_when_full = after_failure && new_engine.is_journal_only();
        self.failed_when_full.store(failed_when_full, Ordering::Relaxed);
        let drops_batches = tail.has_failed_sync();
        *engine = Some(new_engine);
        *tail = new_tail;
        *sync_record = new_record;
        self.reopens.fetch_add(1, Ordering::AcqRel);
        self.is_under_pressure.store(false, Ordering::Relaxed);
        self.stopped.store(false, Ordering::Release);
        Ok(drops_batches)
    }

    /// Opens a journal-only engine again with its threads, if there is space for their writes.
    pub(super) fn resume_flushes(&self) -> Result<(), Error> {
        if !self.with_engine(|engine| Ok(engine.is_journal_only()))?
            || !self.has_space_to_resume()?
        {
            return Ok(());
        }
        let lock_file = self.lock_file.lock();
        let mut sync_record = self.sync_record.lock();
        let mut engine = self.engine.write();
        let mut tail = self.tail.write();
        if lock_file.is_none() || self.is_stopped() {
            return Err(Error::Stopped);
        }
        // Sync before the engine ends. If the sync came later and failed, the reopen would drop
        // batches without a report.
        tail.follow_rotation()?;
        let (end, file) = tail.end()?;
        if let Err(error) = file.sync_data() {
            self.stop();
            tail.set_sync_failed();
            return Err(Error::from_io("syncing the journal", error));
        }
        tail.set_safe(end);
        // `end_engine` waits until no file of the engine is open.
        drop(file);
        tracing::info!("the disk has space again: the table flushes its rows from memory");
        self.replace_engine(&mut engine, &mut tail, &mut sync_record, false).map(drop)
    }

    fn has_space_to_resume(&self) -> Result<bool, Error> {
        let failed = |error| Error::from_io("measuring free space", error);
        let folder = self.home.join("engine");
        let unsealed = self.tail.read().unsealed_bytes();
        let mut needed = disk_space::bytes_to_open(&folder).map_err(failed)?.max(2 * unsealed);
        // A compaction that fails again is the smaller evil if very much is in memory.
        if self.failed_when_full.load(Ordering::Relaxed) && unsealed < 4 * self.options.seal_bytes()
        {
            needed += disk_space::bytes_to_compact(&folder).map_err(failed)?;
        }
        Ok(DiskSpace::of(&self.home).map_err(failed)?.fits_with_margin(needed))
    }

    /// Stops writes and flushes all rows to sorted runs, if there is space: runs have checksums for
    /// each few rows, and a wrong byte in a journal costs all that follows. Returns the journal
    /// that can be emptied afterwards.
    fn flush_all(&self) -> Option<u64> {
        self.stop();
        let engine = self.engine.read();
        let engine = engine.as_ref().filter(|engine| !engine.is_journal_only())?;
        {
            let mut tail = self.tail.write();
            tail.follow_rotation().ok()?;
            let has_rows = tail.bytes() > 0 || engine.journals() > 1;
            let needed = 2 * tail.unsealed_bytes().max(tail.bytes());
            if !has_rows || !DiskSpace::of(&self.home).ok()?.fits(needed) {
                return None;
            }
            self.seal(engine, &mut tail).ok()?;
        }
        let flushed = self.catch(|| engine.wait_until_flushed());
        if let Err(error) = flushed {
            tracing::warn!(%error, "rows stay in the journals: the next open replays them");
            return None;
        }
        let mut tail = self.tail.write();
        tail.follow_rotation().ok()?;
        Some(tail.end().ok()?.0.journal)
    }

    /// Empties the journals, whose rows are all in sorted runs. The engine has ended.
    fn empty_journals(&self, last: u64) -> io::Result<()> {
        self.sync_record.lock().rewind(Position { journal: last, bytes: 0 })?;
        tail::empty_journals(&self.home.join("engine"), last)
    }

    fn shut_down(&self) -> Result<(), Error> {
        self.stop();
        let mut engine = self.engine.write();
        let mut tail = self.tail.write();
        self.end_engine(&mut engine, &mut tail)
    }

    /// Ends the engine and cuts off what it wrote after the last batch that succeeded.
    fn end_engine(&self, engine: &mut Option<Engine>, tail: &mut JournalTail) -> Result<(), Error> {
        let folder = self.home.join("engine");
        tail.detect_failed_sync(|| {
            if let Some(engine) = engine.take()
                && let Err(panic) = catch_panic(|| drop(engine))
            {
                // The unwinding dropped the rest of the engine, and its threads ended.
                tracing::error!(panic, "the engine panicked while it ended");
            }
        });
        tail.close_file();
        wait_until_closed(&folder)?;
        tail::truncate_journals(&folder, tail.end_to_keep())
            .map_err(|error| Error::from_io("truncating a journal", error))
    }

    pub(super) fn usage(&self) -> Usage {
        let journals = journal_bytes(&self.home.join("engine")).unwrap_or(0);
        self.call_engine(|engine| {
            Ok(Usage {
                disk_bytes: engine.rows().disk_space() + journals,
                journal_bytes: journals,
                memory_bytes: engine.rows().tree.version_memtable_size_sum(),
            })
        })
        .unwrap_or(Usage {
            disk_bytes: journals,
            journal_bytes: journals,
            memory_bytes: 0,
        })
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }
}

/// Returns the length of all journals in bytes, without preallocated blocks.
fn journal_bytes(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for id in journal::list(folder)? {
        let file = fs::metadata(journal::path(folder, id));
        bytes += file.map_or(0, |file| disk_space::allocated_len(&file));
    }
    Ok(bytes)
}
