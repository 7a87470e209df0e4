//! The folder of the one shard: its baton, and the engine's folders of its runs.

use std::io::{Read as _, Write as _};
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;

use super::error::OwnerError;
use super::names::{BatonName, RunName};
use super::{FIRST_SHARD, process_record};
use crate::folder::{Folder, FolderError};
use crate::volume::layout::{CONTENT, SHARD};

/// The file that marks an engine's folder as whole. It holds the boot id of its owner's machine.
pub(super) const READY: &str = "ready";
/// The file that marks an engine's folder whose owner has ended, after all its writes were safe.
pub(super) const CLOSED: &str = "closed";
/// The file that marks a shard of which a run was ready once.
const BEGUN: &str = "begun";
/// Most listings of a folder whose one file is being renamed: a listing may show it twice, or not
/// at all.
const LOOKS: u32 = 6;
/// The pause between two such listings.
const PAUSE: Duration = Duration::from_millis(20);

/// Opens the folder of the shard. It is opened at each use: a store that was unmounted meanwhile,
/// and mounted again, is another folder.
pub(super) fn open(store: &Folder) -> Result<Folder, OwnerError> {
    Ok(store.open_folder(SHARD)?.open_folder(FIRST_SHARD)?)
}

/// Returns the batons that one listing shows.
pub(super) fn batons(shard: &Folder) -> Result<Vec<BatonName>, OwnerError> {
    let names = shard.entries()?;
    Ok(names.iter().filter_map(|name| BatonName::parse(name.to_str()?)).collect())
}

/// Returns the baton.
///
/// # Errors
/// [`OwnerError::Corrupt`] if there is none, or more than one, in several listings.
pub(super) fn baton(shard: &Folder) -> Result<BatonName, OwnerError> {
    let mut found = Vec::new();
    for look in 0..LOOKS {
        if look > 0 {
            // A rename that went on during the listing is over soon, and no event reports when.
            thread::sleep(PAUSE);
        }
        found = batons(shard)?;
        if let [baton] = found[..] {
            return Ok(baton);
        }
    }
    let what = match found.len() {
        0 => "its baton is missing: no file says who owns it",
        _ => "it has more than one baton",
    };
    Err(OwnerError::corrupt(shard.path(), what))
}

/// Returns the batons of the first listing that shows any, of several listings; empty if none does.
pub(super) fn batons_if_any(shard: &Folder) -> Result<Vec<BatonName>, OwnerError> {
    for look in 0..LOOKS {
        if look > 0 {
            // The file may be between two names: another look comes after its rename.
            thread::sleep(PAUSE);
        }
        let found = batons(shard)?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// Renames a file in a folder. Returns false if there is no file with the old name.
pub(super) fn rename(folder: &Folder, from: &str, to: &str) -> Result<bool, OwnerError> {
    match folder.rename(from, to) {
        Ok(()) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns the engine's folders.
pub(super) fn runs(shard: &Folder) -> Result<Vec<RunName>, OwnerError> {
    let names = shard.entries()?;
    Ok(names.iter().filter_map(|name| RunName::parse(name.to_str()?)).collect())
}

/// Returns the newest engine's folder that is whole, of an epoch of at most `epoch`.
pub(super) fn newest_ready(shard: &Folder, epoch: u32) -> Result<Option<Folder>, OwnerError> {
    let mut runs = runs(shard)?;
    runs.retain(|run| run.epoch <= epoch);
    runs.sort_unstable();
    for run in runs.iter().rev() {
        match shard.open_folder(&run.to_string()) {
            Ok(folder) if is_ready(&folder)? => return Ok(Some(folder)),
            Ok(_) => {}
            // A newer owner has just removed it, because its own folder is whole.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// Returns whether an engine's folder is whole.
pub(super) fn is_ready(run: &Folder) -> Result<bool, OwnerError> {
    has_mark(run, READY)
}

/// Returns whether the bytes of content files may be incomplete for a taker on the machine with
/// this boot id: the owner of `run` may have written some that are in the page cache of another
/// machine, or were in one that has lost its power.
pub(super) fn may_lack_bytes(run: &Folder, boot: &str) -> Result<bool, OwnerError> {
    if has_mark(run, CLOSED)? {
        return Ok(false);
    }
    let text = match read_text(run, READY) {
        // The file's name alone marks the folder as whole; the machine in its text is unknown.
        Err(OwnerError::Insecure(error)) => {
            tracing::warn!(%error, "which machine the last owner ran on is unknown");
            None
        }
        read => read?,
    };
    let ran_on = text.as_deref().and_then(|text| text.strip_suffix(b"\n"));
    Ok(boot.is_empty() || ran_on != Some(boot.as_bytes()))
}

/// Returns whether a folder has a file. It lists the folder, because a network file system may
/// cache the absence of a name for longer.
fn has_mark(folder: &Folder, name: &str) -> Result<bool, OwnerError> {
    Ok(folder.entries()?.iter().any(|found| found == name))
}

/// Writes this text to a file, which is made if it is missing, on stable storage.
pub(super) fn mark(folder: &Folder, name: &str, text: &str) -> Result<(), OwnerError> {
    let failed = |error| OwnerError::from_io("writing", &folder.path().join(name), error);
    let mut file = folder.open_file(name, OFlags::WRONLY | OFlags::CREATE)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(folder.sync()?)
}

/// Records that a run was ready: from now on a shard without a ready run is damaged, not new.
pub(super) fn mark_begun(shard: &Folder) -> Result<(), OwnerError> {
    mark(shard, BEGUN, "")
}

/// Checks that no run was ever ready: only then a missing table is an empty table.
///
/// # Errors
/// [`OwnerError::Corrupt`] if there was one, or if the store has bytes of files.
pub(super) fn check_is_new(store: &Folder, shard: &Folder) -> Result<(), OwnerError> {
    if has_mark(shard, BEGUN)? || has_content(store)? {
        let what = "it has no folder of a table that is ready, and the volume has been used";
        return Err(OwnerError::corrupt(shard.path(), what));
    }
    Ok(())
}

/// Returns whether there is a content file, in one of the folders of content files.
fn has_content(store: &Folder) -> Result<bool, OwnerError> {
    let content = store.open_folder(CONTENT)?;
    for name in content.entries()? {
        match content.open_folder(&name) {
            Ok(folder) if !folder.entries()?.is_empty() => return Ok(true),
            // A folder is made before the first file in it.
            Ok(_) => {}
            // The files that a server makes to test the disk.
            Err(FolderError::WrongType { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// Reads a small text; `None` if the file is gone.
pub(super) fn read_text(folder: &Folder, name: &str) -> Result<Option<Vec<u8>>, OwnerError> {
    let file = match folder.open_file(name, OFlags::RDONLY) {
        Err(error) if error.is_not_found() => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    let read = file.take(process_record::TEXT_BYTES as u64 + 1).read_to_end(&mut bytes);
    match read {
        // Another process has renamed the file away and removed it.
        Err(error) if error.raw_os_error() == Some(libc::ESTALE) => Ok(None),
        Err(error) => Err(OwnerError::from_io("reading", &folder.path().join(name), error)),
        Ok(_) if bytes.len() > process_record::TEXT_BYTES => Ok(Some(Vec::new())),
        Ok(_) => Ok(Some(bytes)),
    }
}
