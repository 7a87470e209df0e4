//! Promises of the engine alone: short journals, damage that is found, one owner, a full disk.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pelago_store::reserve::Reserve;
use pelago_store::table::fjall::{FjallTable, Options};
use pelago_store::table::{Batch, Error, Pressure, Table, TableRead};

const DEADLINE: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;

#[test]
fn journals_stay_small_while_200_mib_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let table = FjallTable::open(folder.path(), Options::default()).unwrap();
    let memtable = 16 * MIB;
    let mut written = 0;
    let mut number = 0_u64;
    while written < 200 * MIB {
        let until = written + 8 * MIB;
        while written < until {
            let mut batch = Batch::new();
            for _ in 0..16 {
                number += 1;
                let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
                batch.put(key.to_vec(), vec![number as u8; 300]);
            }
            written += batch.bytes() as u64;
            table.write(&batch).unwrap();
        }
        table.persist().unwrap();
        // Up to two and a half memtables may wait for a flush. Then pressure stops the writer.
        assert!(table.usage().journal_bytes <= 64 * MIB + 3 * memtable);
        poll(|| table.pressure() == Pressure::None);
        poll(|| {
            table.persist().unwrap();
            table.usage().journal_bytes <= 64 * MIB + memtable
        });
    }
    assert!(table.usage().disk_bytes > 100 * MIB);
}

/// A journal cut anywhere after the last persist opens, and the table holds a prefix of the
/// batches.
#[test]
fn a_journal_cut_anywhere_behind_what_is_safe_opens_with_a_prefix() {
    let written = tempfile::tempdir().unwrap();
    let (journal, safe, end) = written_table(written.path());
    let bytes = fs::read(&journal).unwrap();
    let mut last = SAFE + UNSAFE;
    for length in [end, end - 1, end - 13, (safe + end) / 2, safe + 14, safe + 1, safe] {
        let folder = tempfile::tempdir().unwrap();
        copy_folder(written.path(), folder.path());
        let journal = folder.path().join(journal.strip_prefix(written.path()).unwrap());
        fs::write(&journal, &bytes[..usize::try_from(length).unwrap()]).unwrap();
        let table = FjallTable::open(folder.path(), Options::default()).unwrap();
        let count = prefix(&table);
        assert!((SAFE..=last).contains(&count), "{count} batches at {length}");
        last = count;
    }
    assert_eq!(last, SAFE);
}

#[test]
fn garbage_behind_what_is_safe_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, safe, end) = written_table(folder.path());
    let file = File::options().write(true).open(&journal).unwrap();
    file.write_all_at(&[0xa5; 4000], (safe + end) / 2).unwrap();
    drop(file);
    let table = FjallTable::open(folder.path(), Options::default()).unwrap();
    let count = prefix(&table);
    assert!((SAFE..SAFE + UNSAFE).contains(&count));
    table.write(&numbered(count + 1)).unwrap();
    table.persist().unwrap();
    table.reopen().unwrap();
    assert_eq!(prefix(&table), count + 1);
}

/// Damage of any byte is found. The open that finds it changes nothing: with the byte restored the
/// table opens whole.
#[test]
fn a_damaged_byte_in_a_journal_that_was_safe_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, safe, _) = written_table(folder.path());
    let file = File::options().read(true).write(true).open(&journal).unwrap();
    for part in 0..16 {
        let at = safe * part / 16 + part;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
        let before = files(folder.path());
        assert_corrupt(folder.path(), &journal);
        assert!(before == files(folder.path()), "the failed open changed something");
        file.write_all_at(&byte, at).unwrap();
    }
    file.set_len(safe - 1).unwrap();
    assert_corrupt(folder.path(), &journal);
    fs::rename(&journal, folder.path().join("aside")).unwrap();
    assert!(matches!(
        FjallTable::open(folder.path(), Options::default()),
        Err(Error::Corrupt { .. })
    ));
}

#[test]
fn a_record_or_database_that_is_gone_is_told() {
    for name in ["flushed", "engine/version"] {
        let folder = tempfile::tempdir().unwrap();
        written_table(folder.path());
        fs::rename(folder.path().join(name), folder.path().join("aside")).unwrap();
        assert_corrupt(folder.path(), &folder.path().join(name));
        fs::rename(folder.path().join("aside"), folder.path().join(name)).unwrap();
        FjallTable::open(folder.path(), Options::default()).unwrap();
    }
}

