//! Reads of the rows of a damaged table, without the engine and without a change of any file.
//!
//! The engine opens a table whole or not at all. This reads what is left of each of its files:
//! sorted runs block by block (`runs`), journals batch by batch (`journal`), past damage. The rows
//! come in no order, each with its sequence number: of two versions the higher one is newer.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::journal::{self, Position};
use super::pages;
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
    /// The damage, for a message.
    pub what: String,
    /// The loss that follows.
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
    for run in known_runs(keyspace, unread) {
        let path = runs::path(keyspace, run.id);
        let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        match opened {
            Ok((len, file)) => {
                let lost = runs::read(&file, len, run.base, visit)?;
                if !lost.is_empty() {
                    let what = "some of its blocks are damaged, or cannot be read".to_owned();
                    unread.push(Unread { path, what, lost: Lost::Rows(lost) });
                }
            }
            Err(error) => {
                let lost = Lost::Rows(vec![LostRows::ALL]);
                unread.push(Unread { path, what: error.to_string(), lost });
            }
        }
    }
    Ok(())
}

/// Returns the sorted runs of a keyspace: those that the manifest lists, or, if it is damaged, all
/// that are there. One more may have been there then, so any row may be lost.
fn known_runs(keyspace: &Path, unread: &mut Vec<Unread>) -> Vec<ListedRun> {
    let error = match runs::listed(keyspace) {
        Ok(runs) => return runs,
        Err(error) => error,
    };
    let (path, what) = match error {
        Error::Corrupt { path, what } => (path, what),
        error => (keyspace.join("current"), error.to_string()),
    };
    if let Some(runs) = runs::listed_but_for_a_bit(keyspace) {
        let what = format!("{what}; one bit is wrong, so the runs are known");
        unread.push(Unread { path, what, lost: Lost::Nothing });
        return runs;
    }
    let what = format!("{what}; all sorted runs that are there are read, others may be missing");
    unread.push(Unread { path, what, lost: Lost::Rows(vec![LostRows::ALL]) });
    all_runs(keyspace).unwrap_or_else(|error| {
        let path = keyspace.join("tables");
        let what = error.to_string();
        unread.push(Unread { path, what, lost: Lost::Rows(vec![LostRows::ALL]) });
        Vec::new()
    })
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
    /// True if there is a whole batch after bytes that are no batch.
    has_gap: bool,
    /// True if the disk could not read some of its bytes, or if it is longer than a journal.
    has_unread: bool,
}

