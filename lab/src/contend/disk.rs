//! The disk below the volume, written as a group commit writes it.

use std::fs::File;
use std::io::Write;
use std::thread;
use std::time::Duration;

use super::kinds;
use crate::kit::load::Worker;
use crate::kit::report::failed;

/// Bytes of a sync, and the time between two.
const SYNCED: usize = 4096;
const BETWEEN_SYNCS: Duration = Duration::from_millis(100);

/// Writes and syncs a file beside the volume until the time is over.
pub(super) fn sync(worker: &mut Worker) -> Result<(), String> {
    let path = worker.folder.join("synced");
    let mut file = File::create(&path).map_err(|why| failed(&path, &why))?;
    while worker.goes_on() {
        let synced = worker
            .timed(kinds::DISK, || file.write_all(&[0; SYNCED]).and_then(|()| file.sync_data()));
        synced.map_err(|why| failed(&path, &why))?;
        thread::sleep(BETWEEN_SYNCS);
    }
    Ok(())
}