/// A process killed in its first open may leave any part of a database. It acknowledged nothing.
#[test]
fn an_unfinished_first_open_is_begun_again() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("engine/keyspaces")).unwrap();
    File::create(folder.path().join("engine/0.jnl")).unwrap();
    File::create(folder.path().join("flushed.new")).unwrap();
    let table = FjallTable::open(folder.path(), Options::default()).unwrap();
    table.write(&numbered(1)).unwrap();
    table.close().unwrap();
    assert!(matches!(table.get(b"row"), Err(Error::Stopped)));
    drop(table);
    let table = FjallTable::open(folder.path(), Options::default()).unwrap();
    assert_eq!(prefix(&table), 1);
}

#[test]
fn a_second_owner_is_refused_and_disturbs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let table = FjallTable::open(folder.path(), Options::default()).unwrap();
    for number in 1..=100 {
        table.write(&numbered(number)).unwrap();
        let second = FjallTable::open(folder.path(), Options::default());
        assert!(matches!(second, Err(Error::InUse { .. })));
    }
    assert_eq!(prefix(&table), 100);
    drop(table);
    let table = FjallTable::open(folder.path(), Options::default()).unwrap();
    assert_eq!(prefix(&table), 100);
}

/// Threads read and write while the table is reopened again and again. A snapshot from before is
/// stale.
#[test]
fn a_reopen_under_load_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { memory_bytes: 8 * MIB };
    let table: Arc<dyn Table> = Arc::new(FjallTable::open(folder.path(), options).unwrap());
    let snapshot = table.snapshot().unwrap();
    let written = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 0;
            while number < 3_000 {
                // During a reopen the table is stopped.
                match table.write(&numbered(number + 1)) {
                    Ok(()) => number += 1,
                    Err(Error::Stopped) => thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            }
            number
        });
        let mut last = 0;
        while !writer.is_finished() {
            table.reopen().unwrap();
            let count = prefix(&*table);
            assert!(count >= last);
            last = count;
        }
        writer.join().unwrap()
    });
    assert_eq!(prefix(&*table), written);
    assert!(matches!(snapshot.get(b"row"), Err(Error::StaleSnapshot)));
}

/// On a file system of 20 MiB: a write that does not fit changes nothing, the table goes on, and
/// writes succeed once there is space again.
#[test]
fn a_full_medium_is_told_before_anything_is_applied() {
    run_in_a_small_file_system("fill_the_medium");
}

/// The part of the test above that runs in the small file system.
#[test]
fn fill_the_medium() {
    let Ok(folder) = std::env::var(SMALL_FOLDER) else {
        return;
    };
    let folder = Path::new(&folder);
    let table = FjallTable::open(&folder.join("table"), Options::default()).unwrap();
    let ballast = folder.join("ballast");
    fs::write(&ballast, vec![1; 8 << 20]).unwrap();
    let mut number = 0;
    let error = loop {
        match table.write(&numbered(number + 1)) {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::NoSpace), "{error:?}");
    assert!(number > 100);
    assert_eq!(prefix(&table), number);
    table.persist().unwrap();
    assert!(matches!(table.write(&numbered(number + 1)), Err(Error::NoSpace)));
    fs::remove_file(&ballast).unwrap();
    table.write(&numbered(number + 1)).unwrap();
    table.reopen().unwrap();
    assert_eq!(prefix(&table), number + 1);
}

/// Batches that free space go into the preallocated blocks of the journal when no block is free,
/// also after a restart. Other batches leave half of these blocks.
#[test]
fn what_frees_space_is_written_on_a_full_medium() {
    run_in_a_small_file_system("free_space_on_a_full_medium");
}

