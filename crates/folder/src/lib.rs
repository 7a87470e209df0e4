//! A folder that is held by its descriptor, and whose files are opened below that: the only way to
//! open, make or remove this user's files in a folder that other users may write.
//!
//! Such a folder is that of a volume, that of a download, or `/tmp`. Others can put anything into
//! it, and replace it at any time. So every name is opened with `openat2`, which follows no
//! symbolic link, and then the open descriptor is examined: the file must belong to the user of
//! this process, no other user may write it, and it has one name. Folders of ours have mode 0700,
//! so the files in them need no further checks.
//!
//! Linux before 5.6, and some sandboxes, have no `openat2`. There `openat` with `O_NOFOLLOW` does
//! the same, because the names that are opened here are single components.

#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags, Stat,
    flock, fstat, fsync, mkdirat, openat, openat2, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

pub use error::FolderError;

use error::io_error;

mod error;

/// An open folder. Clones share the descriptor.
#[derive(Debug, Clone)]
pub struct Folder {
    fd: Arc<OwnedFd>,
    path: PathBuf,
}

/// The properties that a new version of a file keeps of the one that it replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptOfFile {
    /// Permissions for reading, writing and executing; never those to act as another user.
    pub mode: u32,
    /// The gid of its group.
    pub group: u32,
}

/// Permissions of folders of ours.
const FOLDER_MODE: u32 = 0o700;
/// Permissions of files of ours.
const FILE_MODE: u32 = 0o600;
/// Permissions that a file of ours must not have.
const WRITE_BY_OTHERS: u32 = 0o022;
/// Attempts of an open that renames by other processes disturb.
const TRIES: u32 = 8;
/// Folders within each other that [`Folder::remove_tree`] removes.
const DEPTH: u32 = 8;

