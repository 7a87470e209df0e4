//! The opening of a volume's table, also on a full disk.

use std::path::Path;
use std::sync::Arc;

use pelago_store::folder::Folder;
use pelago_store::reserve::Reserve;
use pelago_store::table;
use pelago_store::table::fjall::FjallTable;

use super::{Options, StartError};
use crate::memory::MemoryLimits;

/// Opens the table in `folder` of the volume in `dir`. On a full disk it tries a second time with
/// the space of the reserve, from which the table takes blocks later too.
pub(super) fn open_table(
    folder: &Folder,
    dir: &Path,
    reserve: &Arc<Reserve>,
    options: &Options,
) -> Result<Arc<FjallTable>, StartError> {
    let table_options = MemoryLimits::of(options.memory_bytes).table_options();
    let opened = match FjallTable::open_in(folder, table_options) {
        Err(table::Error::NoSpace) if reserve.release()? => {
            FjallTable::open_in(folder, table_options)
        }
        opened => opened,
    };
    let table = opened.map_err(|error| StartError::from_table(dir, error))?;
    table.set_reserve(Arc::clone(reserve));
    Ok(Arc::new(table))
}
