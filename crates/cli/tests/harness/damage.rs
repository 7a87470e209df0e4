//! Damages a volume on purpose.

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

use pelago_store::table::fjall::{FjallTable, Options};
use pelago_store::table::{Batch, Table, TableRead};
use pelago_store::{key, volume};
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
