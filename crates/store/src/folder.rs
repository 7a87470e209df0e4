//! A folder held by a descriptor: what is in it is opened below that, never through a path.
//!
//! Other users may be able to write the folder of a volume: they can lay anything into it, and swap
//! it at any moment. So each name is opened with `openat2`, which follows no symbolic link, and
//! what was opened is looked at by its descriptor: it belongs to the user of this process, nobody
//! else may write it, and it has no second name. A folder of ours has mode 0700, so what is in it
//! needs no more looking at.
//!
//! Linux before 5.6, and some sandboxes, have no `openat2`. Then `openat` with `O_NOFOLLOW` does
//! the same, because the names that are opened here are single components.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, fsync, mkdirat, openat,
    openat2, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// A folder that is open. Clones share the descriptor.
#[derive(Debug, Clone)]
pub struct Folder {
    fd: Arc<OwnedFd>,
    path: PathBuf,
}

/// Why something in a folder is not used. It was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// Another user's.
    #[error(
        "{} belongs to uid {owner}, and this process runs as uid {user}: run it as the owner, or \
         take the volume over with `chown -R {user} {}`", path.display(), folder.display()
    )]
    Foreign {
        /// What it is.
        path: PathBuf,
        /// The folder it is in.
        folder: PathBuf,
        /// Whose it is.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// Other users have rights that they must not have.
    #[error(
        "{} is open to other users (mode {mode:04o}): close it with `chmod {wanted:o} {}`",
        path.display(), path.display()
    )]
    Exposed {
        /// What it is.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// What they have to be.
        wanted: u32,
    },
    /// A symbolic link.
    #[error("{} is a symbolic link, which is not followed: remove it", path.display())]
    Link {
        /// What it is.
        path: PathBuf,
    },
    /// A file that has other names.
    #[error("{} has other names (hard links): remove it, or copy it and put back the copy",
        path.display())]
    Shared {
        /// What it is.
        path: PathBuf,
    },
    /// Something else than is wanted there.
    #[error("{} is not {wanted}: move it away", path.display())]
    Kind {
        /// What it is.
        path: PathBuf,
        /// What it has to be.
        wanted: &'static str,
    },
    /// The system answered an error.
    #[error("{doing} {} failed", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system answered.
        #[source]
        source: io::Error,
    },
}

/// Permissions of a folder of ours.
const FOLDER_MODE: u32 = 0o700;
/// Permissions of a file of ours.
const FILE_MODE: u32 = 0o600;
/// What others may not have of a file of ours.
const WRITE_BY_OTHERS: u32 = 0o022;
/// Times an open is tried that a rename elsewhere disturbed.
const TRIES: u32 = 8;

