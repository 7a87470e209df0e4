//! The engine: one database with one keyspace, and the settings that keep it from stalling.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use fjall::compaction::Leveled;
use fjall::config::{BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{AbstractTree, Database, Keyspace, KeyspaceCreateOptions, LsmError, PersistMode};

use super::options::Options;
use crate::table::{Batch, Change, Error};

/// Threads of the engine. The first takes no compactions: it puts them back into the queue, in a
/// busy loop, until another thread is free. With two others one always is.
const THREADS: usize = 3;
/// Journal bytes above which the engine seals memtables by itself. We seal long before.
const ENGINE_JOURNAL_BYTES: u64 = 512 << 20;
/// Bits of Bloom filter for each row: one false positive in a hundred.
const FILTER_BITS: f32 = 10.0;
/// Sorted runs of level 0 that one compaction merges into level 1. Names are in the order of their
/// hashes, so each compaction rewrites all of level 1. Twice the default of the engine halves the
/// compactions and takes a fifth less CPU for each of millions of rows.
const COMPACTED_RUNS: u8 = 8;
/// Bytes of one file of a sorted run. Level 1 holds [`COMPACTED_RUNS`] of them, as by default.
const RUN_FILE_BYTES: u64 = 32 << 20;
/// Most changes of a batch that are compared pair by pair to find repeated keys.
const FEW: usize = 8;

/// Sealed memtables from which on writes may stall soon: the engine stalls them at 4.
const MANY_SEALED: usize = 2;
/// Sorted runs of level 0 from which on writes may stall soon: the engine stalls them at 30.
const MANY_RUNS: usize = 20;

/// An open database of the engine. Dropping it ends its threads.
pub(super) struct Engine {
    rows: Keyspace,
    database: Database,
    folder: PathBuf,
    journal_only: bool,
}

impl Engine {
    /// Opens the database in `folder`. A journal-only database has no threads for flushes and
    /// compactions, so that it needs no space beside its journal.
    pub(super) fn open(
        folder: &Path,
        options: &Options,
        journal_only: bool,
    ) -> Result<Self, Error> {
        let failed = |error| convert(folder, "opening the engine", error);
        let database = Database::builder(folder)
            .cache_size(options.cache_bytes())
            .worker_threads_unchecked(if journal_only { 0 } else { THREADS })
            .max_journaling_size(ENGINE_JOURNAL_BYTES)
            .open()
            .map_err(failed)?;
        let rows = database.keyspace("rows", keyspace_options).map_err(failed)?;
        let engine = Self { rows, database, folder: folder.to_owned(), journal_only };
        if !journal_only {
            engine.wait_until_flushed()?;
        }
        Ok(engine)
    }

    /// Returns whether the database has no threads. Then nothing may be sealed.
    pub(super) fn is_journal_only(&self) -> bool {
        self.journal_only
    }

    pub(super) fn rows(&self) -> &Keyspace {
        &self.rows
    }

    pub(super) fn database(&self) -> &Database {
        &self.database
    }

    /// Writes a batch to the journal and applies it. The batch is not empty, and no key repeats.
    pub(super) fn commit(&self, batch: &Batch) -> Result<(), Error> {
        let changes = batch.changes();
        let done = match changes {
            [Change::Put(key, value)] => self.rows.insert(key.as_slice(), value.as_slice()),
            [Change::Delete(key)] => self.rows.remove(key.as_slice()),
            _ => {
                let mut writes = self.database.batch();
                for change in changes {
                    match change {
                        Change::Put(key, value) => {
                            writes.insert(&self.rows, key.as_slice(), value.as_slice());
                        }
                        Change::Delete(key) => writes.remove(&self.rows, key.as_slice()),
                    }
                }
                writes.commit()
            }
        };
        done.map_err(|error| self.error("writing a batch", error))
    }

    /// Seals the memtable. A thread flushes it to a sorted run, and then deletes older journals.
    pub(super) fn seal(&self) -> Result<(), Error> {
        self.rows
            .rotate_memtable()
            .map(drop)
            .map_err(|error| self.error("sealing the memtable", error))
    }

    /// Returns whether writes may stall soon.
    pub(super) fn is_under_pressure(&self) -> bool {
        self.rows.sealed_memtable_count() >= MANY_SEALED
            || self.rows.tree.l0_run_count() >= MANY_RUNS
    }

    /// Returns the number of sealed memtables that are not flushed yet.
    pub(super) fn sealed(&self) -> usize {
        self.rows.sealed_memtable_count()
    }

    /// Returns the number of journals, the current one included.
    pub(super) fn journals(&self) -> usize {
        self.database.journal_count()
    }

    /// Waits until every sealed memtable is flushed. Then old journals are gone too.
    pub(super) fn wait_until_flushed(&self) -> Result<(), Error> {
        while self.sealed() > 0 {
            // A flush that failed never ends. This call returns the error of its thread.
            self.database
                .persist(PersistMode::Buffer)
                .map_err(|error| self.error("flushing old journals", error))?;
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Converts an error of the engine.
    pub(super) fn error(&self, doing: &'static str, error: fjall::Error) -> Error {
        convert(&self.folder, doing, error)
    }
}

/// Returns the batch with only the last change of each key, or `None` if no key repeats.
///
/// The engine gives all changes of a batch one sequence number, so it could not order two changes
/// of one key.
pub(super) fn without_repeated_keys(batch: &Batch) -> Option<Batch> {
    let changes = batch.changes();
    let has_repeats = if changes.len() <= FEW {
        changes
            .iter()
            .enumerate()
            .any(|(at, change)| changes[..at].iter().any(|other| other.key() == change.key()))
    } else {
        let mut keys: Vec<&[u8]> = changes.iter().map(Change::key).collect();
        keys.sort_unstable();
        keys.windows(2).any(|pair| pair[0] == pair[1])
    };
    if !has_repeats {
        return None;
    }
    let mut last = std::collections::BTreeMap::new();
    for (at, change) in changes.iter().enumerate() {
        last.insert(change.key(), at);
    }
    let mut unique = Batch::new();
    if batch.may_use_reserve() {
        unique.allow_reserve();
    }
    for (at, change) in changes.iter().enumerate() {
        if last.get(change.key()) == Some(&at) {
            match change {
                Change::Put(key, value) => unique.put(key.clone(), value.clone()),
                Change::Delete(key) => unique.delete(key.clone()),
            }
        }
    }
    Some(unique)
}

fn convert(folder: &Path, doing: &'static str, error: fjall::Error) -> Error {
    match error {
        fjall::Error::Io(source) | fjall::Error::Storage(LsmError::Io(source)) => {
            match source.kind() {
                io::ErrorKind::UnexpectedEof
                | io::ErrorKind::InvalidData
                | io::ErrorKind::NotFound => {
                    Error::Corrupt { path: folder.to_owned(), what: source.to_string() }
                }
                _ => Error::from_io(doing, source),
            }
        }
        fjall::Error::Poisoned => Error::Stopped,
        fjall::Error::Locked => Error::InUse { path: folder.to_owned() },
        other => Error::Corrupt { path: folder.to_owned(), what: format!("{other:?}") },
    }
}

/// Returns the options of the keyspace. The engine stores them when it creates the keyspace, and
/// ignores these afterwards.
fn keyspace_options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        // Only we seal. Above this limit every write of the engine would queue a seal; a full
        // queue can wait for itself for ever.
        .max_memtable_size(u64::MAX)
        .expect_point_read_hits(false)
        .compaction_strategy(Arc::new(
            Leveled::default()
                .with_l0_threshold(COMPACTED_RUNS)
                .with_table_target_size(RUN_FILE_BYTES),
        ))
        .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(
            BloomConstructionPolicy::BitsPerKey(FILTER_BITS),
        )))
}
