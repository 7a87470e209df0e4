//! The engine itself: one database with one keyspace, and its manners.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fjall::compaction::Leveled;
use fjall::config::{BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{AbstractTree, Database, Keyspace, KeyspaceCreateOptions, LsmError, PersistMode};

use super::{Batch, Change, Error, Options};

/// The first thread of the engine takes no compaction and passes it on in circles as long as no
/// other is free; with two others one always is.
const THREADS: usize = 3;
/// The engine rewrites its journals' owners above this on its own; we seal long before.
const JOURNAL_BYTES: u64 = 512 << 20;
/// Bits of filter a row: one false answer in a hundred.
const FILTER_BITS: f32 = 10.0;
/// Sorted runs that are merged into the first level at once. Names come in the order of their
/// hashes, so that each merge writes the whole level again: twice as many runs as the engine's
/// default are half as many merges, and a fifth less CPU for a row in millions.
const MERGED_RUNS: u8 = 8;
/// Bytes of a file of a sorted run; the first level holds [`MERGED_RUNS`] of them, as by default.
const RUN_FILE_BYTES: u64 = 32 << 20;
/// Up to this many changes, repeated keys are sought by comparing all pairs.
const FEW: usize = 8;

/// From here on a write may sleep in the engine soon: it does at 4 sealed memtables and 30 runs.
const MANY_SEALED: usize = 2;
const MANY_RUNS: usize = 20;

/// An open database. Dropping it ends its threads.
pub(super) struct Engine {
    rows: Keyspace,
    database: Database,
    folder: PathBuf,
    quiet: bool,
}

impl Engine {
    /// Opens the database in `folder`. A quiet one has no threads: it writes nothing but its
    /// journal, and so needs no space beside that.
    pub(super) fn open(folder: &Path, options: &Options, quiet: bool) -> Result<Self, Error> {
        let place = |error| wrong(folder, "opening the engine", error);
        let database = Database::builder(folder)
            .cache_size(options.cache_bytes())
            .worker_threads_unchecked(if quiet { 0 } else { THREADS })
            .max_journaling_size(JOURNAL_BYTES)
            .open()
            .map_err(place)?;
        let rows = database.keyspace("rows", keyspace_options).map_err(place)?;
        let engine = Self { rows, database, folder: folder.to_owned(), quiet };
        if !quiet {
            engine.wait_until_flushed()?;
        }
        Ok(engine)
    }

    /// Whether it has no threads; nothing may be sealed then.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet
    }

    pub(super) fn rows(&self) -> &Keyspace {
        &self.rows
    }

    pub(super) fn database(&self) -> &Database {
        &self.database
    }

    /// Appends and applies a batch that is not empty.
    pub(super) fn commit(&self, batch: &Batch) -> Result<(), Error> {
        let changes = batch.changes();
        let done = match changes {
            [Change::Put(key, value)] => self.rows.insert(key.as_slice(), value.as_slice()),
            [Change::Delete(key)] => self.rows.remove(key.as_slice()),
            _ => {
                let mut whole = self.database.batch();
                for change in changes {
                    match change {
                        Change::Put(key, value) => {
                            whole.insert(&self.rows, key.as_slice(), value.as_slice());
                        }
                        Change::Delete(key) => whole.remove(&self.rows, key.as_slice()),
                    }
                }
                whole.commit()
            }
        };
        done.map_err(|error| self.wrong("writing a batch", error))
    }

    /// Closes the memtable and has it written as a sorted run in the background; the journals
    /// before it go away after that.
    pub(super) fn seal(&self) -> Result<(), Error> {
        self.rows
            .rotate_memtable()
            .map(drop)
            .map_err(|error| self.wrong("sealing the memtable", error))
    }

    pub(super) fn is_pressed(&self) -> bool {
        self.rows.sealed_memtable_count() >= MANY_SEALED
            || self.rows.tree.l0_run_count() >= MANY_RUNS
    }

    pub(super) fn sealed(&self) -> usize {
        self.rows.sealed_memtable_count()
    }

    pub(super) fn journals(&self) -> usize {
        self.database.journal_count()
    }

    /// Waits until every sealed memtable is a sorted run, so that old journals are gone.
    pub(super) fn wait_until_flushed(&self) -> Result<(), Error> {
        while self.sealed() > 0 {
            // A worker that failed never gets there; this says so.
            self.database
                .persist(PersistMode::Buffer)
                .map_err(|error| self.wrong("flushing old journals", error))?;
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    pub(super) fn wrong(&self, doing: &'static str, error: fjall::Error) -> Error {
        wrong(&self.folder, doing, error)
    }
}

/// `batch` with only the last change of each key; nothing where no key repeats.
///
/// The engine gives all changes of a batch one sequence number, so two of one key would meet.
pub(super) fn without_repeats(batch: &Batch) -> Option<Batch> {
    let changes = batch.changes();
    let repeats = if changes.len() <= FEW {
        changes
            .iter()
            .enumerate()
            .any(|(at, change)| changes[..at].iter().any(|other| other.key() == change.key()))
    } else {
        let mut keys: Vec<&[u8]> = changes.iter().map(Change::key).collect();
        keys.sort_unstable();
        keys.windows(2).any(|pair| pair[0] == pair[1])
    };
    if !repeats {
        return None;
    }
    let mut last = std::collections::BTreeMap::new();
    for (at, change) in changes.iter().enumerate() {
        last.insert(change.key(), at);
    }
    let mut single = Batch::new();
    if batch.frees() {
        single.set_frees();
    }
    for (at, change) in changes.iter().enumerate() {
        if last.get(change.key()) == Some(&at) {
            match change {
                Change::Put(key, value) => single.put(key.clone(), value.clone()),
                Change::Delete(key) => single.delete(key.clone()),
            }
        }
    }
    Some(single)
}

/// The error of ours for one of the engine's.
pub(super) fn wrong(place: &Path, doing: &'static str, error: fjall::Error) -> Error {
    match error {
        fjall::Error::Io(source) | fjall::Error::Storage(LsmError::Io(source)) => {
            match source.kind() {
                io::ErrorKind::UnexpectedEof
                | io::ErrorKind::InvalidData
                | io::ErrorKind::NotFound => {
                    Error::Corrupt { place: place.to_owned(), what: source.to_string() }
                }
                _ => Error::from_io(doing, source),
            }
        }
        fjall::Error::Poisoned => Error::Stopped,
        fjall::Error::Locked => Error::InUse { place: place.to_owned() },
        other => Error::Corrupt { place: place.to_owned(), what: format!("{other:?}") },
    }
}

/// Written into the database when it is made, and read from there ever after.
fn keyspace_options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        // Sealing is ours: the engine asks its own queue for it with every write over the limit,
        // which can fill the queue and then wait on it for ever.
        .max_memtable_size(u64::MAX)
        .expect_point_read_hits(false)
        .compaction_strategy(Arc::new(
            Leveled::default()
                .with_l0_threshold(MERGED_RUNS)
                .with_table_target_size(RUN_FILE_BYTES),
        ))
        .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(
            BloomConstructionPolicy::BitsPerKey(FILTER_BITS),
        )))
}
