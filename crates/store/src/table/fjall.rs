//! The table of a server on one machine: the LSM engine `fjall`, held so that its traps cannot be
//! stepped on (`docs/decisions/0002-engine.md`).
//!
//! The folder of a table holds `engine` (the database), `flushed` (what is known to be on stable
//! storage, `record`) and `owner` (locked while the table is open).
//!
//! 1. A snapshot is taken between two batches, never inside one ([`FjallTable::snapshot`]).
//! 2. Where the journal ends is known to the byte (`tail`): after a failed write it is cut there,
//!    so a batch that was not acknowledged is never seen.
//! 3. Nothing that was safe is missing after an open, or the open says so (`start`).
//! 4. After a failed write or a panic in the engine every call answers [`Error::Stopped`].

use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fjall::{AbstractTree, Readable};
use parking_lot::{Mutex, RwLock};

use crate::reserve::Reserve;

use super::{Batch, Change, Error, MAX_KEY_BYTES, Pressure, Snapshot, Table, Usage, Visit};
use crate::folder::Folder;
use engine::Engine;
use guard::guarded;
use record::Record;
use room::Room;
use tail::Tail;

pub use guard::catches_panics;

mod engine;
mod guard;
mod journal;
mod record;
mod room;
mod start;
mod tail;
mod version;

/// Journal bytes in which the engine starts a new journal when a memtable is sealed.
const ROTATE_BYTES: u64 = 64_000_000;
/// The least a persist seals for no other reason than to let old journals go.
const SMALL_SEAL_BYTES: u64 = 4 << 20;
/// Bytes of journal that a close leaves for the next open to replay, at the most.
const CLOSED_BYTES: u64 = 1 << 20;

/// How a table is held.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Memory for cached blocks and for rows not yet in sorted runs, in bytes. The default is
    /// 96 MiB, the least is 8 MiB.
    pub memory_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { memory_bytes: 96 << 20 }
    }
}

impl Options {
    fn cache_bytes(&self) -> u64 {
        self.memory_bytes.max(8 << 20) / 3
    }

    /// Journal bytes after which a memtable is sealed; two and a half of them may be in memory.
    fn seal_bytes(&self) -> u64 {
        (self.memory_bytes.max(8 << 20) / 6).min(32 << 20)
    }
}

/// A place in the journals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    journal: u64,
    bytes: u64,
}

/// A table in a folder of a local file system.
pub struct FjallTable {
    held: Arc<Held>,
}

impl FjallTable {
    /// Opens the table in the folder `path`, which is made where it is missing.
    ///
    /// # Errors
    /// As [`FjallTable::open_in`].
    pub fn open(path: &Path, options: Options) -> Result<Self, Error> {
        let opening = |error| Error::from_io("opening the table", error);
        fs::create_dir_all(path).map_err(opening)?;
        let path = fs::canonicalize(path).map_err(opening)?;
        let folder = Folder::open(&path).map_err(|error| opening(io::Error::other(error)))?;
        Self::open_in(&folder, options)
    }

    /// Opens the table in a folder that is ours alone. The engine takes paths: those that it gets
    /// lead through the descriptor, so that it does not matter what becomes of the folder's name.
    ///
    /// # Errors
    /// [`Error::InUse`]; [`Error::Corrupt`] where something that was safe is missing or damaged, in
    /// which case nothing was changed; else [`Error::Io`] or [`Error::Full`].
    pub fn open_in(folder: &Folder, options: Options) -> Result<Self, Error> {
        let home = folder.way();
        let shown = |error: Error| error.shown(&home, folder.path());
        let owner = lock(&home).map_err(shown)?;
        let (engine, tail, record) = open(&home, &options, false).map_err(shown)?;
        let held = Held {
            folder: folder.clone(),
            home,
            options,
            record: Mutex::new(record),
            engine: RwLock::new(Some(engine)),
            tail: RwLock::new(tail),
            busy: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            pressed: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            owner: Mutex::new(Some(owner)),
        };
        Ok(Self { held: Arc::new(held) })
    }

