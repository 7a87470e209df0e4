//! A writer is killed with SIGKILL. Afterwards every acknowledged batch is there, and there is no
//! gap before any batch. The writer is this test binary, started again for one test.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pelago_store::table::fjall::{FjallTable, Options};
use pelago_store::table::{Batch, Pressure, Table, TableRead};

/// Environment variables that tell the writer its folder and the length of its values.
const FOLDER: &str = "STORE_CRASH_FOLDER";
const VALUE_BYTES: &str = "STORE_CRASH_VALUE_BYTES";

/// Rows of older batches that stay: each batch deletes the row this many batches back.
const WINDOW: u64 = 2_000;
const DEADLINE: Duration = Duration::from_secs(300);

/// Five kills of writers to one table, each after a number of batches.
#[test]
fn every_acknowledged_batch_survives_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let mut from = 0;
    for more in [1, 777, 2_113, 3_001, 1_499] {
        from = kill_and_check(folder.path(), 300, from + more);
    }
}

/// As above, with so many bytes that the engine starts new journals and deletes old ones.
#[test]
fn journals_that_follow_each_other_survive_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let mut from = 0;
    for more in [4_300, 900, 3_700] {
        from = kill_and_check(folder.path(), 16_000, from + more);
    }
    let journals = fs::read_dir(folder.path().join("table/engine")).unwrap();
    let names = journals.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let last = names.filter_map(|name| name.strip_suffix(".jnl")?.parse::<u32>().ok()).max();
    assert!(last.unwrap() > 0, "no journal followed the first");
}

/// The writer that the other tests kill. Run as a test, it does nothing.
#[test]
fn write_until_killed() {
    let (Ok(folder), Ok(bytes)) = (std::env::var(FOLDER), std::env::var(VALUE_BYTES)) else {
        return;
    };
    let folder = Path::new(&folder);
    let bytes = bytes.parse().unwrap();
    let acknowledged = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(folder.join("acknowledged"))
        .unwrap();
    let table = open(folder);
    let mut number = newest(&table);
    loop {
        number += 1;
        table.write(&batch(number, bytes)).unwrap();
        acknowledged.write_all_at(&number.to_le_bytes(), 0).unwrap();
        if number.is_multiple_of(64) {
            table.persist().unwrap();
            while table.pressure() == Pressure::High {
                thread::yield_now();
            }
        }
    }
}

/// Runs a writer until batch `until` is acknowledged, kills it and checks the table. Returns the
/// number of the newest batch.
fn kill_and_check(folder: &Path, value_bytes: usize, until: u64) -> u64 {
    let mut writer = start_writer(folder, value_bytes);
    let deadline = Instant::now() + DEADLINE;
    while acknowledged(folder) < until {
        assert!(writer.try_wait().unwrap().is_none(), "the writer ended by itself");
        assert!(Instant::now() < deadline, "the writer hangs");
        thread::sleep(Duration::from_millis(1));
    }
    writer.kill().unwrap();
    writer.wait().unwrap();
    let acknowledged = acknowledged(folder);
    let table = open(folder);
    let newest = newest(&table);
    assert!(newest >= acknowledged, "batch {acknowledged} was done, {newest} is the newest");
    assert!(newest <= acknowledged + 1, "one batch at most is done and not acknowledged");
    check(&table, newest, value_bytes);
    newest
}

fn start_writer(folder: &Path, value_bytes: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "write_until_killed", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(VALUE_BYTES, value_bytes.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn acknowledged(folder: &Path) -> u64 {
    fs::read(folder.join("acknowledged"))
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

fn open(folder: &Path) -> FjallTable {
    // Little memory means many seals, flushes and compactions.
    FjallTable::open(&folder.join("table"), Options { memory_bytes: 12 << 20 }).unwrap()
}

fn newest(table: &FjallTable) -> u64 {
    table.get(b"newest").unwrap().map_or(0, |value| number(&value))
}

/// Returns a batch of three changes: the newest number, its row, and the deletion of an old row.
fn batch(number: u64, value_bytes: usize) -> Batch {
    let mut batch = Batch::new();
    batch.put(row(number), vec![number as u8; value_bytes]);
    if number > WINDOW {
        batch.delete(row(number - WINDOW));
    }
    batch.put(b"newest".to_vec(), number.to_le_bytes().to_vec());
    batch
}

/// Checks that the table has exactly the rows of the batches up to `newest`, each with its value.
fn check(table: &FjallTable, newest: u64, value_bytes: usize) {
    let mut next = newest.saturating_sub(WINDOW) + 1;
    let mut visit = |key: &[u8], value: &[u8]| {
        assert_eq!(key, row(next), "of {newest}");
        assert_eq!(value, vec![next as u8; value_bytes]);
        next += 1;
        ControlFlow::Continue(())
    };
    table.scan(b"row", b"rox", &mut visit).unwrap();
    assert_eq!(next, newest + 1);
}

fn row(number: u64) -> Vec<u8> {
    format!("row{number:012}").into_bytes()
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().unwrap())
}
