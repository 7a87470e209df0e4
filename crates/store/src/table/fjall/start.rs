//! What is done before the engine may touch its files: is everything there that was safe?
//!
//! 1. No `flushed` record: no open ever returned; the database, whole or half, must be empty, and
//!    is removed.
//! 2. Journals follow each other without a gap, and every one but the last holds whole batches and
//!    zeros only: the engine syncs a journal before it starts the next.
//! 3. The journal that the record names is whole up to the length it says, or the engine removed it
//!    because its rows are in sorted runs.
//! 4. The engine's keyspaces are there: it would make new ones, and pass over the rows of the old.
//!    What it says of its sorted runs is whole (`version`): it removes those that are not named.
//! 5. Only then is the torn end of the last journal cut off, which a crash may leave.
//!
//! Nothing is written before the first four hold.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::record::Record;
use super::{Error, Position, journal, version};

/// How long the engine's threads may take to let go of their files.
const LET_GO: Duration = Duration::from_secs(60);

/// Looks at the table in `home` whose engine keeps its files in `engine`. Answers where its
/// journals end, or nothing where the engine has to make a new database.
pub(super) fn check(home: &Path, engine: &Path) -> Result<Option<Position>, Error> {
    let record = Record::open(home)?;
    let whole = engine.join("version").try_exists().map_err(looking)?;
    match (record, whole) {
        (None, _) => remove_unused(home, engine, whole).map(|()| None),
        (Some(_), false) => Err(damage(engine.join("version"), "it is missing")),
        (Some(record), true) => {
            for keyspace in KEYSPACES {
                version::check(&engine.join(keyspace))?;
            }
            check_journals(engine, record.position()).map(Some)
        }
    }
}

/// What says what is in the engine's list of keyspaces, and in ours. Each is only ever replaced.
const KEYSPACES: [&str; 2] = ["keyspaces/0/current", "keyspaces/1/current"];

/// Makes the names in a new database safe. The engine syncs what is in the folders that it makes,
/// and not all of the folders they are in.
pub(super) fn sync_new(engine: &Path) -> io::Result<()> {
    for folder in ["keyspaces/0", "keyspaces/1", "keyspaces", ""] {
        File::open(engine.join(folder))?.sync_all()?;
    }
    Ok(())
}

/// Waits until no descriptor of this process is below `engine`: the engine's threads hold files a
/// little longer than its owner, and may write them as they let go.
pub(super) fn wait_for_release(engine: &Path) -> Result<(), Error> {
    let Ok(engine) = fs::canonicalize(engine) else {
        return Ok(());
    };
    let deadline = Instant::now() + LET_GO;
    while holds_any_below(&engine) {
        if Instant::now() > deadline {
            return Err(Error::from_io("closing the engine", io::ErrorKind::TimedOut.into()));
        }
        thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

fn remove_unused(home: &Path, engine: &Path, whole: bool) -> Result<(), Error> {
    let ids = match journal::list(engine) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed.map_err(looking)?,
    };
    if whole && ids.is_empty() {
        return Err(damage(engine.to_owned(), "it has no journal"));
    }
    for id in ids {
        let file = File::open(journal::path(engine, id)).map_err(looking)?;
        let extent = journal::read(&file, 0, 0).map_err(looking)?;
        if whole && (id > 0 || extent.valid > 0 || extent.torn) {
            return Err(damage(Record::path(home), "it is missing"));
        }
    }
    // Whoever dies in here leaves half a database.
    let removed = match fs::remove_file(engine.join("version")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::open(engine).and_then(|folder| folder.sync_all()),
    };
    removed.and_then(|()| fs::remove_dir_all(engine)).map_err(looking)
}

fn check_journals(engine: &Path, safe: Position) -> Result<Position, Error> {
    let ids = journal::list(engine).map_err(looking)?;
    let (Some(first), Some(last)) = (ids.first().copied(), ids.last().copied()) else {
        return Err(damage(engine.to_owned(), "it has no journal"));
    };
    if last < safe.journal {
        return Err(damage(journal::path(engine, safe.journal), "it is missing"));
    }
    let mut end = Position { journal: last, bytes: 0 };
    let mut floor = 0;
    for id in first..=last {
        let place = journal::path(engine, id);
        if ids.binary_search(&id).is_err() {
            return Err(damage(place, "it is missing"));
        }
        let file = File::open(&place).map_err(looking)?;
        let extent = journal::read(&file, 0, floor).map_err(looking)?;
        floor = extent.floor;
        if id == safe.journal && extent.valid < safe.bytes {
            let what = format!(
                "it holds whole batches up to byte {}, and was safe up to byte {}",
                extent.valid, safe.bytes
            );
            return Err(Error::Corrupt { place, what });
        }
        if id < last && extent.torn {
            let what = format!("no whole batch at byte {}, and a journal follows", extent.valid);
            return Err(Error::Corrupt { place, what });
        }
        end.bytes = extent.valid;
    }
    let file = File::options().write(true).open(journal::path(engine, last)).map_err(looking)?;
    if file.metadata().map_err(looking)?.len() != end.bytes {
        file.set_len(end.bytes).and_then(|()| file.sync_all()).map_err(looking)?;
    }
    Ok(end)
}

fn holds_any_below(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return false;
    };
    entries
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .any(|target| target.starts_with(folder))
}

fn looking(error: io::Error) -> Error {
    Error::from_io("looking at the table's files", error)
}

