//! The check, before the engine touches its files, that everything that was safe is there.
//!
//! 1. Without the file `flushed` no open ever succeeded. The database, whole or half created, must
//!    be empty, and is deleted.
//! 2. The journals have no gap. Every journal but the last holds whole batches and zeros only,
//!    because the engine syncs a journal before it starts the next.
//! 3. The journal that `flushed` names has whole batches up to the position recorded there, or the
//!    engine deleted it because its rows are in sorted runs.
//! 4. The keyspaces are there: the engine would create a missing one, empty. Their manifests match
//!    their checksums (`manifest`): the engine deletes sorted runs that are not listed. The tables
//!    of contents of these runs match theirs (`archive`): the engine allocates what they ask for.
//! 5. Only then the torn end of the last journal, which a crash may leave, is cut off.
//!
//! Nothing is written before the first four hold.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::journal::{self, Position};
use super::runs;
use super::sync_record::SyncRecord;
use crate::table::Error;

/// Verifies the table in the folder `home`, whose engine has its files in `engine`. Returns the end
/// of the journals, or `None` if the engine has to create a new database.
///
/// # Errors
/// [`Error::Corrupt`] if something that was safe is missing or damaged. Nothing was changed then.
pub(super) fn verify(home: &Path, engine: &Path) -> Result<Option<Position>, Error> {
    let record = SyncRecord::open(home)?;
    let is_complete = engine.join("version").try_exists().map_err(failed)?;
    match (record, is_complete) {
        (None, _) => remove_unused(home, engine, is_complete).map(|()| None),
        (Some(_), false) => Err(corrupt(engine.join("version"), "it is missing")),
        (Some(record), true) => {
            for keyspace in KEYSPACES {
                runs::check_contents(&engine.join(keyspace))?;
            }
            check_journals(engine, record.position()).map(Some)
        }
    }
}

/// The folders of the engine's own keyspace and of ours. The engine replaces the file `current` in
/// them, which names the manifest, and never deletes it.
const KEYSPACES: [&str; 2] = ["keyspaces/0", "keyspaces/1"];

/// Deletes a database that never held a row. `is_complete` says that the engine had created it.
fn remove_unused(home: &Path, engine: &Path, is_complete: bool) -> Result<(), Error> {
    let ids = match journal::list(engine) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed.map_err(failed)?,
    };
    if is_complete && ids.is_empty() {
        return Err(corrupt(engine.to_owned(), "it has no journal"));
    }
    for id in ids {
        let file = File::open(journal::path(engine, id)).map_err(failed)?;
        let extent = journal::read(&file, 0, 0).map_err(failed)?;
        if is_complete && (id > 0 || extent.valid > 0 || extent.torn) {
            return Err(corrupt(SyncRecord::path(home), "it is missing"));
        }
    }
    // The version file first: after a crash during the rest the database counts as half created.
    let removed = match fs::remove_file(engine.join("version")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::open(engine).and_then(|folder| folder.sync_all()),
    };
    removed.and_then(|()| fs::remove_dir_all(engine)).map_err(failed)
}

/// Checks the journals, cuts off a torn end, and returns the end.
fn check_journals(engine: &Path, safe: Position) -> Result<Position, Error> {
    let ids = journal::list(engine).map_err(failed)?;
    let (Some(first), Some(last)) = (ids.first().copied(), ids.last().copied()) else {
        return Err(corrupt(engine.to_owned(), "it has no journal"));
    };
    if last < safe.journal {
        return Err(corrupt(journal::path(engine, safe.journal), "it is missing"));
    }
    let mut end = Position { journal: last, bytes: 0 };
    let mut next_seqno = 0;
    for id in first..=last {
        let path = journal::path(engine, id);
        if ids.binary_search(&id).is_err() {
            return Err(corrupt(path, "it is missing"));
        }
        let file = File::open(&path).map_err(failed)?;
        let extent = journal::read(&file, 0, next_seqno).map_err(failed)?;
        next_seqno = extent.next_seqno;
        if id == safe.journal && extent.valid < safe.bytes {
            let what = format!(
                "it was synced up to byte {}, but its whole batches end at byte {}",
                safe.bytes, extent.valid
            );
            return Err(Error::Corrupt { path, what });
        }
        if id < last && extent.torn {
            let what = format!(
                "its whole batches end at byte {}, but it is longer and not the last journal",
                extent.valid
            );
            return Err(Error::Corrupt { path, what });
        }
        end.bytes = extent.valid;
    }
    let file = File::options().write(true).open(journal::path(engine, last)).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() != end.bytes {
        file.set_len(end.bytes).and_then(|()| file.sync_all()).map_err(failed)?;
    }
    Ok(end)
}

fn failed(error: io::Error) -> Error {
    Error::from_io("reading the table's files", error)
}

