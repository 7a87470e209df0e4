//! Measures the table on one thread: `cargo run --release -p pelago-store
//! --example put -- [ROWS] [FOLDER]`.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use pelago_store::table::fjall::{FjallTable, Options};
use pelago_store::table::{Batch, Pressure, Table, TableRead};
use rustix::time::{ClockId, clock_gettime};

/// Rows between two persists: about as many as a busy server writes in 100 ms.
const PERSIST_EVERY: u64 = 20_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rows: u64 = arguments.next().map_or(1_000_000, |count| count.parse().expect("a number"));
    let scratch = tempfile::tempdir().expect("a folder for the table");
    let folder = arguments.next().map_or_else(|| scratch.path().to_owned(), PathBuf::from);
    let table = FjallTable::open(&folder.join("table"), Options::default()).expect("a table");

    report("put", rows, |at| {
        let mut batch = Batch::new();
        batch.put(key(at), vec![at as u8; 100]);
        table.write(&batch).expect("a put");
        if at % PERSIST_EVERY == PERSIST_EVERY - 1 {
            table.persist().expect("a persist");
        }
    });
    report("put of 4 in a batch", rows / 4, |at| {
        let mut batch = Batch::new();
        for part in 0..4 {
            batch.put(key(rows + at * 4 + part), vec![at as u8; 100]);
        }
        table.write(&batch).expect("a batch");
        if at % PERSIST_EVERY == PERSIST_EVERY - 1 {
            table.persist().expect("a persist");
        }
    });
    table.persist().expect("a persist");
    while table.pressure() == Pressure::High {
        std::thread::yield_now();
    }
    println!("{:?}", table.usage());
    report("get, miss", rows, |at| {
        let mut absent = key(at);
        absent.push(0);
        assert!(table.get(&absent).expect("a get").is_none());
    });
    report("get, hit", rows, |at| {
        assert!(table.get(&key(at)).expect("a get").is_some());
    });
    let recent = 2 * rows - 1;
    report("get, recent", rows, |at| {
        assert!(table.get(&key(recent - at % 1_000)).expect("a get").is_some());
    });
    report("snapshot", rows, |_| drop(table.snapshot().expect("a snapshot")));
    report("scan of 1 row", rows / 10, |at| {
        let from = key(at);
        table.scan(&from, &[], &mut |_, _| ControlFlow::Break(())).expect("a scan");
    });
    let mut seen = 0;
    report("scan of all rows", 1, |_| {
        let mut visit = |_: &[u8], _: &[u8]| {
            seen += 1;
            ControlFlow::Continue(())
        };
        table.scan(&[], &[], &mut visit).expect("a scan");
    });
    println!("{seen} rows");
}

/// Returns a key like those of a directory: a shared prefix, then a hash.
fn key(at: u64) -> Vec<u8> {
    let mut key = b"\x02directory".to_vec();
    key.extend(at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key
}

fn report(name: &str, count: u64, mut call: impl FnMut(u64)) {
    let wall = Instant::now();
    let cpu = seconds(ClockId::ThreadCPUTime);
    let all = seconds(ClockId::ProcessCPUTime);
    for at in 0..count {
        call(at);
    }
    let wall = wall.elapsed().as_secs_f64();
    let cpu = seconds(ClockId::ThreadCPUTime) - cpu;
    let all = seconds(ClockId::ProcessCPUTime) - all;
    let each = 1e6 / count as f64;
    println!(
        "{name:20} {:9.0}/s  {:7.2} µs wall  {:7.2} µs CPU of the caller  {:7.2} of all threads",
        count as f64 / wall,
        wall * each,
        cpu * each,
        all * each,
    );
}

fn seconds(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