impl Folder {
    /// Opens the folder at `path`. Follows symbolic links in it, because the user gave the path.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, path, flags, Mode::empty());
        let fd = opened.map_err(|error| io_error("opening", path.into(), error))?;
        Ok(Self { fd: Arc::new(fd), path: path.into() })
    }

    /// Returns the path by which the folder was opened, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a path in `/proc` that leads to this folder even if it is renamed, while this
    /// process has it open.
    #[must_use]
    pub fn proc_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    /// Opens a subfolder, to which other users must have no access.
    ///
    /// # Errors
    /// [`FolderError`]; [`FolderError::is_not_found`] if there is none.
    pub fn open_folder(&self, name: &(impl AsRef<OsStr> + ?Sized)) -> Result<Self, FolderError> {
        let name = name.as_ref();
        let path = self.path.join(name);
        let fd = self.open_at(name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let stat = fstat(&fd).map_err(|error| io_error("examining", path.clone(), error))?;
        self.check_owner(name, &stat)?;
        let mode = stat.st_mode & 0o7777;
        if mode & !FOLDER_MODE != 0 {
            return Err(FolderError::TooPermissive { path, mode, wanted: FOLDER_MODE });
        }
        Ok(Self { fd: Arc::new(fd), path })
    }

    /// Opens a subfolder as [`Folder::open_folder`] does, and creates it if it is missing.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn create_folder(&self, name: &(impl AsRef<OsStr> + ?Sized)) -> Result<Self, FolderError> {
        let name = name.as_ref();
        match mkdirat(&self.fd, name, Mode::from_raw_mode(FOLDER_MODE)) {
            Ok(()) | Err(Errno::EXIST) => self.open_folder(name),
            Err(error) => Err(io_error("creating", self.path.join(name), error)),
        }
    }

    /// Opens a regular file of this user, which other users cannot write. [`OFlags::CREATE`]
    /// creates it if it is missing.
    ///
    /// # Errors
    /// [`FolderError`]; [`FolderError::is_not_found`] if there is none.
    pub fn open_file(
        &self,
        name: &(impl AsRef<OsStr> + ?Sized),
        flags: OFlags,
    ) -> Result<File, FolderError> {
        let name = name.as_ref();
        // `O_NONBLOCK`: opening a pipe that another user put there must not block.
        let fd = self.open_at(name, flags | OFlags::NONBLOCK, Mode::from_raw_mode(FILE_MODE))?;
        let failed = |error| io_error("examining", self.path.join(name), error);
        let stat = fstat(&fd).map_err(failed)?;
        self.check_stat(name, &stat)?;
        let flags = rustix::fs::fcntl_getfl(&fd).map_err(failed)?;
        rustix::fs::fcntl_setfl(&fd, flags - OFlags::NONBLOCK).map_err(failed)?;
        Ok(File::from(fd))
    }

    /// Opens a file of any user for reading, without checks: do not rely on its content.
    pub fn open_foreign_file(
        &self,
        name: &(impl AsRef<OsStr> + ?Sized),
    ) -> Result<File, FolderError> {
        let name = name.as_ref();
        Ok(File::from(self.open_at(name, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?))
    }

    /// Creates a new file and opens it for reading and writing. An existing file with this name is
    /// unlinked before.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn replace_file(
        &self,
        name: &(impl AsRef<OsStr> + ?Sized),
        mode: u32,
    ) -> Result<File, FolderError> {
        let name = name.as_ref();
        self.remove(name)?;
        self.create_new(name, mode)
    }

    /// Checks that [`Folder::open_file`] would accept the file with this name, without opening it.
    /// A missing file is no error.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn check_file(&self, name: &(impl AsRef<OsStr> + ?Sized)) -> Result<(), FolderError> {
        let name = name.as_ref();
        match self.stat(name)? {
            None => Ok(()),
            Some(stat) => self.check_stat(name, &stat),
        }
    }

    /// Returns whether the folder has this name, whatever type of file it is.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn contains(&self, name: &(impl AsRef<OsStr> + ?Sized)) -> Result<bool, FolderError> {
        let name = name.as_ref();
        Ok(self.stat(name)?.is_some())
    }

    /// Returns whether the folder has a file with this name that [`Folder::open_file`] would
    /// accept.
    ///
    /// # Errors
    /// [`FolderError`] if it has another.
    pub fn contains_file(&self, name: &(impl AsRef<OsStr> + ?Sized)) -> Result<bool, FolderError> {
        let name = name.as_ref();
        self.check_file(name)?;
        self.contains(name)
    }

    /// Unlinks a file or symbolic link, if it exists.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn remove(&self, name: &(impl AsRef<OsStr> + ?Sized)) -> Result<(), FolderError> {
        let name = name.as_ref();
        match unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(io_error("removing", self.path.join(name), error)),
        }
    }

    /// Creates a file with these permissions and opens it for reading and writing.
    ///
    /// # Errors
    /// [`FolderError`]; [`FolderError::is_found`] if the folder has this name.
    pub fn create_new(
        &self,
        name: &(impl AsRef<OsStr> + ?Sized),
        mode: u32,
    ) -> Result<File, FolderError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        Ok(File::from(self.open_at(name.as_ref(), flags, Mode::from_raw_mode(mode))?))
    }

    /// Returns the properties that a new version of a file keeps. Returns `None` if there is no
    /// file, or if it is not a regular file of this user: then another user chose its permissions.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn kept_of(
        &self,
        name: &(impl AsRef<OsStr> + ?Sized),
    ) -> Result<Option<KeptOfFile>, FolderError> {
        let stat = self.stat(name.as_ref())?;
        let is_ours =
            |stat: &Stat| is(stat, FileType::RegularFile) && stat.st_uid == geteuid().as_raw();
        let kept = |stat: Stat| KeptOfFile { mode: stat.st_mode & 0o777, group: stat.st_gid };
        Ok(stat.filter(is_ours).map(kept))
    }

    /// Returns whether an open file or folder has this name here.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn is_named(
        &self,
        name: &(impl AsRef<OsStr> + ?Sized),
        file: &impl AsFd,
    ) -> Result<bool, FolderError> {
        let name = name.as_ref();
        let own =
            fstat(file).map_err(|error| io_error("examining", self.path.join(name), error))?;
        let found = self.stat(name)?;
        Ok(found.is_some_and(|it| (it.st_dev, it.st_ino) == (own.st_dev, own.st_ino)))
    }

    /// Locks the folder for one holder, until this descriptor and its clones are closed. Returns
    /// whether it is locked: another holder may have it.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn try_lock(&self) -> Result<bool, FolderError> {
        match flock(&self.fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(io_error("locking", self.path.clone(), error)),
        }
    }

    /// Locks the folder as [`Folder::try_lock`] does, and waits for another holder.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn lock(&self) -> Result<(), FolderError> {
        flock(&self.fd, FlockOperation::LockExclusive)
            .map_err(|error| io_error("locking", self.path.clone(), error))
    }

    /// Removes a file, a symbolic link, or a folder with its content. Follows no link, and removes
    /// nothing from a folder of another user.
    ///
    /// # Errors
    /// [`FolderError::Io`]; a part may be removed then.
    pub fn remove_tree(&self, name: &(impl AsRef<OsStr> + ?Sized)) -> Result<(), FolderError> {
        let name = name.as_ref();
        remove_below(self.fd.as_fd(), name, DEPTH)
            .map_err(|error| io_error("removing", self.path.join(name), error))
    }

    /// Returns the size in bytes of a file.
    ///
    /// # Errors
    /// [`FolderError`]; [`FolderError::is_not_found`] if there is none.
    pub fn size_of(&self, name: &(impl AsRef<OsStr> + ?Sized)) -> Result<u64, FolderError> {
        let name = name.as_ref();
        let missing = || io_error("looking for", self.path.join(name), Errno::NOENT);
        let stat = self.stat(name)?.ok_or_else(missing)?;
        Ok(stat.st_size.unsigned_abs())
    }

    /// Renames a file, replacing a file with the new name.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn rename(
        &self,
        from: &(impl AsRef<OsStr> + ?Sized),
        to: &(impl AsRef<OsStr> + ?Sized),
    ) -> Result<(), FolderError> {
        let [from, to] = [from.as_ref(), to.as_ref()];
        renameat(&self.fd, from, &self.fd, to)
            .map_err(|error| io_error("writing", self.path.join(to), error))
    }

    /// Exchanges two files or folders, in one step.
    ///
    /// # Errors
    /// [`FolderError::Io`], also if the file system has no such rename.
    pub fn exchange(
        &self,
        one: &(impl AsRef<OsStr> + ?Sized),
        other: &(impl AsRef<OsStr> + ?Sized),
    ) -> Result<(), FolderError> {
        let [one, other] = [one.as_ref(), other.as_ref()];
        renameat_with(&self.fd, one, &self.fd, other, RenameFlags::EXCHANGE)
            .map_err(|error| io_error("writing", self.path.join(other), error))
    }

    /// Returns the names in the folder, in no order, without `.` and `..`.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn entries(&self) -> Result<Vec<OsString>, FolderError> {
        let failed = |error| io_error("listing", self.path.clone(), error);
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_owned().into_bytes();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    /// Makes all changes of names in the folder safe.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn sync(&self) -> Result<(), FolderError> {
        fsync(&self.fd).map_err(|error| io_error("syncing", self.path.clone(), error))
    }

    fn open_at(&self, name: &OsStr, flags: OFlags, mode: Mode) -> Result<OwnedFd, FolderError> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY;
        open_beneath(self.fd.as_fd(), name, flags, mode).map_err(|error| {
            let path = self.path.join(name);
            match error {
                Errno::LOOP => FolderError::Symlink { path },
                // `O_DIRECTORY` on a symbolic link is `ENOTDIR` too.
                Errno::NOTDIR => match self.stat(name) {
                    Ok(Some(stat)) if is(&stat, FileType::Symlink) => FolderError::Symlink { path },
                    _ => FolderError::WrongType { path, wanted: "a folder" },
                },
                // `EISDIR` is a folder, `ENXIO` a socket.
                Errno::ISDIR | Errno::NXIO => FolderError::WrongType { path, wanted: "a file" },
                error => io_error("opening", path, error),
            }
        })
    }

    fn stat(&self, name: &OsStr) -> Result<Option<Stat>, FolderError> {
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(io_error("looking for", self.path.join(name), error)),
        }
    }

    /// Checks that `stat` is of a regular file with one name that only this user can write.
    fn check_stat(&self, name: &OsStr, stat: &Stat) -> Result<(), FolderError> {
        let path = self.path.join(name);
        if is(stat, FileType::Symlink) {
            return Err(FolderError::Symlink { path });
        }
        if !is(stat, FileType::RegularFile) {
            return Err(FolderError::WrongType { path, wanted: "a file" });
        }
        self.check_owner(name, stat)?;
        let mode = stat.st_mode & 0o7777;
        if mode & WRITE_BY_OTHERS != 0 {
            let wanted = mode & !WRITE_BY_OTHERS;
            return Err(FolderError::TooPermissive { path, mode, wanted });
        }
        if stat.st_nlink > 1 { Err(FolderError::HardLinked { path }) } else { Ok(()) }
    }

    fn check_owner(&self, name: &OsStr, stat: &Stat) -> Result<(), FolderError> {
        let owner = stat.st_uid;
        let user = geteuid().as_raw();
        if owner == user {
            return Ok(());
        }
        let folder = self.path.clone();
        let path = self.path.join(name);
        Err(FolderError::WrongOwner { path, folder, owner, user })
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens a name in a folder, without following a symbolic link.
fn open_beneath(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    debug_assert!(!name.as_bytes().contains(&b'/'), "one component");
    // `openat2` refuses a mode without `O_CREAT`.
    let mode = if flags.contains(OFlags::CREATE) { mode } else { Mode::empty() };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    for _ in 0..TRIES {
        match openat2(folder, name, flags, mode, resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The kernel has no such call, or a sandbox refuses it.
            Err(Errno::NOSYS | Errno::PERM) => return openat(folder, name, flags, mode),
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

/// See [`Folder::remove_tree`].
fn remove_below(folder: BorrowedFd<'_>, name: &OsStr, depth: u32) -> Result<(), Errno> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR) => {}
        Err(error) => return Err(error),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inner = open_beneath(folder, name, flags, Mode::empty())?;
    if depth > 0 && fstat(&inner)?.st_uid == geteuid().as_raw() {
        let names: Result<Vec<_>, Errno> = Dir::read_from(&inner)?
            .map(|entry| Ok(OsString::from_vec(entry?.file_name().to_owned().into_bytes())))
            .collect();
        for name in names?.iter().filter(|name| *name != "." && *name != "..") {
            remove_below(inner.as_fd(), name, depth - 1)?;
        }
    }
    unlinkat(folder, name, AtFlags::REMOVEDIR)
}

fn is(stat: &Stat, file_type: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == file_type
}

#[cfg(test)]
mod tests;