impl Folder {
    /// Opens the folder at `path`, following links on the way: the user named it.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, path, flags, Mode::empty());
        let fd = opened.map_err(|error| io_error("opening", path.into(), error))?;
        Ok(Self { fd: Arc::new(fd), path: path.into() })
    }

    /// Returns the path it was opened by, for people to read.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a path that leads to this folder wherever it is moved, while this process has it
    /// open.
    #[must_use]
    pub fn proc_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    /// Opens a folder in it that is ours alone.
    ///
    /// # Errors
    /// [`FolderError`]; [`FolderError::is_missing`] if there is none.
    pub fn folder(&self, name: &str) -> Result<Self, FolderError> {
        let path = self.path.join(name);
        let fd = self.open_at(name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let stat = fstat(&fd).map_err(|error| io_error("looking at", path.clone(), error))?;
        self.expect_ours(name, &stat)?;
        let mode = stat.st_mode & 0o7777;
        if mode & !FOLDER_MODE != 0 {
            return Err(FolderError::Exposed { path, mode, wanted: FOLDER_MODE });
        }
        Ok(Self { fd: Arc::new(fd), path })
    }

    /// Opens a folder in it that is ours alone, made if it is missing.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn make_folder(&self, name: &str) -> Result<Self, FolderError> {
        match mkdirat(&self.fd, name, Mode::from_raw_mode(FOLDER_MODE)) {
            Ok(()) | Err(Errno::EXIST) => self.folder(name),
            Err(error) => Err(io_error("making", self.path.join(name), error)),
        }
    }

    /// Opens a file in it that is ours. With [`OFlags::CREATE`] it is made if it is missing.
    ///
    /// # Errors
    /// [`FolderError`]; [`FolderError::is_missing`] if there is none.
    pub fn file(&self, name: &str, flags: OFlags) -> Result<File, FolderError> {
        // A pipe that was laid there must not stop us.
        let fd = self.open_at(name, flags | OFlags::NONBLOCK, Mode::from_raw_mode(FILE_MODE))?;
        let looking = |error| io_error("looking at", self.path.join(name), error);
        let stat = fstat(&fd).map_err(looking)?;
        self.expect_file(name, &stat)?;
        let flags = rustix::fs::fcntl_getfl(&fd).map_err(looking)?;
        rustix::fs::fcntl_setfl(&fd, flags - OFlags::NONBLOCK).map_err(looking)?;
        Ok(File::from(fd))
    }

    /// Opens a file in it to read only, whoever owns it: what is read there decides nothing.
    pub(crate) fn file_of_anybody(&self, name: &str) -> Result<File, FolderError> {
        Ok(File::from(self.open_at(name, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?))
    }

    /// Makes a new file in the place of what has the name, which only loses the name.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn new_file(&self, name: &str, mode: u32) -> Result<File, FolderError> {
        self.remove(name)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        Ok(File::from(self.open_at(name, flags, Mode::from_raw_mode(mode))?))
    }

    /// Checks without opening it that a name is free, or that of a file of ours.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn expect_file_or_nothing(&self, name: &str) -> Result<(), FolderError> {
        match self.look(name)? {
            None => Ok(()),
            Some(stat) => self.expect_file(name, &stat),
        }
    }

    /// Answers whether a name is there, whatever it leads to.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn has(&self, name: &str) -> Result<bool, FolderError> {
        Ok(self.look(name)?.is_some())
    }

    /// Answers whether a file of ours has the name.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn has_file(&self, name: &str) -> Result<bool, FolderError> {
        self.expect_file_or_nothing(name)?;
        self.has(name)
    }

    /// Removes a name, if it is there; a symbolic link, not what it leads to.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn remove(&self, name: &str) -> Result<(), FolderError> {
        match unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(io_error("removing", self.path.join(name), error)),
        }
    }

    /// Gives a file in it another name, in the place of what had it.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn rename(&self, from: &str, to: &str) -> Result<(), FolderError> {
        renameat(&self.fd, from, &self.fd, to)
            .map_err(|error| io_error("writing", self.path.join(to), error))
    }

    /// Returns the names in it.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn names(&self) -> Result<Vec<OsString>, FolderError> {
        let listing = |error| io_error("listing", self.path.clone(), error);
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd).map_err(listing)? {
            let name = entry.map_err(listing)?.file_name().to_owned().into_bytes();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    /// Makes the names in it safe.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn sync(&self) -> Result<(), FolderError> {
        fsync(&self.fd).map_err(|error| io_error("syncing", self.path.clone(), error))
    }

    fn open_at(&self, name: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, FolderError> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY;
        open_beneath(self.fd.as_fd(), name, flags, mode).map_err(|error| {
            let path = self.path.join(name);
            match error {
                Errno::LOOP => FolderError::Link { path },
                Errno::NOTDIR => match self.look(name) {
                    Ok(Some(stat)) if is(&stat, FileType::Symlink) => FolderError::Link { path },
                    _ => FolderError::Kind { path, wanted: "a folder" },
                },
                // A folder or a socket.
                Errno::ISDIR | Errno::NXIO => FolderError::Kind { path, wanted: "a file" },
                error => io_error("opening", path, error),
            }
        })
    }

    fn look(&self, name: &str) -> Result<Option<Stat>, FolderError> {
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(io_error("looking for", self.path.join(name), error)),
        }
    }

    fn expect_file(&self, name: &str, stat: &Stat) -> Result<(), FolderError> {
        let path = self.path.join(name);
        if is(stat, FileType::Symlink) {
            return Err(FolderError::Link { path });
        }
        if !is(stat, FileType::RegularFile) {
            return Err(FolderError::Kind { path, wanted: "a file" });
        }
        self.expect_ours(name, stat)?;
        let mode = stat.st_mode & 0o7777;
        if mode & WRITE_BY_OTHERS != 0 {
            let wanted = mode & !WRITE_BY_OTHERS;
            return Err(FolderError::Exposed { path, mode, wanted });
        }
        if stat.st_nlink > 1 { Err(FolderError::Shared { path }) } else { Ok(()) }
    }

    fn expect_ours(&self, name: &str, stat: &Stat) -> Result<(), FolderError> {
        let (owner, user) = (stat.st_uid, geteuid().as_raw());
        if owner == user {
            return Ok(());
        }
        let (path, folder) = (self.path.join(name), self.path.clone());
        Err(FolderError::Foreign { path, folder, owner, user })
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl FolderError {
    /// Answers whether there is no such file.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Opens one name below a folder; neither it nor anything on the way is a symbolic link.
fn open_beneath(
    folder: BorrowedFd<'_>,
    name: &str,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    debug_assert!(!name.contains('/'), "one component");
    // With `O_CREAT` alone may a mode be given.
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

fn is(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}

fn io_error(doing: &'static str, path: PathBuf, error: Errno) -> FolderError {
    FolderError::Io { doing, path, source: error.into() }
}