/// The part of the test above that runs in the small file system.
#[test]
fn free_space_on_a_full_medium() {
    let Ok(folder) = std::env::var(SMALL_FOLDER) else {
        return;
    };
    let folder = Path::new(&folder);
    let open = || FjallTable::open(&folder.join("table"), Options::default()).unwrap();
    let table = open();
    table.write(&numbered(1)).unwrap();
    fill(&folder.join("ballast"));
    let mut number = 1;
    while table.write(&numbered(number + 1)).is_ok() {
        number += 1;
    }
    assert!(number > 500, "{number} batches of 500 bytes");
    let mut table = table;
    for _ in 0..3 {
        for _ in 0..300 {
            let mut batch = numbered(number + 1);
            batch.allow_reserve();
            table.write(&batch).unwrap();
            number += 1;
        }
        table.persist().unwrap();
        assert!(matches!(table.write(&numbered(number + 1)), Err(Error::NoSpace)));
        table.close().unwrap();
        drop(table);
        // Another program takes the blocks that the close freed.
        fill(&folder.join("ballast"));
        table = open();
        assert_eq!(prefix(&table), number);
    }
    fs::remove_file(folder.join("ballast")).unwrap();
    table.resume_flushes().unwrap();
    table.write(&numbered(number + 1)).unwrap();
    assert_eq!(prefix(&table), number + 1);
}

/// The whole reserve goes to the journal, a step at a time, if no other program takes its blocks.
/// Batches that do not free space get half of it.
#[test]
fn the_reserve_goes_to_the_journal_in_steps() {
    run_in_a_small_file_system("take_blocks_from_the_reserve");
}

/// The part of the test above that runs in the small file system.
#[test]
fn take_blocks_from_the_reserve() {
    let Ok(folder) = std::env::var(SMALL_FOLDER) else {
        return;
    };
    let folder = Path::new(&folder);
    let path = folder.join("reserve");
    let open = File::options().write(true).create_new(true).open(&path).unwrap();
    let reserve = Arc::new(Reserve::open(open, path.clone(), 4 * MIB).unwrap());
    assert!(reserve.is_allocated());
    let table = FjallTable::open(&folder.join("table"), Options::default()).unwrap();
    table.set_reserve(Arc::clone(&reserve));
    fill(&folder.join("ballast"));
    let number = Cell::new(0);
    let write = |may_use_reserve: bool| {
        let mut batch = numbered(number.get() + 1);
        if may_use_reserve {
            batch.allow_reserve();
        }
        let written = table.write(&batch);
        number.set(number.get() + u64::from(written.is_ok()));
        written
    };
    while write(false).is_ok() {}
    assert_eq!(bytes_of(&path), 2 * MIB);
    write(true).unwrap();
    assert_eq!(bytes_of(&path), MIB);
    while write(true).is_ok() {}
    assert_eq!(bytes_of(&path), 0);
    assert!(matches!(write(true), Err(Error::NoSpace)));
    let number = || number.get();
    assert!(number() * 500 > 4 * MIB, "{} batches of 500 bytes", number());
    fs::remove_file(folder.join("ballast")).unwrap();
    assert!(reserve.allocate().unwrap());
    write(false).unwrap();
    assert_eq!(prefix(&table), number());
}

/// A failed flush stops the engine. Reopened on a full disk it is journal-only, and flushes its
/// memtable once there is space.
#[test]
fn a_memtable_that_cannot_be_written_stops_nobody() {
    run_in_a_small_file_system("fail_a_flush");
}

/// The part of the test above that runs in the small file system.
#[test]
fn fail_a_flush() {
    let Ok(folder) = std::env::var(SMALL_FOLDER) else {
        return;
    };
    let folder = Path::new(&folder);
    let options = Options { memory_bytes: 8 * MIB };
    let table = FjallTable::open(&folder.join("table"), options).unwrap();
    let ballast = folder.join("ballast");
    let mut number = 0;
    // Without the folder of sorted runs the first flush fails.
    let tables = folder.join("table/engine/keyspaces/1/tables");
    fs::rename(&tables, folder.join("aside")).unwrap();
    poll(|| {
        let written = table.write(&numbered(number + 1));
        number += u64::from(written.is_ok());
        written.is_err() || table.persist().is_err()
    });
    assert!(matches!(table.get(b"row"), Err(Error::Stopped)));
    fs::rename(folder.join("aside"), &tables).unwrap();
    fill(&ballast);
    table.reopen().unwrap();
    assert_eq!(prefix(&table), number);
    for _ in 0..100 {
        let mut batch = numbered(number + 1);
        batch.allow_reserve();
        table.write(&batch).unwrap();
        number += 1;
    }
    table.persist().unwrap();
    table.reopen().unwrap();
    assert_eq!(prefix(&table), number);
    let before = table.usage().disk_bytes - table.usage().journal_bytes;
    fs::remove_file(&ballast).unwrap();
    table.resume_flushes().unwrap();
    let more = number + 8_000;
    while number < more {
        table.write(&numbered(number + 1)).unwrap();
        number += 1;
    }
    poll(|| {
        table.persist().unwrap();
        table.usage().disk_bytes - table.usage().journal_bytes > before
    });
    assert_eq!(prefix(&table), number);
}

