//! The contract of every `Table`, run against the engine and the fake.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use pelago_store::table::fake::FakeTable;
use pelago_store::table::fjall::{FjallTable, Options};
use pelago_store::table::{Batch, Error, Pressure, SharedTable, Snapshot, TableRead};

type Row = (Vec<u8>, Vec<u8>);

/// A new table, and the folder that is removed with it.
struct Subject {
    table: SharedTable,
    _folder: Option<tempfile::TempDir>,
}

fn fake() -> Subject {
    Subject { table: Arc::new(FakeTable::new()), _folder: None }
}

/// Returns a table with little memory, so that memtables are sealed during a test.
fn engine() -> Subject {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { memory_bytes: 8 << 20 };
    let table = FjallTable::open(&folder.path().join("table"), options).unwrap();
    Subject { table: Arc::new(table), _folder: Some(folder) }
}

macro_rules! over_both {
    ($($name:ident),* $(,)?) => {
        mod over_the_engine { $(#[test] fn $name() { super::$name(super::engine); })* }
        mod over_the_fake { $(#[test] fn $name() { super::$name(super::fake); })* }
    };
}

over_both!(
    rows_are_read_back_in_key_order,
    a_range_is_half_open_and_an_empty_end_is_the_end,
    a_visitor_that_breaks_is_not_called_again,
    the_last_change_of_a_key_in_a_batch_wins,
    an_empty_batch_changes_nothing,
    big_values_come_back,
    a_visitor_may_read_and_take_snapshots,
    a_snapshot_does_not_change,
    a_batch_is_seen_whole_by_everyone,
    a_reopened_table_has_every_row,
    ingested_rows_are_rows,
    rows_that_cannot_be_ingested_change_nothing,
    an_idle_table_is_under_no_pressure,
    random_operations_agree_with_a_map,
);

fn rows_are_read_back_in_key_order(fresh: fn() -> Subject) {
    let Subject { table, _folder } = &fresh();
    for key in [&b"b"[..], b"a", b"\xff", b"aa", b"\x00"] {
        table.write(&put(key, key)).unwrap();
    }
    assert_eq!(table.get(b"aa").unwrap().as_deref(), Some(&b"aa"[..]));
    assert_eq!(table.get(b"ab").unwrap(), None);
    assert_eq!(table.get(b"").unwrap(), None);
    let keys: Vec<_> = all(table).into_iter().map(|row| row.0).collect();
    assert_eq!(keys, [&b"\x00"[..], b"a", b"aa", b"b", b"\xff"]);
}

fn a_range_is_half_open_and_an_empty_end_is_the_end(fresh: fn() -> Subject) {
    let Subject { table, _folder } = &fresh();
    let mut batch = Batch::new();
    for key in 0..10_u8 {
        batch.put(vec![key], vec![key]);
    }
    table.write(&batch).unwrap();
    let keys = |from: &[u8], to: &[u8]| {
        let rows = range(&**table, from, to);
        let snapshot = table.snapshot().unwrap();
        assert_eq!(rows, range(&*snapshot, from, to));
        rows.into_iter().map(|row| row.0[0]).collect::<Vec<_>>()
    };
    assert_eq!(keys(&[3], &[6]), [3, 4, 5]);
    assert_eq!(keys(&[8], &[]), [8, 9]);
    assert_eq!(keys(&[], &[2]), [0, 1]);
    assert_eq!(keys(&[4], &[4]), []);
    assert_eq!(keys(&[6], &[3]), []);
    assert_eq!(keys(&[7, 0], &[8, 0]), [8]);
    assert_eq!(keys(&[10], &[]), []);
}

fn a_visitor_that_breaks_is_not_called_again(fresh: fn() -> Subject) {
    let Subject { table, _folder } = &fresh();
    let mut batch = Batch::new();
    for key in 0..10_u8 {
        batch.put(vec![key], vec![]);
    }
    table.write(&batch).unwrap();
    let mut seen = 0;
    let mut visit = |_: &[u8], _: &[u8]| {
        seen += 1;
        if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    table.scan(&[], &[], &mut visit).unwrap();
    assert_eq!(seen, 3);
}

fn the_last_change_of_a_key_in_a_batch_wins(fresh: fn() -> Subject) {
    let Subject { table, _folder } = &fresh();
    table.write(&put(b"gone", b"old")).unwrap();
    for extra in [0_u8, 100] {
        let mut batch = Batch::new();
        for key in 0..extra {
            batch.put(vec![b'x', key], vec![]);
        }
        batch.put(b"twice".to_vec(), b"first".to_vec());
        batch.put(b"gone".to_vec(), b"new".to_vec());
        batch.delete(b"back".to_vec());
        batch.put(b"twice".to_vec(), vec![extra]);
        batch.delete(b"gone".to_vec());
        batch.put(b"back".to_vec(), b"here".to_vec());
        table.write(&batch).unwrap();
        assert_eq!(table.get(b"twice").unwrap(), Some(vec![extra]));
        assert_eq!(table.get(b"gone").unwrap(), None);
        assert_eq!(table.get(b"back").unwrap().as_deref(), Some(&b"here"[..]));
    }
    let before = all(table);
    table.reopen().unwrap();
    assert_eq!(all(table), before);
}

fn an_empty_batch_changes_nothing(fresh: fn() -> Subject) {
    let Subject { table, _folder } = &fresh();
    table.write(&Batch::new()).unwrap();
    table.persist().unwrap();
    assert_eq!(all(table), []);
}

fn big_values_come_back(fresh: fn() -> Subject) {
    let Subject { table, _folder } = &fresh();
    let mut batch = Batch::new();
    let value = |seed: u32, len: u32| -> Vec<u8> {
        (0..len).map(|at| (at.wrapping_mul(seed) >> 7) as u8).collect()
    };
    for seed in 1..20 {
        batch.put(seed.to_string().into_bytes(), value(seed, 64 << 10));
    }
    batch.put(b"large".to_vec(), value(77, 3 << 20));
    batch.put(b"none".to_vec(), vec![]);
    batch.put(vec![b'k'; 65_535], b"long key".to_vec());
    table.write(&batch).unwrap();
    table.persist().unwrap();
    table.reopen().unwrap();
    for seed in 1..20 {
        let key = seed.to_string().into_bytes();
        assert_eq!(table.get(&key).unwrap(), Some(value(seed, 64 << 10)));
    }
    assert_eq!(table.get(b"large").unwrap(), Some(value(77, 3 << 20)));
    assert_eq!(table.get(b"none").unwrap(), Some(vec![]));
    assert_eq!(table.get(&[b'k'; 65_535]).unwrap().as_deref(), Some(&b"long key"[..]));
}

fn a_visitor_may_read_and_take_snapshots(fresh: fn() -> Subject) {
    let Subject { table, _folder } = &fresh();
    let mut batch = Batch::new();
    for key in 0..50_u8 {
        batch.put(vec![key], vec![key]);
    }
    table.write(&batch).unwrap();
    let mut visit = |key: &[u8], value: &[u8]| {
        assert_eq!(table.get(key).unwrap().as_deref(), Some(value));
        assert_eq!(table.snapshot().unwrap().get(key).unwrap().as_deref(), Some(value));
        ControlFlow::Continue(())
    };
    table.scan(&[], &[], &mut visit).unwrap();
}

fn a_snapshot_does_not_change(fresh: fn() -> Subject) {
    let Subject { table, _folder } = &fresh();
    table.write(&put(b"kept", b"1")).unwrap();
    table.write(&put(b"lost", b"1")).unwrap();
    let before = table.snapshot().unwrap();
    let rows = all(table);
    let mut batch = put(b"kept", b"2");
    batch.delete(b"lost".to_vec());
    batch.put(b"more".to_vec(), b"2".to_vec());
    table.write(&batch).unwrap();
    // Enough to seal memtables and compact runs while the snapshot exists.
    for turn in 0..64_u8 {
        let mut batch = Batch::new();
        for key in 0..64_u8 {
            batch.put(vec![b'm', key], vec![turn; 2048]);
        }
        table.write(&batch).unwrap();
        table.persist().unwrap();
    }
    assert_eq!(range(&*before, &[], &[]), rows);
    assert_eq!(before.get(b"kept").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(before.get(b"more").unwrap(), None);
    assert_eq!(table.get(b"kept").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(table.get(b"lost").unwrap(), None);
}

/// Every batch writes one number to sixteen keys. Readers of every kind see one number, never an
/// older one than before, also while memtables are sealed and flushed.
fn a_batch_is_seen_whole_by_everyone(fresh: fn() -> Subject) {
    const BATCHES: u64 = 1_500;
    let Subject { table, _folder } = &fresh();
    let done = AtomicBool::new(false);
    let looks = AtomicU64::new(0);
    let numbers = |number: u64| {
        let mut batch = Batch::new();
        for key in 0..16_u8 {
            let mut value = number.to_le_bytes().to_vec();
            value.resize(1024, 0);
            batch.put(vec![key], value);
        }
        batch
    };
    table.write(&numbers(0)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=BATCHES {
                table.write(&numbers(number)).unwrap();
                if number.is_multiple_of(100) {
                    table.persist().unwrap();
                }
            }
            done.store(true, Ordering::Release);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::Acquire) || looks.load(Ordering::Relaxed) == 0 {
                    last = look(table, last);
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(look(table, BATCHES), BATCHES);
}

fn look(table: &SharedTable, last: u64) -> u64 {
    let first = number(&table.get(&[0]).unwrap().unwrap());
    let other = number(&table.get(&[15]).unwrap().unwrap());
    assert!(last <= first && first <= other, "gets: {last}, {first}, {other}");
    let snapshot = table.snapshot().unwrap();
    let scanned = one_number(&range(&**table, &[], &[]));
    assert!(other <= scanned, "a scan after a get: {other}, {scanned}");
    let seen = one_number(&range(&*snapshot, &[], &[]));
    assert!(other <= seen && seen <= scanned, "a snapshot between: {other}, {seen}, {scanned}");
    assert_eq!(number(&snapshot.get(&[7]).unwrap().unwrap()), seen);
    scanned
}

fn one_number(rows: &[Row]) -> u64 {
    assert_eq!(rows.len(), 16);
    let one = number(&rows[0].1);
    assert!(rows.iter().all(|row| number(&row.1) == one), "a batch in part at {one}");
    one
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

fn a_reopened_table_has_every_row(fresh: fn() -> Subject) {
    let Subject { table, _folder } = &fresh();
    for turn in 0..3_u8 {
        for key in 0..200_u8 {
            table.write(&put(&[key], &[turn; 512])).unwrap();
        }
        let before = all(table);
        assert_eq!(before.len(), 200);
        table.reopen().unwrap();
        assert_eq!(all(table), before);
    }
}

fn ingested_rows_are_rows(fresh: fn() -> Subject) {
    let Subject { table, _folder } = &fresh();
    table.write(&put(b"a", b"old")).unwrap();
    table.write(&put(b"z", b"old")).unwrap();
    let before = table.snapshot().unwrap();
    let rows: Vec<Row> = (0..5_000_u32)
        .map(|at| (format!("m{at:06}").into_bytes(), at.to_le_bytes().to_vec()))
        .collect();
    table.ingest(&mut rows.iter().cloned()).unwrap();
    assert_eq!(range(&*before, &[], &[]).len(), 2);
    assert_eq!(range(&**table, b"m", b"n"), rows);
    let mut batch = put(b"m000007", b"new");
    batch.delete(b"m000008".to_vec());
    table.write(&batch).unwrap();
    assert_eq!(table.get(b"m000007").unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!(table.get(b"m000008").unwrap(), None);
    assert_eq!(table.get(b"a").unwrap().as_deref(), Some(&b"old"[..]));
    table.ingest(&mut std::iter::empty()).unwrap();
    let before = all(table);
    assert_eq!(before.len(), 5_001);
    table.reopen().unwrap();
    assert_eq!(all(table), before);
}

fn rows_that_cannot_be_ingested_change_nothing(fresh: fn() -> Subject) {
    let Subject { table, _folder } = &fresh();
    table.write(&put(b"m", b"old")).unwrap();
    let before = all(table);
    for keys in [["b", "a"], ["a", "a"], ["l", "m"], ["m", "n"], ["", "a"]] {
        let mut rows = keys.iter().map(|key| (key.as_bytes().to_vec(), vec![1]));
        let ingested = table.ingest(&mut rows);
        assert!(matches!(ingested, Err(Error::Unsorted)), "{keys:?}: {ingested:?}");
        assert_eq!(all(table), before);
    }
    table.reopen().unwrap();
    assert_eq!(all(table), before);
}

fn an_idle_table_is_under_no_pressure(fresh: fn() -> Subject) {
    let Subject { table, _folder } = &fresh();
    table.write(&put(b"a", b"b")).unwrap();
    table.persist().unwrap();
    assert_eq!(table.pressure(), Pressure::None);
    assert!(table.usage().memory_bytes > 0);
}

#[derive(Debug, Clone)]
enum Op {
    Write(Vec<(u8, Option<Vec<u8>>)>),
    Scan(u8, Option<u8>),
    Hold,
    Check,
    Persist,
    Reopen,
    Ingest(Vec<u8>),
}

fn op() -> impl Strategy<Value = Op> {
    let value = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40));
    let changes = proptest::collection::vec((0..24_u8, value), 1..14);
    prop_oneof![
        10 => changes.prop_map(Op::Write),
        4 => (0..24_u8, proptest::option::of(0..24_u8)).prop_map(|(from, to)| Op::Scan(from, to)),
        2 => Just(Op::Hold),
        3 => Just(Op::Check),
        2 => Just(Op::Persist),
        1 => Just(Op::Reopen),
        1 => proptest::collection::vec(0..24_u8, 0..6).prop_map(Op::Ingest),
    ]
}

fn random_operations_agree_with_a_map(fresh: fn() -> Subject) {
    let config = Config { cases: 24, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let ops = proptest::collection::vec(op(), 1..60);
    runner
        .run(&ops, |ops| {
            let Subject { table, _folder } = &fresh();
            run_ops(table, &ops);
            Ok(())
        })
        .unwrap();
}

fn run_ops(table: &SharedTable, ops: &[Op]) {
    let mut model = BTreeMap::new();
    let mut held: Option<(Snapshot, Vec<Row>)> = None;
    for op in ops {
        match op {
            Op::Write(changes) => {
                let mut batch = Batch::new();
                for (key, value) in changes {
                    match value {
                        Some(value) => {
                            batch.put(vec![*key], value.clone());
                            model.insert(vec![*key], value.clone());
                        }
                        None => {
                            batch.delete(vec![*key]);
                            model.remove(&vec![*key]);
                        }
                    }
                }
                table.write(&batch).unwrap();
                for (key, _) in changes {
                    assert_eq!(table.get(&[*key]).unwrap().as_ref(), model.get(&vec![*key]));
                }
            }
            Op::Scan(from, to) => {
                let to = to.map_or_else(Vec::new, |to| vec![to]);
                let inside = |key: &Vec<u8>| *key >= vec![*from] && (to.is_empty() || *key < to);
                let expected: Vec<_> =
                    rows_of(&model).into_iter().filter(|r| inside(&r.0)).collect();
                assert_eq!(range(&**table, &[*from], &to), expected);
            }
            Op::Hold => held = Some((table.snapshot().unwrap(), rows_of(&model))),
            Op::Check => {
                if let Some((snapshot, rows)) = &held {
                    assert_eq!(&range(&**snapshot, &[], &[]), rows);
                }
                assert_eq!(all(table), rows_of(&model));
            }
            Op::Persist => table.persist().unwrap(),
            Op::Reopen => {
                held = None;
                table.reopen().unwrap();
            }
            Op::Ingest(keys) => {
                let sorted = keys.windows(2).all(|pair| pair[0] < pair[1]);
                let absent = keys.iter().all(|key| !model.contains_key(&vec![*key]));
                let rows: Vec<Row> = keys.iter().map(|key| (vec![*key], vec![9, *key])).collect();
                let ingested = table.ingest(&mut rows.iter().cloned());
                assert_eq!(ingested.is_ok(), sorted && absent);
                if ingested.is_ok() {
                    model.extend(rows);
                }
            }
        }
    }
    assert_eq!(all(table), rows_of(&model));
}

fn rows_of(model: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<Row> {
    model.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn put(key: &[u8], value: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.put(key.to_vec(), value.to_vec());
    batch
}

fn all(table: &SharedTable) -> Vec<Row> {
    range(&**table, &[], &[])
}

fn range(table: &dyn TableRead, from: &[u8], to: &[u8]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        rows.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    table.scan(from, to, &mut visit).unwrap();
    rows
}
