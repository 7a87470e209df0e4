//! The folder that a salvage writes: files, below descriptors of their folders.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use pelago_store::rows::Rnode;
use pelago_wire::{FileKind, Time};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, chmodat,
    chownat, fsetxattr, linkat, lsetxattr, makedev, mkdirat, mknodat, openat, symlinkat, syncfs,
    utimensat,
};
use rustix::io::{Errno, Result};
use rustix::process::geteuid;

use super::{SalvageError, failed_at};

/// The folder that a salvage writes to.
pub(super) struct Target {
    folder: OwnedFd,
    path: PathBuf,
}

impl Target {
    pub(super) fn open(path: &Path) -> std::result::Result<Self, SalvageError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, path, flags, Mode::empty());
        let folder = folder.map_err(|error| failed_at("opening", path, error.into()))?;
        Ok(Self { folder, path: path.to_path_buf() })
    }

    /// Makes a folder in it.
    pub(super) fn make_folder(&self, name: &str) -> std::result::Result<OwnedFd, SalvageError> {
        let made = make_folder(self.folder.as_fd(), name.as_bytes());
        made.map_err(|error| failed_at("making", &self.path.join(name), error.into()))
    }

    /// Makes everything in it safe.
    pub(super) fn sync(&self) -> std::result::Result<(), SalvageError> {
        syncfs(&self.folder).map_err(|error| failed_at("syncing", &self.path, error.into()))
    }
}

/// Makes a folder that only this user can enter, and opens it.
pub(super) fn make_folder(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd> {
    mkdirat(dir, name, Mode::RWXU)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::empty())
}

/// Makes a regular file that only this user can read.
pub(super) fn make_file(dir: BorrowedFd<'_>, name: &[u8]) -> Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok(File::from(openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?))
}

/// Makes a symbolic link, a pipe, a socket or a device.
pub(super) fn make_special(dir: BorrowedFd<'_>, name: &[u8], rnode: &Rnode) -> Result<()> {
    let file_type = match rnode.kind {
        FileKind::Symlink => return symlinkat(rnode.target.as_slice(), dir, name),
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Regular | FileKind::Directory => return Err(Errno::INVAL),
    };
    // The kernel's encoding: twelve bits of the major number between twenty of the minor one.
    let major = (rnode.rdev >> 8) & 0xfff;
    let minor = (rnode.rdev & 0xff) | ((rnode.rdev >> 12) & 0xf_ff00);
    mknodat(dir, name, file_type, Mode::RUSR | Mode::WUSR, makedev(major, minor))
}

/// Gives a file another name, in the folder `to`.
pub(super) fn link(from: &Made<'_>, to: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    linkat(from.dir, from.name, to, name, AtFlags::empty())
}

/// A file in the target whose attributes are set.
pub(super) struct Made<'a> {
    pub(super) dir: BorrowedFd<'a>,
    pub(super) name: &'a [u8],
    pub(super) kind: FileKind,
}

impl Made<'_> {
    /// Sets owner and mode. Only root keeps owners.
    pub(super) fn set_owner_and_mode(&self, rnode: &Rnode) -> Result<()> {
        if geteuid().is_root() {
            let uid = Some(Uid::from_raw(rnode.uid));
            let gid = Some(Gid::from_raw(rnode.gid));
            chownat(self.dir, self.name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if self.kind == FileKind::Symlink {
            return Ok(());
        }
        // A mode of another owner's files would give setuid rights of this user.
        let kept = if geteuid().is_root() { 0o7777 } else { 0o1777 };
        let mode = Mode::from_raw_mode(u32::from(rnode.mode) & kept);
        chmodat(self.dir, self.name, mode, AtFlags::empty())
    }

    /// Sets an extended attribute.
    pub(super) fn set_xattr(&self, attribute: &[u8], value: &[u8]) -> Result<()> {
        let attribute = CString::new(attribute).map_err(|_| Errno::INVAL)?;
        let flags = XattrFlags::empty();
        if matches!(self.kind, FileKind::Regular | FileKind::Directory) {
            let open = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = openat(self.dir, self.name, open, Mode::empty())?;
            return fsetxattr(&file, attribute.as_c_str(), value, flags);
        }
        let mut path = format!("/proc/self/fd/{}/", self.dir.as_raw_fd()).into_bytes();
        path.extend(self.name);
        lsetxattr(path.as_slice(), attribute.as_c_str(), value, flags)
    }

    /// Sets the times of the last read and the last change of bytes.
    pub(super) fn set_times(&self, atime: Time, mtime: Time) -> Result<()> {
        let spec = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() };
        let times = Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
        utimensat(self.dir, self.name, &times, AtFlags::SYMLINK_NOFOLLOW)
    }
}