/// After a close there is next to nothing to replay, and no batch is lost.
#[test]
fn a_close_leaves_next_to_no_journal() {
    let folder = tempfile::tempdir().unwrap();
    let mut count = 0;
    for batches in [40_000, 3, 90_000, 40_000] {
        let table = FjallTable::open(folder.path(), Options::default()).unwrap();
        assert_eq!(prefix(&table), count);
        for _ in 0..batches {
            count += 1;
            table.write(&numbered(count)).unwrap();
        }
        table.close().unwrap();
        drop(table);
        let left: u64 = journals(folder.path()).iter().map(|path| bytes_of(path)).sum();
        assert!(left <= MIB, "{left} bytes of journal");
    }
    let table = FjallTable::open(folder.path(), Options::default()).unwrap();
    assert_eq!(prefix(&table), count);
}

fn journals(folder: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(folder.join("engine")).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|end| end == "jnl")).collect()
}

fn bytes_of(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// Fills the disk.
fn fill(path: &Path) {
    use std::io::Write as _;

    let mut file = File::options().append(true).create(true).open(path).unwrap();
    for part in [MIB, 4096] {
        while file.write_all(&vec![1; usize::try_from(part).unwrap()]).is_ok() {}
    }
    assert_eq!(rustix::fs::statvfs(path).unwrap().f_bavail, 0);
}

/// A limit on file sizes makes a write of the engine fail in the middle of a batch. The table
/// stops. Reopened it holds exactly the acknowledged batches.
#[test]
fn a_write_that_fails_halfway_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    // Beyond the limit the kernel sends SIGXFSZ, which would end the process.
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]);
    let status = again(&mut command, "fail_halfway", LIMITED_FOLDER, folder.path());
    assert!(status, "see the output above");
    let table = FjallTable::open(folder.path(), Options::default()).unwrap();
    assert!(prefix(&table) > 0);
}

/// The part of the test above that runs with the limit.
#[test]
fn fail_halfway() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let Ok(folder) = std::env::var(LIMITED_FOLDER) else {
        return;
    };
    let table = FjallTable::open(Path::new(&folder), Options::default()).unwrap();
    let free = getrlimit(Resource::Fsize);
    let mut number = 0;
    for bytes in [50_000, 100_000, 150_001] {
        let limit = Rlimit { current: Some(bytes), maximum: free.maximum };
        setrlimit(Resource::Fsize, limit).unwrap();
        let error = loop {
            match table.write(&numbered(number + 1)) {
                Ok(()) => number += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Io { .. }), "{error:?}");
        assert!(matches!(table.get(b"row"), Err(Error::Stopped)));
        assert!(matches!(table.write(&numbered(1)), Err(Error::Stopped)));
        assert!(matches!(table.persist(), Err(Error::Stopped)));
        setrlimit(Resource::Fsize, free).unwrap();
        table.reopen().unwrap();
        assert_eq!(prefix(&table), number);
        table.write(&numbered(number + 1)).unwrap();
        number += 1;
        table.persist().unwrap();
    }
    assert_eq!(prefix(&table), number);
}

const SMALL_FOLDER: &str = "STORE_ENGINE_SMALL_FOLDER";
const LIMITED_FOLDER: &str = "STORE_ENGINE_LIMITED_FOLDER";

/// Runs one test of this binary in a mount namespace, with a file system of 20 MiB.
fn run_in_a_small_file_system(test: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=20m none \"$STORE_ENGINE_SMALL_FOLDER\"";
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
        command
    };
    let able = unshare()
        .arg(mount)
        .env(SMALL_FOLDER, folder.path())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !able {
        println!("skipped: no file system can be mounted in a namespace here");
        return;
    }
    let mut command = unshare();
    command.arg(format!("{mount} && exec \"$0\" \"$@\""));
    assert!(again(&mut command, test, SMALL_FOLDER, folder.path()), "see the output above");
}

