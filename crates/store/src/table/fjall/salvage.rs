//! Reads the rows of a damaged table, without the engine and without a change of any file.
//!
//! The engine opens a table whole or not at all. This reads what is left of each of its files:
//! sorted runs block by block (`runs`), journals batch by batch (`journal`), past what is damaged.
//! The rows come in no order, each with its sequence number: of two versions the higher one is
//! newer.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::journal;
use super::runs::{self, ListedRun};
use super::sync_record::SyncRecord;
use crate::folder::Folder;
use crate::table::Error;

pub use super::found::{FoundRow, LostRows};

/// A file of the table that could not be read in full.
#[derive(Debug)]
pub struct Unread {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it, for a message.
    pub what: String,
    /// What that costs.
    pub lost: Lost,
}

/// The cost of a file that cannot be read in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lost {
    /// Nothing: other files say the same.
    Nothing,
    /// Rows with these keys.
    Rows(Vec<LostRows>),
    /// Changes of any rows, the latest ones among them.
    Changes,
}

/// The keyspace of the rows.
const ROWS: &str = "keyspaces/1";
/// Most bytes of a journal that are read.
const JOURNAL_BYTES: u64 = 1 << 30;

type Visit<'a> = &'a mut dyn FnMut(FoundRow<'_>) -> Result<(), Error>;

/// Calls `visit` with each version of a row that can be read in the table in `folder`. Returns
/// which files could not be read in full.
///
/// # Errors
/// Those of `visit`.
pub fn read_rows(folder: &Folder, visit: Visit<'_>) -> Result<Vec<Unread>, Error> {
    let home = folder.proc_path();
    let engine = home.join("engine");
    let mut unread = Vec::new();
    read_runs(&engine.join(ROWS), &mut unread, visit)?;
    read_journals(&home, &engine, &mut unread, visit)?;
    for file in &mut unread {
        if let Ok(below) = file.path.strip_prefix(&home) {
            file.path = folder.path().join(below);
        }
    }
    Ok(unread)
}

fn read_runs(keyspace: &Path, unread: &mut Vec<Unread>, visit: Visit<'_>) -> Result<(), Error> {
    let listed = runs::listed(keyspace).or_else(|error| {
        let (path, what) = match error {
            Error::Corrupt { path, what } => (path, what),
            error => (keyspace.join("current"), error.to_string()),
        };
        let what = format!("{what}; all sorted runs are read");
        unread.push(Unread { path, what, lost: Lost::Nothing });
        all_runs(keyspace)
    });
    let runs = match listed {
        Ok(runs) => runs,
        Err(error) => {
            unread.push(Unread {
                path: keyspace.join("tables"),
                what: error.to_string(),
                lost: Lost::Rows(vec![LostRows::ALL]),
            });
            return Ok(());
        }
    };
    for run in runs {
        let path = runs::path(keyspace, run.id);
        let read = match File::open(&path) {
            Ok(file) => {
                let mut failed = None;
                let read = runs::read(&file, run.base, &mut |row| {
                    visit(row).inspect_err(|error| failed = Some(error.clone()))
                });
                match failed {
                    Some(error) => return Err(error),
                    None => read.map_err(|error| error.to_string()),
                }
            }
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok(lost) if lost.is_empty() => {}
            Ok(lost) => {
                let what = "some of its blocks are damaged".to_owned();
                unread.push(Unread { path, what, lost: Lost::Rows(lost) });
            }
            Err(what) => {
                let lost = Lost::Rows(vec![LostRows::ALL]);
                unread.push(Unread { path, what, lost });
            }
        }
    }
    Ok(())
}

/// Returns the sorted runs that are in the folder of a keyspace.
fn all_runs(keyspace: &Path) -> io::Result<Vec<ListedRun>> {
    let mut runs = Vec::new();
    for entry in fs::read_dir(keyspace.join("tables"))? {
        let name = entry?.file_name();
        if let Some(id) = name.to_str().and_then(|name| name.parse().ok()) {
            runs.push(ListedRun { id, base: 0 });
        }
    }
    Ok(runs)
}

/// A journal in memory, and its whole batches.
struct Journal {
    id: u64,
    bytes: Vec<u8>,
    batches: Vec<journal::Found>,
    /// Whether there is a whole batch behind bytes that are none.
    has_gap: bool,
}

fn read_journals(
    home: &Path,
    engine: &Path,
    unread: &mut Vec<Unread>,
    visit: Visit<'_>,
) -> Result<(), Error> {
    let safe = SyncRecord::read(home);
    let ids = match journal::list(engine) {
        Ok(ids) => ids,
        Err(error) => {
            let what = error.to_string();
            unread.push(Unread { path: engine.to_owned(), what, lost: Lost::Changes });
            return Ok(());
        }
    };
    for two in ids.windows(2).filter(|two| two[0] + 1 < two[1]) {
        // Names are numbers from the disk: one line tells of all that are missing in a row.
        let path = journal::path(engine, two[0] + 1);
        unread.push(Unread { path, what: "it is missing".to_owned(), lost: Lost::Changes });
    }
    let last = ids.last().copied();
    let mut next_number = 0;
    for id in ids {
        let path = journal::path(engine, id);
        let journal = match read_journal(&path, id) {
            Ok(journal) => journal,
            Err(error) => {
                unread.push(Unread { path, what: error.to_string(), lost: Lost::Changes });
                continue;
            }
        };
        let end = journal.batches.last().map_or(0, |batch| batch.end as u64);
        let is_short = safe.is_some_and(|safe| safe.journal == id && end < safe.bytes);
        let is_torn = journal.bytes[end as usize..].iter().any(|byte| *byte != 0);
        if journal.has_gap || is_short || (is_torn && Some(id) != last) {
            let what = "some of its batches are damaged".to_owned();
            unread.push(Unread { path, what, lost: Lost::Changes });
        }
        next_number = visit_batches(&journal, next_number, visit)?;
    }
    if let Some(safe) = safe
        && last.is_some_and(|last| last < safe.journal)
    {
        let path = journal::path(engine, safe.journal);
        unread.push(Unread { path, what: "it is missing".to_owned(), lost: Lost::Changes });
    }
    Ok(())
}

fn read_journal(path: &Path, id: u64) -> io::Result<Journal> {
    let mut bytes = Vec::new();
    File::open(path)?.take(JOURNAL_BYTES).read_to_end(&mut bytes)?;
    let mut batches = Vec::new();
    let mut at = 0;
    let mut has_gap = false;
    let mut is_behind_gap = false;
    while at < bytes.len() {
        match journal::batch_at(&bytes, at) {
            Some(batch) => {
                at = batch.end;
                has_gap |= is_behind_gap;
                batches.push(batch);
            }
            None => {
                is_behind_gap = true;
                at += 1;
            }
        }
    }
    Ok(Journal { id, bytes, batches, has_gap })
}

/// Calls `visit` with the rows of a journal. The checksum of a batch does not cover its sequence
/// number, so one that is not between its neighbours is replaced. Returns the least number that the
/// next batch may have.
fn visit_batches(journal: &Journal, first: u64, visit: Visit<'_>) -> Result<u64, Error> {
    let mut least = first;
    for (index, batch) in journal.batches.iter().enumerate() {
        let next = journal.batches.get(index + 1).map(|next| next.number);
        let is_between = batch.number >= least && next.is_none_or(|next| batch.number < next);
        let number = match is_between || next.is_some_and(|next| next <= least) {
            true => batch.number.max(least),
            false => least,
        };
        journal::rows(&journal.bytes, batch, &mut |row| {
            visit(FoundRow { key: row.key, value: row.value, number })
        })?;
        tracing::trace!(journal = journal.id, number, "a batch was read");
        least = number.saturating_add(1);
    }
    Ok(least)
}
