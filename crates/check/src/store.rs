//! The check of a volume on a shared store: it takes the baton as a server does, so that no server
//! owns the volume meanwhile.

use std::io;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

use pelago_store::content::ContentStore;
use pelago_store::owner::{Beat, Candidate, LockId, Look, ProcessId, ProcessRecord, boot_id};
use pelago_store::volume::{SharedOptions, Volume};

use super::{CheckError, Parts, with_table};

/// Takes the volume of a store as a server does, runs `work` with a copy of its rows, and releases
/// the volume unchanged.
///
/// # Errors
/// [`CheckError::Owned`] if a server owns the volume, or may.
pub(super) fn with_store<T>(
    dir: &Path,
    work: impl FnOnce(Parts<'_>, &Volume) -> Result<T, CheckError>,
) -> Result<T, CheckError> {
    let volume = Volume::open_or_create_shared(dir, SharedOptions::default())?;
    let record = ProcessRecord {
        key: "check".to_owned(),
        // A server that finds the volume taken shows this address.
        address: "check@localhost:0".to_owned(),
        boot: boot_id().map_err(CheckError::System)?,
        // This process holds no lock, so the lock must not prove its end to another process.
        lock: no_lock().map_err(CheckError::System)?,
    };
    let beat = Beat::begin(volume.folder(), &record)?;
    let checked = with_beat(&beat, || {
        let owned = || CheckError::Owned { path: dir.into() };
        let mut candidate = Candidate::new(volume.folder(), beat.process(), record.clone());
        let Look::Free(claim) = candidate.look()? else { return Err(owned()) };
        let taken = claim.take()?.ok_or_else(owned)?;
        let baton = taken.baton();
        let content = ContentStore::open_unchanged(volume.content());
        let checked = content
            .map_err(CheckError::from)
            .and_then(|content| with_table(volume, taken.folder(), &content, work));
        // The copy is not marked as ready: the next owner takes the rows of the last one.
        baton.release()?;
        checked
    });
    beat.end();
    checked
}

/// Returns the id of a lock that no process has or had.
fn no_lock() -> io::Result<LockId> {
    let random = ProcessId::random()?.to_string();
    Ok(LockId { device: 0, inode: u64::from_str_radix(&random, 16).unwrap_or_default() })
}

/// Runs `work` while the beat goes on, so that no server takes this process for dead.
fn with_beat<T>(
    beat: &Beat,
    work: impl FnOnce() -> Result<T, CheckError>,
) -> Result<T, CheckError> {
    let (ended, watch) = channel::<()>();
    thread::scope(|scope| {
        let renew = move || {
            let goes_on = |pause| watch.recv_timeout(pause) == Err(RecvTimeoutError::Timeout);
            // A server may take the volume meanwhile: the release of the baton fails then.
            let _fenced = beat.run(goes_on);
        };
        let renewing = thread::Builder::new().name("beat".to_owned()).spawn_scoped(scope, renew);
        renewing.map_err(CheckError::System)?;
        let done = work();
        drop(ended);
        done
    })
}
