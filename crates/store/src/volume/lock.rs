//! Who has a volume open: an advisory lock that goes with its process, whatever ends it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::{LOCK, VolumeError};
use crate::folder::Folder;

/// The lock, held until dropped.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock of the volume in this folder, without waiting.
    pub(super) fn take(folder: &Folder) -> Result<Self, VolumeError> {
        let path = folder.path().join(LOCK);
        let file = folder.file(LOCK, OFlags::RDWR | OFlags::CREATE)?;
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
    /// Closing would not do: a process that is just being started has the descriptor too, until it
    /// runs its own program.
    fn drop(&mut self) {
        if let Err(error) = flock(&self.file, FlockOperation::Unlock) {
            tracing::debug!(%error, "the volume's lock goes with its last descriptor");
        }
    }
}

/// Whether the lock is ours now. Who only looks ([`holder`]) has it for an instant: one that is
/// taken is tried again before it is believed.
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

/// The process that holds the lock of the volume in `dir` now.
pub(super) fn holder(dir: &Path) -> Option<u32> {
    let file = Folder::open(dir).ok()?.file_of_anybody(LOCK).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => read_pid(&file),
        // Free: the lock taken to see it goes with `file`.
        _ => None,
    }
}

/// Digits of a process id and the newline behind them: always as many, so that the file is
/// overwritten in place and needs no space on a full medium.
const PID_BYTES: usize = 11;

fn write_pid(file: &File, path: &Path) -> Result<(), VolumeError> {
    let text = format!("{:<10}\n", std::process::id());
    match file.write_all_at(text.as_bytes(), 0) {
        // The lock holds without it; who is refused is told no number.
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
        written => written.map_err(|error| VolumeError::from_io("writing", path, error)),
    }
}

fn read_pid(file: &File) -> Option<u32> {
    let mut text = [0; PID_BYTES];
    file.read_exact_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text).ok()?.trim_end().parse().ok()
}
