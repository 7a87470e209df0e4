//! Forced end of a connection with the kernel: all its requests and notices fail at once.
//!
//! A thread that invalidates a name (FUSE_NOTIFY_INVAL_ENTRY) waits in the kernel for the lock of
//! the directory. A program may hold that lock while it waits for a reply of the same process. If
//! this process is killed, the thread stays in state D and keeps `/dev/fuse` open, so the kernel
//! does not end the connection, and neither the thread nor the program can be killed. Only the file
//! `abort` of fusectl and `umount2` with `MNT_FORCE` free both (Linux 6.18; decision 27).

use std::fs::File;
use std::io;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, fstatfs, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags, fsconfig_create, fsmount, fsopen,
    unmount,
};
use rustix::process::geteuid;

use crate::mountinfo::{self, MountEntry};

/// The folder where systemd mounts fusectl, which has a folder for each connection.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// The file system type of it.
const FUSECTL: &str = "fusectl";
/// `FUSE_CTL_SUPER_MAGIC`.
const FUSECTL_MAGIC: u64 = 0x6573_5543;

/// The means to end the connection of one mount, in whatever state its process is. It never ends
/// the connection of another mount.
#[derive(Debug)]
pub struct Aborter(Means);

#[derive(Debug)]
enum Means {
    /// The file `abort` of the connection. The open file stays bound to its connection: once that
    /// is gone a write does nothing, even if another mount has the same number by then.
    File(File),
    /// A forced unmount of this mount, which also removes the mount if no program uses it.
    Unmount(MountEntry),
}

/// An error after which a connection cannot be ended.
#[derive(Debug, thiserror::Error)]
pub enum AbortError {
    /// The mount is gone, or never was in the mount table.
    #[error("the mount is not in the mount table")]
    NoMount,
    /// The mount table cannot be read.
    #[error("the mount table cannot be read: {0}")]
    Table(#[source] io::Error),
    /// There is no control file, and this is not root.
    #[error("nothing can end the mount by force: {0}")]
    NoFile(#[source] io::Error),
    /// The kernel refused.
    #[error("the kernel refuses to end the mount: {0}")]
    Kernel(#[source] io::Error),
}

impl Aborter {
    /// Prepares the end of a mount's connection. Does not touch the mount, so it never hangs.
    ///
    /// Without a control file root falls back on a forced unmount.
    ///
    /// # Errors
    /// [`AbortError`], never [`AbortError::Kernel`].
    pub fn of(mount: &MountEntry) -> Result<Self, AbortError> {
        let aborter = match control_file(mount) {
            Ok(file) => Self(Means::File(file)),
            Err(error) if geteuid().is_root() => {
                tracing::debug!(%error, "no control file: a forced unmount ends the mount");
                Self::by_unmount(mount)
            }
            Err(error) => return Err(AbortError::NoFile(error)),
        };
        // A mount that is still there has had its number all the time, so the file is its own.
        if is_there(mount)? { Ok(aborter) } else { Err(AbortError::NoMount) }
    }

    /// Prepares the end of a connection by a forced unmount, without a control file; for root only.
    #[must_use]
    pub fn by_unmount(mount: &MountEntry) -> Self {
        Self(Means::Unmount(mount.clone()))
    }

    /// Ends the connection: its requests fail with `ECONNABORTED`, later ones with `ENOTCONN`. If
    /// it has ended before, nothing happens.
    ///
    /// # Errors
    /// [`AbortError::Kernel`]; [`AbortError::Table`].
    pub fn abort(&self) -> Result<(), AbortError> {
        match &self.0 {
            Means::File(file) => (&*file).write_all(b"1").map_err(AbortError::Kernel),
            Means::Unmount(mount) => force(mount),
        }
    }
}

/// Ends the connection of a mount whose process is gone.
///
/// # Errors
/// [`AbortError`].
pub fn abort(mount: &MountEntry) -> Result<(), AbortError> {
    Aborter::of(mount)?.abort()
}

/// Unmounts by force what is the topmost mount on its point. The kernel ends the connection first,
/// and refuses the rest while a program uses the mount.
fn force(mount: &MountEntry) -> Result<(), AbortError> {
    let topmost = mountinfo::at(&mount.point).map_err(AbortError::Table)?;
    if !topmost.is_some_and(|found| is_same(&found, mount)) {
        return Ok(());
    }
    match unmount(&mount.point, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        Err(error) => Err(AbortError::Kernel(error.into())),
    }
}

fn is_there(mount: &MountEntry) -> Result<bool, AbortError> {
    let all = mountinfo::all().map_err(AbortError::Table)?;
    Ok(all.iter().any(|found| is_same(found, mount)))
}

fn is_same(one: &MountEntry, other: &MountEntry) -> bool {
    one.id == other.id && one.device == other.device
}

/// Opens the file that ends the connection of this mount. Its name is the minor number of the
/// mount's device.
fn control_file(mount: &MountEntry) -> io::Result<File> {
    let number: u32 = mount
        .device
        .strip_prefix("0:")
        .and_then(|number| number.parse().ok())
        .ok_or(Errno::NXIO)?;
    let opened = connections().and_then(|folder| abort_file(&folder, number));
    opened.or_else(|error| {
        // The first error says more than that of an ordinary user's mount.
        let own = own_connections().and_then(|folder| abort_file(&folder, number));
        own.map_err(|_refused| error)
    })
}

fn abort_file(folder: &OwnedFd, number: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(openat(folder, format!("{number}/abort"), flags, Mode::empty())?))
}

/// Opens fusectl where it is usually mounted.
fn connections() -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, CONNECTIONS, flags, Mode::empty())?;
    let kind = fstatfs(&folder)?.f_type;
    if u64::try_from(kind) == Ok(FUSECTL_MAGIC) {
        return Ok(folder);
    }
    let remedy = format!("fusectl is not mounted; `mount -t {FUSECTL} none {CONNECTIONS}` as root");
    Err(io::Error::new(io::ErrorKind::NotFound, remedy))
}

/// Returns fusectl, mounted nowhere: it goes when the descriptor is closed. Needs root and Linux
/// 5.2. A mount namespace of our own would do too, but it keeps all mounts of the machine busy.
fn own_connections() -> io::Result<OwnedFd> {
    let context = fsopen(FUSECTL, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    Ok(fsmount(context.as_fd(), flags, MountAttrFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mount of `/proc` has no connection, and must survive each way.
    #[test]
    fn a_mount_without_a_connection_is_left_alone() {
        let mut mount = mountinfo::at("/proc".as_ref()).unwrap().unwrap();
        assert!(control_file(&mount).is_err());
        mount.id = u64::MAX;
        assert!(matches!(Aborter::of(&mount), Err(AbortError::NoMount | AbortError::NoFile(_))));
        force(&mount).unwrap();
        assert!(mountinfo::at("/proc".as_ref()).unwrap().is_some());
    }

    #[test]
    fn a_disk_has_no_connection() {
        let mut mount = mountinfo::at("/proc".as_ref()).unwrap().unwrap();
        mount.device = "254:0".to_owned();
        let error = control_file(&mount).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NXIO.raw_os_error()));
    }
}