fn damage(place: PathBuf, what: &str) -> Error {
    Error::Corrupt { place, what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::Change;
    use super::*;

    /// Journals made by hand: three that follow each other, the second named by the record.
    struct Made {
        folder: tempfile::TempDir,
        engine: PathBuf,
    }

    impl Made {
        fn new(record: Position) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let engine = folder.path().join("engine");
            fs::create_dir(&engine).unwrap();
            fs::write(engine.join("version"), "").unwrap();
            for keyspace in KEYSPACES {
                let current = engine.join(keyspace);
                fs::create_dir_all(current.parent().unwrap()).unwrap();
                version::tests::make(&current, b"runs");
            }
            for id in 3..6 {
                let mut bytes = Vec::new();
                for seqno in 0..10 {
                    bytes.extend(journal::tests::batch(id * 100 + seqno, &changes()));
                }
                bytes.resize(bytes.len() + 5_000, 0);
                fs::write(journal::path(&engine, id), bytes).unwrap();
            }
            Record::create(folder.path(), record).unwrap();
            Self { folder, engine }
        }

        fn check(&self) -> Result<Option<Position>, Error> {
            check(self.folder.path(), &self.engine)
        }

        fn change(&self, id: u64, change: impl FnOnce(&mut Vec<u8>)) {
            let path = journal::path(&self.engine, id);
            let mut bytes = fs::read(&path).unwrap();
            change(&mut bytes);
            fs::write(path, bytes).unwrap();
        }

        fn assert_corrupt(&self, id: u64) {
            match self.check() {
                Err(Error::Corrupt { place, .. }) => {
                    assert_eq!(place, journal::path(&self.engine, id));
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
        let made = Made::new(Position { journal: 4, bytes: batches(10) });
        let end = Position { journal: 5, bytes: batches(10) };
        assert_eq!(made.check().unwrap(), Some(end));
        assert_eq!(fs::metadata(journal::path(&made.engine, 5)).unwrap().len(), end.bytes);
        assert_eq!(made.check().unwrap(), Some(end));
    }

    /// Any damaged byte of a journal that another follows is told, its sequence numbers included;
    /// zeros behind it are not damage.
    #[test]
    fn damage_before_the_last_journal_is_told() {
        for at in [0, 1, 5, 6, 12, 13, 16, 40, 3_000, batches(3) + 9, batches(10) - 1] {
            let made = Made::new(Position { journal: 5, bytes: 0 });
            let at = usize::try_from(at).unwrap();
            made.change(4, |bytes| bytes[at] ^= 4);
            made.assert_corrupt(4);
            made.change(4, |bytes| bytes[at] ^= 4);
            made.change(4, |bytes| bytes.truncate(usize::try_from(batches(10)).unwrap()));
            made.check().unwrap().unwrap();
        }
    }

    #[test]
    fn a_missing_journal_is_told_unless_it_was_the_oldest() {
        let made = Made::new(Position { journal: 3, bytes: batches(10) });
        fs::remove_file(journal::path(&made.engine, 4)).unwrap();
        made.assert_corrupt(4);
        let made = Made::new(Position { journal: 3, bytes: batches(10) });
        fs::remove_file(journal::path(&made.engine, 3)).unwrap();
        made.check().unwrap().unwrap();
        let made = Made::new(Position { journal: 5, bytes: 0 });
        fs::remove_file(journal::path(&made.engine, 5)).unwrap();
        made.assert_corrupt(5);
    }

    #[test]
    fn the_last_journal_is_cut_behind_what_was_safe_and_told_before() {
        let damage = usize::try_from(batches(6) + 100).unwrap();
        let made = Made::new(Position { journal: 5, bytes: batches(6) });
        made.change(5, |bytes| bytes[damage] ^= 1);
        assert_eq!(made.check().unwrap(), Some(Position { journal: 5, bytes: batches(6) }));
        let made = Made::new(Position { journal: 5, bytes: batches(7) });
        made.change(5, |bytes| bytes[damage] ^= 1);
        made.assert_corrupt(5);
    }

    /// The engine makes its marker before it syncs it, and its folders before they are full.
    #[test]
    fn a_database_that_was_never_opened_is_made_again() {
        for marker in ["", "\0\0\0\0", "FJL\x03"] {
            let made = Made::new(Position { journal: 5, bytes: 0 });
            fs::remove_file(Record::path(made.folder.path())).unwrap();
            for id in 3..6 {
                fs::remove_file(journal::path(&made.engine, id)).unwrap();
            }
            fs::write(journal::path(&made.engine, 0), [0; 5_000]).unwrap();
            fs::write(made.engine.join("version"), marker).unwrap();
            fs::remove_dir_all(made.engine.join("keyspaces/1")).unwrap();
            assert_eq!(made.check().unwrap(), None);
            assert!(!made.engine.exists());
        }
    }

    /// The engine would make a new keyspace, and the rows of the old one would be lost in silence.
    #[test]
    fn a_missing_keyspace_is_told() {
        for keyspace in KEYSPACES {
            let made = Made::new(Position { journal: 5, bytes: 0 });
            fs::remove_file(made.engine.join(keyspace)).unwrap();
            match made.check() {
                Err(Error::Corrupt { place, .. }) => assert_eq!(place, made.engine.join(keyspace)),
                other => panic!("{other:?}"),
            }
        }
    }
}
