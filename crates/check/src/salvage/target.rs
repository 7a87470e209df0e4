//! The folder that a salvage writes: files, below descriptors of their folders.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use pelago_store::rows::Rnode;
use pelago_wire::{FileKind, InodeId, Time};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, chmodat,
    chownat, fchmod, fchown, fsetxattr, futimens, linkat, lsetxattr, makedev, mkdirat, mknodat,
    openat, renameat, symlinkat, syncfs, utimensat,
};
use rustix::io::{Errno, Result};
use rustix::process::geteuid;

use super::{SalvageError, failed_at};

/// The folder, in the target, in which each file with several names has another name. It is removed
/// at the end.
const LINKS: &str = ".links";

/// The folder that a salvage writes to.
pub(super) struct Target {
    folder: OwnedFd,
    links: OwnedFd,
    path: PathBuf,
}

impl Target {
    pub(super) fn open(path: &Path) -> std::result::Result<Self, SalvageError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, path, flags, Mode::empty());
        let folder = folder.map_err(|error| failed_at("opening", path, error.into()))?;
        let links = make_folder(folder.as_fd(), LINKS.as_bytes());
        let links = links.map_err(|error| failed_at("making", &path.join(LINKS), error.into()))?;
        Ok(Self { folder, links, path: path.to_path_buf() })
    }

    /// Gives a file that was made a name in [`LINKS`], by which it can get other names: its own
    /// name may be in a folder that was finished and cannot be entered any more.
    pub(super) fn keep_for_links(
        &self,
        ino: InodeId,
        dir: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<()> {
        linkat(dir, name, &self.links, link_name(ino), AtFlags::empty())
    }

    /// Gives a kept file another name, in the folder `dir`.
    pub(super) fn link(&self, ino: InodeId, dir: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
        let kept = link_name(ino);
        match linkat(&self.links, &kept, dir, name, AtFlags::empty()) {
            // It has as many names as the file system allows, and one of them is that in `LINKS`.
            Err(Errno::MLINK) => renameat(&self.links, &kept, dir, name),
            done => done,
        }
    }

    /// Removes the folder [`LINKS`], which is not part of the copy.
    pub(super) fn remove_links(&self) -> std::result::Result<(), SalvageError> {
        let links = self.path.join(LINKS);
        fs::remove_dir_all(&links).map_err(|error| failed_at("removing", &links, error))
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

/// Opens the folder above one that was made.
pub(super) fn open_above(folder: BorrowedFd<'_>) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(folder, "..", flags, Mode::empty())
}

/// Returns the name by which a file is kept.
fn link_name(ino: InodeId) -> String {
    format!("{:016x}", ino.raw())
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

/// A file in the target whose attributes are set.
pub(super) enum Made<'a> {
    /// A directory.
    Directory(BorrowedFd<'a>),
    /// Any other file.
    Named {
        /// Its folder.
        dir: BorrowedFd<'a>,
        /// Its name there.
        name: &'a [u8],
        /// Its type.
        kind: FileKind,
    },
}

impl Made<'_> {
    /// Sets the owner. Only root keeps owners.
    pub(super) fn set_owner(&self, rnode: &Rnode) -> Result<()> {
        if !geteuid().is_root() {
            return Ok(());
        }
        let uid = Some(Uid::from_raw(rnode.uid));
        let gid = Some(Gid::from_raw(rnode.gid));
        match self {
            Self::Directory(folder) => fchown(folder, uid, gid),
            Self::Named { dir, name, .. } => {
                chownat(dir, *name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    /// Sets the mode. The owner must be set: this would give the rights of another one.
    pub(super) fn set_mode(&self, rnode: &Rnode) -> Result<()> {
        // A mode of another owner's files would give setuid rights of this user.
        let kept = if geteuid().is_root() { 0o7777 } else { 0o1777 };
        let mode = Mode::from_raw_mode(u32::from(rnode.mode) & kept);
        match self {
            Self::Directory(folder) => fchmod(folder, mode),
            Self::Named { kind: FileKind::Symlink, .. } => Ok(()),
            Self::Named { dir, name, .. } => chmodat(dir, *name, mode, AtFlags::empty()),
        }
    }

    /// Sets an extended attribute.
    pub(super) fn set_xattr(&self, attribute: &[u8], value: &[u8]) -> Result<()> {
        let attribute = CString::new(attribute).map_err(|_| Errno::INVAL)?;
        let flags = XattrFlags::empty();
        match self {
            Self::Directory(folder) => fsetxattr(folder, attribute.as_c_str(), value, flags),
            Self::Named { dir, name, kind: FileKind::Regular } => {
                let open = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = openat(dir, *name, open, Mode::empty())?;
                fsetxattr(&file, attribute.as_c_str(), value, flags)
            }
            Self::Named { dir, name, .. } => {
                let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
                path.extend(*name);
                lsetxattr(path.as_slice(), attribute.as_c_str(), value, flags)
            }
        }
    }

    /// Sets the times of the last read and the last change of bytes.
    pub(super) fn set_times(&self, atime: Time, mtime: Time) -> Result<()> {
        let spec = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() };
        let times = Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
        match self {
            // Its mode may forbid to look up a name in it.
            Self::Directory(folder) => futimens(folder, &times),
            Self::Named { dir, name, .. } => {
                utimensat(dir, *name, &times, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file may have as many names in the copy as the file system allows: the one that is ours
    /// becomes the last one.
    #[test]
    fn the_last_name_that_a_file_may_have_is_the_one_that_was_kept() {
        const MOST: u32 = 70_000;
        let folder = tempfile::tempdir().unwrap();
        let target = Target::open(folder.path()).unwrap();
        let ino = InodeId::from_raw(7);
        make_file(target.folder.as_fd(), b"first").unwrap();
        target.keep_for_links(ino, target.folder.as_fd(), b"first").unwrap();
        let kept = folder.path().join(LINKS).join(link_name(ino));
        for number in 0..MOST {
            target.link(ino, target.folder.as_fd(), number.to_string().as_bytes()).unwrap();
            if !kept.exists() {
                assert!(folder.path().join(number.to_string()).exists());
                return;
            }
        }
        println!("skipped: this file system allows more than {MOST} names");
    }
}