    /// Makes everything safe, ends the engine's threads and lets go of the folder. Where there is
    /// room for that, nearly nothing is left in the journals. Calls after it answer
    /// [`Error::Stopped`], [`Table::reopen`] too.
    ///
    /// # Errors
    /// As [`Table::persist`]; the engine's threads have ended all the same.
    pub fn close(&self) -> Result<(), Error> {
        let safe = self.persist();
        let flushed = safe.is_ok().then(|| self.held.flush_all()).flatten();
        let shut = self.held.shut();
        if let (Ok(()), Some(last)) = (&shut, flushed)
            && let Err(error) = self.held.empty_journals(last)
        {
            tracing::warn!(%error, "the journals stay, and are replayed by the next open");
        }
        drop(self.held.owner.lock().take());
        safe.and(shut)
    }

    /// Gives the journal blocks of this reserve if the medium has none.
    pub fn lend_from(&self, reserve: Arc<Reserve>) {
        self.held.tail.write().lend_from(Some(reserve));
    }
}

impl Drop for FjallTable {
    fn drop(&mut self) {
        if self.held.engine.read().is_some()
            && let Err(error) = self.close()
        {
            tracing::warn!(%error, "the table did not close cleanly");
        }
    }
}

impl Table for FjallTable {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let value = self.held.call(|engine| {
            engine.rows().get(key).map_err(|error| engine.wrong("reading a row", error))
        })?;
        // A batch that is being applied may have shown us a row: then it is done before we answer.
        if self.held.busy.load(Ordering::Acquire) {
            drop(self.held.tail.read());
        }
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
    ) -> Result<(), Error> {
        self.held.view()?.scan(from, to, visit)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, Error> {
        Ok(Box::new(self.held.view()?))
    }

    fn write(&self, batch: &Batch) -> Result<(), Error> {
        if batch.is_empty() {
            return self.held.with(|_| Ok(()));
        }
        match engine::without_repeats(batch) {
            None => self.held.write(batch),
            Some(single) => self.held.write(&single),
        }
    }

    fn persist(&self) -> Result<(), Error> {
        self.held.persist()
    }

    fn ingest(&self, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<(), Error> {
        self.held.ingest(rows)
    }

    fn pressure(&self) -> Pressure {
        if self.held.pressed.load(Ordering::Relaxed) && self.held.look_pressed() {
            Pressure::High
        } else {
            Pressure::None
        }
    }

    fn reopen(&self) -> Result<bool, Error> {
        self.held.reopen()
    }

    fn loses_unsafe(&self) -> bool {
        self.held.tail.read().is_doubtful()
    }

    fn use_room(&self) -> Result<(), Error> {
        self.held.use_room()
    }

    fn usage(&self) -> Usage {
        self.held.usage()
    }
}

/// Lock order: `record`, `engine`, `tail`.
struct Held {
    /// The table's folder. The paths of `home` lead through its descriptor.
    folder: Folder,
    home: PathBuf,
    options: Options,
    /// Held through a persist, so that one follows the other.
    record: Mutex<Record>,
    /// Nothing after a close or a failed reopen. Read for as long as anything of the engine is
    /// used, recursively since a visitor of a scan may read; written to replace it.
    engine: RwLock<Option<Engine>>,
    /// Written while a batch is applied: whoever reads it is between two batches.
    tail: RwLock<Tail>,
    /// Whether a batch is being applied.
    busy: AtomicBool,
    /// A write failed or the engine panicked.
    stopped: AtomicBool,
    /// What [`Held::look_pressed`] last saw.
    pressed: AtomicBool,
    /// How often the engine was opened again: an older snapshot is no longer of this one.
    generation: AtomicU64,
    /// The engine is quiet because it failed where there was little room.
    failed: AtomicBool,
    owner: Mutex<Option<File>>,
}

impl Held {
    /// Runs `call` on the engine unless it stopped.
    fn with<T>(&self, call: impl FnOnce(&Engine) -> Result<T, Error>) -> Result<T, Error> {
        // Looked at before the lock too: who waits to write it must not wait for ever behind
        // readers that overlap.
        if self.stopped.load(Ordering::Acquire) {
            return Err(Error::Stopped);
        }
        let engine = self.engine.read_recursive();
        let Some(engine) = engine.as_ref() else {
            return Err(Error::Stopped);
        };
        if self.stopped.load(Ordering::Acquire) {
            return Err(Error::Stopped);
        }
        let done = call(engine);
        if matches!(done, Err(Error::Stopped)) {
            self.stopped.store(true, Ordering::Release);
        }
        done.map_err(|error| error.shown(&self.home, self.folder.path()))
    }

    /// As [`Held::with`], for a call that runs no code but the engine's.
    fn call<T>(&self, call: impl FnOnce(&Engine) -> Result<T, Error>) -> Result<T, Error> {
        self.with(|engine| self.caught(|| call(engine)))
    }

    /// Stops the table where the engine panics. Nothing that a caller brought runs in here.
    fn caught<T>(&self, call: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        guarded(call).unwrap_or_else(|panic| {
            tracing::error!(panic, "the engine panicked");
            self.stopped.store(true, Ordering::Release);
            Err(Error::Stopped)
        })
    }

    fn view(self: &Arc<Self>) -> Result<View, Error> {
        self.call(|engine| {
            let between = self.tail.read();
            let instant = engine.database().snapshot();
            drop(between);
            let generation = self.generation.load(Ordering::Acquire);
            Ok(View { held: Arc::clone(self), instant, generation })
        })
    }

    fn write(&self, batch: &Batch) -> Result<(), Error> {
        let bytes = journal::batch_bytes(batch.changes().iter());
        self.with(|engine| {
            let mut tail = self.tail.write();
            if self.stopped.load(Ordering::Acquire) {
                return Err(Error::Stopped);
            }
            tail.reserve(bytes, batch.frees())?;
            self.busy.store(true, Ordering::Release);
            let done = self.caught(|| engine.commit(batch));
            self.busy.store(false, Ordering::Release);
            if let Err(error) = done {
                self.stopped.store(true, Ordering::Release);
                return Err(error);
            }
            tail.grow(bytes);
            if tail.since_seal() >= 2 * self.options.seal_bytes()
                && self.can_seal(engine, &mut tail)
            {
                self.seal(engine, &mut tail)?;
            }
            Ok(())
        })
    }

    fn persist(&self) -> Result<(), Error> {
        let mut record = self.record.lock();
        self.with(|engine| {
            let (end, file) = {
                let mut tail = self.tail.write();
                if self.is_seal_due(engine, &tail) && self.can_seal(engine, &mut tail) {
                    self.seal(engine, &mut tail)?;
                }
                tail.follow()?;
                tail.end()?
            };
            // The engine's own sync would hold its journal's lock, and every writer with it.
            if let Err(error) = file.sync_data() {
                self.stopped.store(true, Ordering::Release);
                self.tail.write().set_doubtful();
                return Err(Error::from_io("syncing the journal", error));
            }
            self.tail.write().set_safe(end);
            self.pressed.store(engine.is_pressed(), Ordering::Relaxed);
            record.set(end).map_err(|error| Error::from_io("writing the table's record", error))
        })
    }

    fn is_seal_due(&self, engine: &Engine, tail: &Tail) -> bool {
        let since = tail.since_seal();
        let long = tail.bytes() > ROTATE_BYTES || engine.journals() > 1;
        (since >= self.options.seal_bytes() || (since >= SMALL_SEAL_BYTES && long))
            && engine.sealed() == 0
    }

    /// Whether there is room for a memtable and its merge. Where there is none the rows stay in
    /// memory and in the journal.
    fn can_seal(&self, engine: &Engine, tail: &mut Tail) -> bool {
        if engine.is_quiet() || !tail.may_seal() {
            return false;
        }
        let room = Room::of(&self.home).is_ok_and(|room| room.is_for(2 * tail.since_seal()));
        if !room {
            tail.put_off_seal();
        }
        room
    }

    fn seal(&self, engine: &Engine, tail: &mut Tail) -> Result<(), Error> {
        let sealed = self.caught(|| engine.seal());
        if sealed.is_err() {
            self.stopped.store(true, Ordering::Release);
        }
        sealed?;
        tail.set_sealed();
        self.pressed.store(engine.is_pressed(), Ordering::Relaxed);
        Ok(())
    }

    fn ingest(&self, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<(), Error> {
        self.with(|engine| {
            let wrong = |error| engine.wrong("ingesting rows", error);
            let mut run = self.caught(|| engine.rows().start_ingestion().map_err(wrong))?;
            let mut last: Option<Vec<u8>> = None;
            for (key, value) in rows {
                let follows = last.as_ref().is_none_or(|last| *last < key);
                let fits = (1..=MAX_KEY_BYTES).contains(&key.len());
                self.caught(|| {
                    if !fits || !follows || engine.rows().contains_key(&key).map_err(wrong)? {
                        return Err(Error::Unsorted);
                    }
                    run.write(key.as_slice(), value).map_err(wrong)
                })?;
                last = Some(key);
            }
            if last.is_none() {
                return Ok(());
            }
            let mut tail = self.tail.write();
            let done = self.caught(|| run.finish().map_err(wrong));
            if done.is_err() {
                self.stopped.store(true, Ordering::Release);
            }
            done?;
            tail.set_sealed();
            Ok(())
        })
    }

    fn look_pressed(&self) -> bool {
        let pressed = self.call(|engine| Ok(engine.is_pressed())).unwrap_or(false);
        self.pressed.store(pressed, Ordering::Relaxed);
        pressed
    }

    fn reopen(&self) -> Result<bool, Error> {
        self.stopped.store(true, Ordering::Release);
        // Held until it is open again, so that nobody else has the folder meanwhile.
        let owner = self.owner.lock();
        if owner.is_none() {
            return Err(Error::Stopped);
        }
        let mut record = self.record.lock();
        let mut engine = self.engine.write();
        let mut tail = self.tail.write();
        self.open_anew(&mut engine, &mut tail, &mut record, true)
    }

    /// Ends the engine and opens it again, for one who holds all locks.
    fn open_anew(
        &self,
        engine: &mut Option<Engine>,
        tail: &mut Tail,
        record: &mut Record,
        careful: bool,
    ) -> Result<bool, Error> {
        let lender = tail.lender();
        self.stopped.store(true, Ordering::Release);
        self.end(engine, tail)?;
        if !careful && tail.is_doubtful() {
            // The engine met a failure that was not known before. It stays stopped, so that
            // everybody who lost something is told when it is opened again.
            return Err(Error::Stopped);
        }
        let opened = open(&self.home, &self.options, careful);
        let shown = |error: Error| error.shown(&self.home, self.folder.path());
        let (opened, mut end, newest) = opened.map_err(shown)?;
        end.lend_from(lender);
        self.failed.store(careful && opened.is_quiet(), Ordering::Relaxed);
        *engine = Some(opened);
        let loses = tail.is_doubtful();
        *tail = end;
        *record = newest;
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.pressed.store(false, Ordering::Relaxed);
        self.stopped.store(false, Ordering::Release);
        Ok(loses)
    }

    /// Opens a quiet engine again with its threads once there is room for what they write. Nothing
    /// is lost by it.
    fn use_room(&self) -> Result<(), Error> {
        if !self.with(|engine| Ok(engine.is_quiet()))? || !self.has_room_again()? {
            return Ok(());
        }
        let owner = self.owner.lock();
        let mut record = self.record.lock();
        let mut engine = self.engine.write();
        let mut tail = self.tail.write();
        if owner.is_none() || self.stopped.load(Ordering::Acquire) {
            return Err(Error::Stopped);
        }
        // First: were this sync to fail, rows that nobody knows to be in doubt would be cut off.
        tail.follow()?;
        let (end, file) = tail.end()?;
        if let Err(error) = file.sync_data() {
            self.stopped.store(true, Ordering::Release);
            tail.set_doubtful();
            return Err(Error::from_io("syncing the journal", error));
        }
        tail.set_safe(end);
        // Who ends the engine waits until its files are closed.
        drop(file);
        tracing::info!("there is room again: the table writes its rows from memory");
        self.open_anew(&mut engine, &mut tail, &mut record, false).map(drop)
    }

    fn has_room_again(&self) -> Result<bool, Error> {
        let looking = |error| Error::from_io("looking for room", error);
        let folder = self.home.join("engine");
        let since = self.tail.read().since_seal();
        let mut needed = room::needed_to_open(&folder).map_err(looking)?.max(2 * since);
        // With very much in memory a merge that may fail is the smaller evil.
        if self.failed.load(Ordering::Relaxed) && since < 4 * self.options.seal_bytes() {
            needed += room::needed_to_merge(&folder).map_err(looking)?;
        }
        Ok(Room::of(&self.home).map_err(looking)?.is_surely_for(needed))
    }

    /// Has all rows written as sorted runs, where that is worth while and there is room for it;
    /// nothing is written any more. Answers the journal that can be emptied then.
    fn flush_all(&self) -> Option<u64> {
        self.stopped.store(true, Ordering::Release);
        let engine = self.engine.read();
        let engine = engine.as_ref().filter(|engine| !engine.is_quiet())?;
        {
            let mut tail = self.tail.write();
            tail.follow().ok()?;
            let is_long = tail.bytes() > CLOSED_BYTES || engine.journals() > 1;
            let needed = 2 * tail.since_seal().max(tail.bytes());
            if !is_long || !Room::of(&self.home).ok()?.is_for(needed) {
                return None;
            }
            self.seal(engine, &mut tail).ok()?;
        }
        let flushed = self.caught(|| engine.wait_until_flushed());
        if let Err(error) = flushed {
            tracing::warn!(%error, "rows stay in the journals, and are replayed by the next open");
            return None;
        }
        let mut tail = self.tail.write();
        tail.follow().ok()?;
        Some(tail.end().ok()?.0.journal)
    }

    /// Empties the journals once all their rows are in sorted runs and the engine has ended.
    fn empty_journals(&self, last: u64) -> io::Result<()> {
        self.record.lock().take_back(Position { journal: last, bytes: 0 })?;
        tail::empty(&self.home.join("engine"), last)
    }

    fn shut(&self) -> Result<(), Error> {
        self.stopped.store(true, Ordering::Release);
        let mut engine = self.engine.write();
        let mut tail = self.tail.write();
        self.end(&mut engine, &mut tail)
    }

    /// Ends the engine and cuts what it wrote beyond the last batch that it answered for.
    fn end(&self, engine: &mut Option<Engine>, tail: &mut Tail) -> Result<(), Error> {
        let folder = self.home.join("engine");
        tail.look_for_doubt(|| {
            // Its threads have ended all the same: what it holds is released when it unwinds.
            if let Some(engine) = engine.take()
                && let Err(panic) = guarded(|| drop(engine))
            {
                tracing::error!(panic, "the engine panicked while it ended");
            }
        });
        tail.release();
        start::wait_for_release(&folder)?;
        tail::cut(&folder, tail.keep()).map_err(|error| Error::from_io("cutting a journal", error))
    }

    fn usage(&self) -> Usage {
        let journals = journal_bytes(&self.home.join("engine")).unwrap_or(0);
        self.call(|engine| {
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
}

/// A snapshot; it holds no file of the engine open, so that a reopen need not wait for it.
struct View {
    held: Arc<Held>,
    instant: fjall::Snapshot,
    generation: u64,
}

impl View {
    fn with<T>(&self, call: impl FnOnce(&Engine) -> Result<T, Error>) -> Result<T, Error> {
        self.held.with(|engine| {
            if self.held.generation.load(Ordering::Acquire) != self.generation {
                return Err(Error::Stale);
            }
            call(engine)
        })
    }
}

impl Snapshot for View {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.with(|engine| {
            let value = self.held.caught(|| {
                let value = self.instant.get(engine.rows(), key);
                value.map_err(|error| engine.wrong("reading a row", error))
            })?;
            Ok(value.map(|value| value.to_vec()))
        })
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
    ) -> Result<(), Error> {
        if !to.is_empty() && from >= to {
            return Ok(());
        }
        let end = if to.is_empty() { Bound::Unbounded } else { Bound::Excluded(to) };
        self.with(|engine| {
            let bounds = (Bound::Included(from), end);
            let mut rows =
                self.held.caught(|| Ok(self.instant.range::<&[u8], _>(engine.rows(), bounds)))?;
            while let Some((key, value)) = self.held.caught(|| {
                let row = rows.next().map(fjall::Guard::into_inner).transpose();
                row.map_err(|error| engine.wrong("reading rows", error))
            })? {
                if visit(&key, &value).is_break() {
                    break;
                }
            }
            Ok(())
        })
    }
}

/// Opens the table in `home`; quietly where there is little room. `careful`: it has failed just
/// now, and a merge may have met the end of the medium.
fn open(home: &Path, options: &Options, careful: bool) -> Result<(Engine, Tail, Record), Error> {
    let opening = |error| Error::from_io("opening the table", error);
    let folder = home.join("engine");
    let end = start::check(home, &folder)?;
    let quiet = end.is_some() && !has_room(&folder, careful).map_err(opening)?;
    let mut engine = open_engine(&folder, options, quiet);
    if end.is_some() && !quiet && matches!(engine, Err(Error::Full | Error::Stopped)) {
        start::wait_for_release(&folder)?;
        engine = open_engine(&folder, options, true);
    }
    let engine = engine?;
    if engine.is_quiet() {
        tracing::warn!("there is little room: the table keeps new rows in memory and its journal");
    }
    let end = end.unwrap_or(Position { journal: 0, bytes: 0 });
    let tail = Tail::open(&folder, end).map_err(opening)?;
    let record = match Record::open(home)? {
        Some(record) => record,
        None => {
            start::sync_new(&folder).map_err(opening)?;
            Record::create(home, end).map_err(opening)?
        }
    };
    Ok((engine, tail, record))
}

fn open_engine(folder: &Path, options: &Options, quiet: bool) -> Result<Engine, Error> {
    guarded(|| Engine::open(folder, options, quiet)).unwrap_or_else(|panic| {
        let what = format!("the engine panicked while it opened its files: {panic}");
        Err(Error::Corrupt { place: folder.to_owned(), what })
    })
}

fn has_room(engine: &Path, careful: bool) -> io::Result<bool> {
    let mut needed = room::needed_to_open(engine)?;
    if careful {
        needed += room::needed_to_merge(engine)?;
    }
    Ok(Room::of(engine)?.is_for(needed))
}

fn lock(home: &Path) -> Result<File, Error> {
    let place = home.join("owner");
    let opening = |error| Error::from_io("locking the table", error);
    let file =
        File::options().write(true).create(true).truncate(false).open(&place).map_err(opening)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::InUse { place }),
        Err(TryLockError::Error(error)) => Err(opening(error)),
    }
}

/// Bytes that the journals have, without the blocks ahead.
fn journal_bytes(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for id in journal::list(folder)? {
        bytes += fs::metadata(journal::path(folder, id)).map_or(0, |file| room::bytes_of(&file));
    }
    Ok(bytes)
}
