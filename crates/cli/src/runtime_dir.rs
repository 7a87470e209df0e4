//! Folders of mounts that have no volume on this machine: each has a control socket and a log.
//!
//! They are in `$XDG_RUNTIME_DIR/pelago`, else in `/run/pelago` for root and in `/tmp/pelago-UID`
//! for others, and are named by the device number of their mount, which no other mount of the
//! machine has at that time. A process holds a lock on the folder of its mount, so that folders of
//! killed processes are told from those in use.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use pelago_mount::mountinfo::{self, MountEntry};
use pelago_store::folder::Folder;
use rustix::process::geteuid;

/// Bytes of the log's name.
const LOG: &str = "log";

/// The folder of a mount. It is removed when this is dropped.
pub(crate) struct RuntimeDir {
    pub(crate) folder: Folder,
    /// Ends with the process.
    _lock: File,
}

impl RuntimeDir {
    /// Creates the folder of the mount at this point.
    pub(crate) fn create(point: &Path) -> io::Result<Self> {
        let mounted = mountinfo::at(point)?.ok_or(io::ErrorKind::NotFound)?;
        let parent = parent();
        create_private(&parent)?;
        let _turn = take_turn(&parent)?;
        remove_stale_in(&parent);
        let path = of(&mounted);
        // A mount with this device is gone if its number is used again.
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => create_private(&path)?,
        }
        let lock = File::open(&path)?;
        lock.try_lock()?;
        let folder = Folder::open(&path).map_err(io::Error::other)?;
        Ok(Self { folder, _lock: lock })
    }

    /// Opens the log of the mount for appending.
    pub(crate) fn open_log(&self) -> io::Result<File> {
        File::options().create(true).append(true).open(self.folder.proc_path().join(LOG))
    }
}

impl Drop for RuntimeDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(self.folder.path()) {
            tracing::debug!(%error, "the folder of the mount stays");
        }
    }
}

/// Returns the folder of a mount, which exists if its process is of this user or of root.
pub(crate) fn of(mount: &MountEntry) -> PathBuf {
    parent().join(mount.device.replace(':', "-"))
}

/// Removes the folders of mounts that are gone and whose process has ended without removing them.
pub(crate) fn remove_stale() {
    let parent = parent();
    // Without the folder of all mounts there is none of one.
    if let Ok(_turn) = take_turn(&parent) {
        remove_stale_in(&parent);
    }
}

/// Waits until no other process creates or removes folders here. Its turn ends when the result is
/// dropped.
fn take_turn(parent: &Path) -> io::Result<File> {
    let turn = File::open(parent)?;
    turn.lock()?;
    Ok(turn)
}

fn remove_stale_in(parent: &Path) {
    let Ok(mounts) = mountinfo::ours() else { return };
    let in_use: Vec<PathBuf> = mounts.iter().map(of).collect();
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        // A dead mount is found by its folder until it is unmounted.
        if !in_use.contains(&path) && is_unlocked(&path) {
            match fs::remove_dir_all(&path) {
                Ok(()) => {
                    tracing::debug!(path = %path.display(), "a killed mount's folder is gone")
                }
                Err(error) => tracing::debug!(%error, path = %path.display(), "a folder stays"),
            }
        }
    }
}

/// Returns whether this is a folder whose process has ended.
fn is_unlocked(path: &Path) -> bool {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    is_folder && File::open(path).is_ok_and(|folder| folder.try_lock().is_ok())
}

/// Returns whether a folder is that of a mount.
pub(crate) fn is_one(dir: &Path) -> bool {
    dir.parent() == Some(&parent())
}

fn parent() -> PathBuf {
    let user = geteuid();
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_absolute()) {
        Some(dir) if !user.is_root() => PathBuf::from(dir).join("pelago"),
        _ if user.is_root() => PathBuf::from("/run/pelago"),
        _ => PathBuf::from(format!("/tmp/pelago-{}", user.as_raw())),
    }
}

/// Creates a folder that only this user can use. One that exists must be such a folder.
fn create_private(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => return created,
    }
    let meta = fs::symlink_metadata(path)?;
    let is_ours =
        meta.is_dir() && meta.uid() == geteuid().as_raw() && meta.permissions().mode() & 0o077 == 0;
    if is_ours { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}
