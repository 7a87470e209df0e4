//! Damages a volume on purpose.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use pelago_store::key::{self, Key};
use pelago_store::table::fjall::{FjallTable, Options};
use pelago_store::table::{Batch, Table, TableRead};
use pelago_store::volume;
use pelago_wire::InodeId;

use super::volume::Volume;

/// Damages the row of the file `name` in the root directory of a volume that is down.
pub(crate) fn change_row(volume: &Volume, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    assert_eq!(volume::lock_holder(&volume.dir), None);
    let table = FjallTable::open(&volume.dir.join("table"), Options::default()).unwrap();
    let range = key::names_of_dir(InodeId::ROOT);
    let mut found = None;
    let visit = &mut |key: &[u8], value: &[u8]| {
        if key::parse_name(key).is_some_and(|(_, _, found)| found == name.as_bytes()) {
            found = Some((key.to_vec(), value.to_vec()));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    };
    table.scan(&range.from, &range.to, visit).unwrap();
    let (key, mut value) = found.expect("the file has a row");
    change(&mut value);
    let mut batch = Batch::new();
    batch.put(key, value);
    table.write(&batch).unwrap();
    table.close().unwrap();
}

/// Returns the journal that the engine appends to.
pub(crate) fn newest_journal(volume: &Volume) -> PathBuf {
    let mut found = Vec::new();
    for entry in fs::read_dir(volume.dir.join("table/engine")).unwrap().map(Result::unwrap) {
        if entry.path().extension().is_some_and(|end| end == "jnl") {
            found.push((entry.metadata().unwrap().len(), entry.path()));
        }
    }
    found.sort();
    found.pop().expect("there is a journal").1
}

/// Deletes all rows of names `name` from the table of the volume in `dir`, which is down.
pub(crate) fn delete_names(dir: &Path, name: &str) {
    assert_eq!(volume::lock_holder(dir), None);
    let table = FjallTable::open(&dir.join("table"), Options::default()).unwrap();
    let mut batch = Batch::new();
    let visit = &mut |row: &[u8], _: &[u8]| {
        let found = match Key::parse(row) {
            Some(Key::Name { name, .. } | Key::ParentPointer { name, .. }) => Some(name),
            _ => None,
        };
        if found == Some(name.as_bytes()) {
            batch.delete(row.to_vec());
        }
        ControlFlow::Continue(())
    };
    table.scan(&[], &[], visit).unwrap();
    assert!(batch.bytes() > 0, "the table has a name {name}");
    table.write(&batch).unwrap();
    table.close().unwrap();
}