fn read_journals(
    home: &Path,
    engine: &Path,
    unread: &mut Vec<Unread>,
    visit: Visit<'_>,
) -> Result<(), Error> {
    let safe = SyncRecord::read(home);
    if safe.is_none() {
        let path = SyncRecord::path(home);
        let what = "it does not say how far the journals were synced".to_owned();
        unread.push(Unread { path, what, lost: Lost::Changes });
    }
    let ids = match journal::list(engine) {
        Ok(ids) if ids.is_empty() => Err("it has no journal".to_owned()),
        Ok(ids) => Ok(ids),
        Err(error) => Err(error.to_string()),
    };
    let ids = match ids {
        Ok(ids) => ids,
        Err(what) => {
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
        let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let journal = match opened {
            Ok((len, file)) => read_journal(&file, len, id),
            Err(error) => {
                unread.push(Unread { path, what: error.to_string(), lost: Lost::Changes });
                continue;
            }
        };
        if let Some(what) = damage(&journal, Some(id) == last, safe) {
            unread.push(Unread { path, what: what.to_owned(), lost: Lost::Changes });
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

/// Returns what is wrong with a journal, if changes may be lost. A crash may leave the last one
/// torn after its synced part.
fn damage(journal: &Journal, is_last: bool, safe: Option<Position>) -> Option<&'static str> {
    let end = journal.batches.last().map_or(0, |batch| batch.end);
    let is_short = safe.is_some_and(|safe| safe.journal == journal.id && (end as u64) < safe.bytes);
    let is_torn = journal.bytes[end..].iter().any(|byte| *byte != 0);
    if journal.has_unread {
        Some("some of its bytes cannot be read")
    } else if journal.has_gap || is_short || (is_torn && !is_last) {
        Some("some of its batches are damaged")
    } else if is_torn && safe.is_none() {
        Some("its last bytes are no whole batch, and may have been synced")
    } else {
        None
    }
}

fn read_journal(file: &impl FileExt, len: u64, id: u64) -> Journal {
    let mut bytes = vec![0; len.min(JOURNAL_BYTES) as usize];
    let read = pages::read_at(file, &mut bytes, 0);
    bytes.truncate(read.bytes);
    let has_unread = read.unreadable > 0 || len > JOURNAL_BYTES;
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
    Journal { id, bytes, batches, has_gap, has_unread }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Change;

    fn batches(numbers: std::ops::Range<u64>) -> Vec<u8> {
        let change = |number: u64| [Change::Put(vec![1; 9], vec![number as u8; 70])];
        numbers.flat_map(|number| journal::tests::batch(number, &change(number))).collect()
    }

    /// Batches before and behind a page that the disk cannot read are read, and the page is named,
    /// also if it is the last one.
    #[test]
    fn a_page_of_a_journal_that_cannot_be_read_costs_its_own_batches() {
        let bytes = batches(0..100);
        let size = bytes.len() / 100;
        let pages = bytes.len().div_ceil(4096) as u64;
        assert!(pages >= 3);
        for page in 0..pages {
            let bad = pages::tests::BadPage::new(&bytes, page);
            let journal = read_journal(&bad, bytes.len() as u64, 4);
            let first = bad.bad.start as usize / size;
            let behind = (bad.bad.end as usize).div_ceil(size).min(100);
            let wanted: Vec<u64> =
                (0..100).filter(|number| !(first..behind).contains(&(*number as usize))).collect();
            let found: Vec<u64> = journal.batches.iter().map(|batch| batch.number).collect();
            assert_eq!(found, wanted, "page {page}");
            let synced = Position { journal: 4, bytes: 0 };
            assert!(damage(&journal, true, Some(synced)).is_some(), "page {page}");
        }
    }

    /// What may follow the synced part of the last journal is told of if nothing says where that
    /// part ends.
    #[test]
    fn a_torn_end_is_told_of_unless_it_was_not_synced() {
        let whole = batches(0..3);
        let torn = [&whole[..], &batches(3..4)[..60]].concat();
        let synced = |bytes: &[u8]| Some(Position { journal: 4, bytes: bytes.len() as u64 });
        let says = |bytes: &[u8], safe| {
            let mut file = tempfile::tempfile().unwrap();
            io::Write::write_all(&mut file, bytes).unwrap();
            damage(&read_journal(&file, bytes.len() as u64, 4), true, safe).is_some()
        };
        assert!(!says(&torn, synced(&whole)));
        assert!(says(&torn, synced(&torn)));
        assert!(says(&torn, None));
        assert!(!says(&[&whole[..], &[0; 60]].concat(), None));
    }

    /// Returns the file names of what `read_rows` could not read in full and that costs changes.
    fn told(home: &Path) -> Vec<String> {
        let mut unread = Vec::new();
        read_journals(home, &home.join("engine"), &mut unread, &mut |_| Ok(())).unwrap();
        assert!(unread.iter().all(|unread| unread.lost == Lost::Changes));
        let names = unread.iter().map(|unread| unread.path.file_name().unwrap());
        names.map(|name| name.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn what_is_missing_of_the_journals_is_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let engine = folder.path().join("engine");
        fs::create_dir(&engine).unwrap();
        assert_eq!(told(folder.path()), ["flushed", "engine"]);
        SyncRecord::create(folder.path(), Position { journal: 5, bytes: 0 }).unwrap();
        assert_eq!(told(folder.path()), ["engine"]);
        for id in 3..6 {
            fs::write(journal::path(&engine, id), batches(id * 10..id * 10 + 9)).unwrap();
        }
        assert!(told(folder.path()).is_empty());
        fs::remove_file(journal::path(&engine, 4)).unwrap();
        assert_eq!(told(folder.path()), ["4.jnl"]);
        fs::remove_file(journal::path(&engine, 5)).unwrap();
        assert_eq!(told(folder.path()), ["5.jnl"]);
    }
}
