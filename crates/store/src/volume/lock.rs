//! The lock of a volume: an advisory `flock`, which ends with the process that holds it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use std::{io, thread};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::error::VolumeError;
use super::layout::LOCK;
use crate::folder::Folder;

/// A lock that is held until dropped.
#[derive(Debug)]
pub(super) struct Lock {
    pub(super) file: File,
}

impl Lock {
    /// Keeps servers out without a write to the volume in `folder`: by a shared lock. Returns
    /// `None` if there is nothing to lock.
    ///
    /// # Errors
    /// [`VolumeError::InUse`] if a process has the volume open.
    pub(super) fn share(folder: &Folder) -> Result<Option<Self>, VolumeError> {
        let file = match folder.open_file(LOCK, OFlags::RDONLY) {
            Err(error) if error.is_not_found() => return Ok(None),
            opened => opened?,
        };
        let failed =
            |error: Errno| VolumeError::from_io("locking", &folder.path().join(LOCK), error.into());
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => {
                let path = folder.path().into();
                Err(VolumeError::InUse { path, pid: read_pid(&file) })
            }
            locked => locked.map(|()| Some(Self { file })).map_err(failed),
        }
    }

    /// Takes the lock of the volume in `folder`, without waiting.
    ///
    /// # Errors
    /// [`VolumeError::InUse`] if another process holds it.
    pub(super) fn take(folder: &Folder) -> Result<Self, VolumeError> {
        let path = folder.path().join(LOCK);
        let file = folder.open_file(LOCK, OFlags::RDWR | OFlags::CREATE)?;
        if !try_lock(&file).map_err(|error| VolumeError::from_io("locking", &path, error.into()))? {
            let path = folder.path().into();
            return Err(VolumeError::InUse { path, pid: read_pid(&file) });
        }
        let lock = Self { file };
        write_pid(&lock.file, &path)?;
        Ok(lock)
    }
}

impl Drop for Lock {
    /// Unlocks explicitly. A close alone would not do: a child process between `fork` and `exec`
    /// has the descriptor too.
    fn drop(&mut self) {
        if let Err(error) = flock(&self.file, FlockOperation::Unlock) {
            tracing::debug!(%error, "the volume stays locked until its last descriptor is closed");
        }
    }
}

/// Tries to take the lock, and returns whether it did. Tries several times, because
/// [`lock_holder`] in another process takes the lock for a moment.
fn try_lock(file: &File) -> Result<bool, Errno> {
    for _ in 0..TRIES {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => thread::sleep(PAUSE),
            locked => return locked.map(|()| true),
        }
    }
    Ok(false)
}

const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(5);

/// Returns the id of the process that holds the lock of the volume in `dir`.
pub(super) fn lock_holder(dir: &Path) -> Option<u32> {
    let file = Folder::open(dir).ok()?.open_foreign_file(LOCK).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => read_pid(&file),
        // The volume is free. Dropping `file` releases the lock that this just took.
        _ => None,
    }
}

/// Length of the file: a padded process id and a newline. Always the same, so that a write replaces
/// the old text and needs no space on a full disk.
const PID_BYTES: usize = 11;

fn write_pid(file: &File, path: &Path) -> Result<(), VolumeError> {
    let text = format!("{:<10}\n", std::process::id());
    match file.write_all_at(text.as_bytes(), 0) {
        // The lock works without it, but messages will not say which process holds it.
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
        written => written.map_err(|error| VolumeError::from_io("writing", path, error)),
    }
}

fn read_pid(file: &File) -> Option<u32> {
    let mut text = [0; PID_BYTES];
    file.read_exact_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text).ok()?.trim_end().parse().ok()
}