fn corrupt(path: PathBuf, what: &str) -> Error {
    Error::Corrupt { path, what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::manifest;
    use super::*;
    use crate::table::Change;

    /// A folder with journals 3, 4 and 5, written by hand, and a sync record.
    struct Fixture {
        folder: tempfile::TempDir,
        engine: PathBuf,
    }

    impl Fixture {
        fn new(record: Position) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let engine = folder.path().join("engine");
            fs::create_dir(&engine).unwrap();
            fs::write(engine.join("version"), "").unwrap();
            for keyspace in KEYSPACES {
                let folder = engine.join(keyspace);
                fs::create_dir_all(&folder).unwrap();
                manifest::tests::write(&folder.join("current"), &runs::tests::manifest(&[]));
            }
            for id in 3..6 {
                let mut bytes = Vec::new();
                for seqno in 0..10 {
                    bytes.extend(journal::tests::batch(id * 100 + seqno, &changes()));
                }
                bytes.resize(bytes.len() + 5_000, 0);
                fs::write(journal::path(&engine, id), bytes).unwrap();
            }
            SyncRecord::create(folder.path(), record).unwrap();
            Self { folder, engine }
        }

        fn verify(&self) -> Result<Option<Position>, Error> {
            verify(self.folder.path(), &self.engine)
        }

        fn change(&self, id: u64, change: impl FnOnce(&mut Vec<u8>)) {
            let path = journal::path(&self.engine, id);
            let mut bytes = fs::read(&path).unwrap();
            change(&mut bytes);
            fs::write(path, bytes).unwrap();
        }

        fn assert_corrupt(&self, id: u64) {
            match self.verify() {
                Err(Error::Corrupt { path, .. }) => {
                    assert_eq!(path, journal::path(&self.engine, id));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn changes() -> Vec<Change> {
        vec![Change::Put(vec![1; 9], vec![2; 5_000]), Change::Delete(vec![3; 30])]
    }

    fn batches(count: u64) -> u64 {
        count * journal::batch_bytes(changes().iter())
    }

    #[test]
    fn whole_journals_pass_and_the_last_ends_at_its_last_batch() {
        let table = Fixture::new(Position { journal: 4, bytes: batches(10) });
        let end = Position { journal: 5, bytes: batches(10) };
        assert_eq!(table.verify().unwrap(), Some(end));
        assert_eq!(fs::metadata(journal::path(&table.engine, 5)).unwrap().len(), end.bytes);
        assert_eq!(table.verify().unwrap(), Some(end));
    }

    /// Any damaged byte of a journal that another follows is found, its sequence numbers included;
    /// zeros after it are no damage.
    #[test]
    fn damage_before_the_last_journal_is_found() {
        for at in [0, 1, 5, 6, 12, 13, 16, 40, 3_000, batches(3) + 9, batches(10) - 1] {
            let table = Fixture::new(Position { journal: 5, bytes: 0 });
            let at = usize::try_from(at).unwrap();
            table.change(4, |bytes| bytes[at] ^= 4);
            table.assert_corrupt(4);
            table.change(4, |bytes| bytes[at] ^= 4);
            table.change(4, |bytes| bytes.truncate(usize::try_from(batches(10)).unwrap()));
            table.verify().unwrap().unwrap();
        }
    }

    #[test]
    fn a_missing_journal_is_told_unless_it_was_the_oldest() {
        let table = Fixture::new(Position { journal: 3, bytes: batches(10) });
        fs::remove_file(journal::path(&table.engine, 4)).unwrap();
        table.assert_corrupt(4);
        let table = Fixture::new(Position { journal: 3, bytes: batches(10) });
        fs::remove_file(journal::path(&table.engine, 3)).unwrap();
        table.verify().unwrap().unwrap();
        let table = Fixture::new(Position { journal: 5, bytes: 0 });
        fs::remove_file(journal::path(&table.engine, 5)).unwrap();
        table.assert_corrupt(5);
    }

    #[test]
    fn the_last_journal_is_cut_after_its_safe_part_only() {
        let damage = usize::try_from(batches(6) + 100).unwrap();
        let table = Fixture::new(Position { journal: 5, bytes: batches(6) });
        table.change(5, |bytes| bytes[damage] ^= 1);
        assert_eq!(table.verify().unwrap(), Some(Position { journal: 5, bytes: batches(6) }));
        let table = Fixture::new(Position { journal: 5, bytes: batches(7) });
        table.change(5, |bytes| bytes[damage] ^= 1);
        table.assert_corrupt(5);
    }

    /// The engine writes its version file before it syncs it, and creates folders before files.
    #[test]
    fn a_database_that_was_never_opened_is_created_again() {
        for marker in ["", "\0\0\0\0", "FJL\x03"] {
            let table = Fixture::new(Position { journal: 5, bytes: 0 });
            fs::remove_file(SyncRecord::path(table.folder.path())).unwrap();
            for id in 3..6 {
                fs::remove_file(journal::path(&table.engine, id)).unwrap();
            }
            fs::write(journal::path(&table.engine, 0), [0; 5_000]).unwrap();
            fs::write(table.engine.join("version"), marker).unwrap();
            fs::remove_dir_all(table.engine.join("keyspaces/1")).unwrap();
            assert_eq!(table.verify().unwrap(), None);
            assert!(!table.engine.exists());
        }
    }

    /// The engine would create a new keyspace and lose the rows of the old one without an error.
    #[test]
    fn a_missing_keyspace_is_found() {
        for keyspace in KEYSPACES {
            let table = Fixture::new(Position { journal: 5, bytes: 0 });
            let current = table.engine.join(keyspace).join("current");
            fs::remove_file(&current).unwrap();
            match table.verify() {
                Err(Error::Corrupt { path, .. }) => assert_eq!(path, current),
                other => panic!("{other:?}"),
            }
        }
    }
}