/// Runs one test of this binary in another process, started by `command`, with a variable set.
/// Returns whether it passed.
fn again(command: &mut Command, test: &str, variable: &str, folder: &Path) -> bool {
    command
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(variable, folder)
        .stdin(Stdio::null())
        .status()
        .unwrap()
        .success()
}

/// Batches of [`written_table`] that were persisted, and batches after those.
const SAFE: u64 = 500;
const UNSAFE: u64 = 500;

/// Creates a table of [`SAFE`] batches that its sync record covers and [`UNSAFE`] that it does not,
/// as a crash leaves it. Returns the path of its journal, the end of the safe part, and the end.
fn written_table(folder: &Path) -> (PathBuf, u64, u64) {
    let open = tempfile::tempdir().unwrap();
    let table = FjallTable::open(open.path(), Options::default()).unwrap();
    for number in 1..=SAFE {
        table.write(&numbered(number)).unwrap();
    }
    table.persist().unwrap();
    for number in SAFE + 1..=SAFE + UNSAFE {
        table.write(&numbered(number)).unwrap();
    }
    // A close flushes all rows and empties the journal.
    copy_folder(open.path(), folder);
    table.close().unwrap();
    let journal = folder.join("engine/0.jnl");
    let one = |number| journal_bytes(&numbered(number));
    let safe = (1..=SAFE).map(one).sum::<u64>();
    let end = safe + (SAFE + 1..=SAFE + UNSAFE).map(one).sum::<u64>();
    assert_eq!(
        fs::metadata(&journal).unwrap().len(),
        end,
        "the journal format of the engine changed"
    );
    (journal, safe, end)
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// Whatever is written, a close leaves an empty journal, and the next open finds every row.
#[test]
fn a_close_leaves_nothing_to_replay() {
    let folder = tempfile::tempdir().unwrap();
    for number in 1..=20 {
        let table = FjallTable::open(folder.path(), Options::default()).unwrap();
        assert_eq!(prefix(&table), number - 1);
        table.write(&numbered(number)).unwrap();
        table.close().unwrap();
        drop(table);
        let journals = fs::read_dir(folder.path().join("engine")).unwrap().map(Result::unwrap);
        let journals =
            journals.filter(|entry| entry.path().extension().is_some_and(|e| e == "jnl"));
        let lengths: Vec<u64> = journals.map(|entry| entry.metadata().unwrap().len()).collect();
        assert!(lengths.iter().all(|length| *length == 0), "{lengths:?}");
    }
}

fn journal_bytes(batch: &Batch) -> u64 {
    26 + 21 * batch.changes().len() as u64 + batch.bytes() as u64
}

/// Returns a batch of two rows: the count, and the row with that number.
fn numbered(number: u64) -> Batch {
    let mut batch = Batch::new();
    batch.put(b"count".to_vec(), number.to_le_bytes().to_vec());
    batch.put(format!("row{number:09}").into_bytes(), vec![number as u8; 400]);
    batch
}

/// Returns the number of batches in the table. Checks that they are the first ones, each whole.
fn prefix(table: &dyn Table) -> u64 {
    let mut count = 0;
    let mut rows = 0;
    let mut visit = |key: &[u8], value: &[u8]| {
        if key == b"count" {
            count = u64::from_le_bytes(value.try_into().unwrap());
        } else {
            rows += 1;
            assert_eq!(key, format!("row{rows:09}").into_bytes());
            assert_eq!(value, vec![rows as u8; 400]);
        }
        ControlFlow::Continue(())
    };
    match table.scan(&[], &[], &mut visit) {
        Ok(()) => {}
        Err(error) => panic!("{error}"),
    }
    assert_eq!(count, rows);
    count
}

fn assert_corrupt(folder: &Path, expected: &Path) {
    match FjallTable::open(folder, Options::default()) {
        Err(Error::Corrupt { path, .. }) => {
            assert_eq!(
                path,
                fs::canonicalize(folder).unwrap().join(expected.strip_prefix(folder).unwrap())
            );
        }
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("the table opened"),
    }
}

/// Returns every file below `folder` with its bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.append(&mut self::files(&path));
        } else {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    files
}

fn poll(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited too long");
        thread::sleep(Duration::from_millis(2));
    }
}
