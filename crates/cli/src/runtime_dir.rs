//! Runtime folders of mounts whose volume another process serves: each has a control socket and a
//! log.
//!
//! The folders are in `/run/pelago` for root, and in `$XDG_RUNTIME_DIR/pelago` or `/tmp/pelago-UID`
//! for other users. Each is named by the device number of its mount, which is unique on the machine
//! at that time. A process holds a lock on the folder of its mount, which distinguishes it from the
//! folders of killed processes.
//!
//! Every user can write `/tmp`. So all folders are opened relative to descriptors: a symbolic link,
//! or a folder that other users may write, is never used, and only folders with names of this form
//! are removed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use pelago_mount::mountinfo::{self, MountEntry};
use pelago_store::folder::{Folder, FolderError};
use rustix::fs::OFlags;
use rustix::process::geteuid;

/// The name of the log.
const LOG: &str = "log";

/// The folder of a mount. It is removed when this is dropped.
pub(crate) struct RuntimeDir {
    /// The folder, locked until the process ends.
    pub(crate) folder: Folder,
}

impl RuntimeDir {
    /// Creates the folder of the mount at this point.
    pub(crate) fn create(point: &Path) -> io::Result<Self> {
        let mounted = mountinfo::at(point)?.ok_or(io::ErrorKind::NotFound)?;
        let MountsFolder { above, name } = mounts_folder();
        let created = Folder::open(&above).and_then(|above| above.create_folder(&name));
        let parent = created.map_err(refused)?;
        // The lock ends with this function.
        parent.lock().map_err(refused)?;
        remove_stale_in(&parent);
        let name = name_of(&mounted);
        // An older mount with this device number is gone if the number is used again.
        parent.remove_tree(&name).map_err(refused)?;
        let folder = parent.create_folder(&name).map_err(refused)?;
        match folder.try_lock().map_err(refused)? {
            true => Ok(Self { folder }),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Opens the log of the mount for appending.
    pub(crate) fn open_log(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        self.folder.open_file(LOG, flags).map_err(refused)
    }
}

impl Drop for RuntimeDir {
    fn drop(&mut self) {
        if let Err(error) = open_parent().and_then(|parent| remove_own(&parent, &self.folder)) {
            tracing::debug!(%error, "the folder of the mount stays");
        }
    }
}

/// Removes the folder of a mount. The mount is gone, so another mount may have its device number
/// now, and a folder of the same name.
fn remove_own(parent: &Folder, own: &Folder) -> Result<(), FolderError> {
    let name = own.path().file_name().unwrap_or_default();
    // No other process replaces the folder between the two calls.
    parent.lock()?;
    match parent.is_named(name, own)? {
        true => parent.remove_tree(name),
        false => Ok(()),
    }
}

/// Returns the folder of a mount; `None` if this user has no such folder, or if other users may
/// write it.
pub(crate) fn of(mount: &MountEntry) -> Option<PathBuf> {
    let folder = open_parent().and_then(|parent| parent.open_folder(&name_of(mount)));
    folder.ok().map(|folder| folder.path().to_owned())
}

/// Removes the folders of mounts that are gone and whose process has ended without removing its
/// folder.
pub(crate) fn remove_stale() {
    // Without the folder of all mounts no mount has a folder.
    let Ok(parent) = open_parent() else { return };
    if parent.lock().is_ok() {
        remove_stale_in(&parent);
    }
}

fn remove_stale_in(parent: &Folder) {
    let Ok(mounts) = mountinfo::ours() else { return };
    let in_use: Vec<OsString> = mounts.iter().map(name_of).collect();
    for name in parent.entries().unwrap_or_default() {
        // A dead mount keeps its folder until it is unmounted: by it `unmount` finds the mount.
        if is_of_mount(&name) && !in_use.contains(&name) && is_unlocked(parent, &name) {
            match parent.remove_tree(&name) {
                Ok(()) => {
                    tracing::debug!(name = %name.display(), "a killed mount's folder is gone")
                }
                Err(error) => tracing::debug!(%error, "a folder stays"),
            }
        }
    }
}

/// Returns whether the process of a folder has ended.
fn is_unlocked(parent: &Folder, name: &OsStr) -> bool {
    parent.open_folder(name).and_then(|folder| folder.try_lock()).unwrap_or(false)
}

/// Returns whether a folder is the runtime folder of a mount.
pub(crate) fn is_one(dir: &Path) -> bool {
    let MountsFolder { above, name } = mounts_folder();
    dir.parent() == Some(&above.join(name))
}

/// Returns the name of a mount's folder.
fn name_of(mount: &MountEntry) -> OsString {
    mount.device.replace(':', "-").into()
}

/// Returns whether a mount's folder can have this name: `MAJOR-MINOR`.
fn is_of_mount(name: &OsStr) -> bool {
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let mut parts = name.as_bytes().split(|byte| *byte == b'-');
    parts.next().is_some_and(is_number)
        && parts.next().is_some_and(is_number)
        && parts.next().is_none()
}

/// The path of the folder that contains the folders of all mounts.
struct MountsFolder {
    /// The parent, which the system or the session has created.
    above: PathBuf,
    /// The name in the parent.
    name: OsString,
}

fn mounts_folder() -> MountsFolder {
    let user = geteuid();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_absolute());
    match runtime {
        _ if user.is_root() => MountsFolder { above: "/run".into(), name: "pelago".into() },
        Some(dir) => MountsFolder { above: dir.into(), name: "pelago".into() },
        None => {
            MountsFolder { above: "/tmp".into(), name: format!("pelago-{}", user.as_raw()).into() }
        }
    }
}

/// Opens the folder that contains the folders of all mounts, if no other user may write it.
fn open_parent() -> Result<Folder, FolderError> {
    let MountsFolder { above, name } = mounts_folder();
    Folder::open(&above)?.open_folder(&name)
}

/// Returns the error for a folder that is refused.
fn refused(error: FolderError) -> io::Error {
    let path = error.path().to_owned();
    let found = error.found();
    match error {
        FolderError::Io { source, .. } => source,
        _ => io::Error::other(format!(
            "{} is {}, and is not used: remove it, or set XDG_RUNTIME_DIR",
            path.display(),
            found.unwrap_or("no folder of this user")
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;
    use std::{fs, thread};

    use super::*;

    /// A mount that ends removes its own folder, and not that of the next mount with its number.
    #[test]
    fn the_folder_of_the_next_mount_stays() {
        let temp = tempfile::tempdir().unwrap();
        let parent = || Folder::open(temp.path()).unwrap();
        let folder = temp.path().join("0-55");
        let first = parent().create_folder("0-55").unwrap();
        parent().remove_tree("0-55").unwrap();
        let second = parent().create_folder("0-55").unwrap();
        fs::write(folder.join("control.sock"), "").unwrap();
        remove_own(&parent(), &first).unwrap();
        assert!(folder.join("control.sock").exists());
        // Another process is between its two calls.
        let other = parent();
        other.lock().unwrap();
        let (done, is_done) = mpsc::channel();
        let own = parent();
        let removed = second.clone();
        let removes = thread::Builder::new().spawn(move || {
            remove_own(&own, &removed).unwrap();
            done.send(()).unwrap();
        });
        // It cannot end: this is how long a wrong one has for it.
        is_done.recv_timeout(Duration::from_millis(100)).unwrap_err();
        assert!(folder.exists());
        drop(other);
        removes.unwrap().join().unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn only_names_of_devices_are_of_mounts() {
        for (name, is_one) in [
            ("0-55", true),
            ("254-1", true),
            ("Documents", false),
            ("0-", false),
            ("-1", false),
            ("0-1-2", false),
            ("", false),
        ] {
            assert_eq!(is_of_mount(OsStr::new(name)), is_one, "{name}");
        }
    }
}
