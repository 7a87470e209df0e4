//! Small files that belong to this user: keys, and the list of clients.
//!
//! Other users may be able to write the folder of a volume. So a file is opened below the folder's
//! descriptor, symbolic links are not followed, and then the open descriptor is examined: a regular
//! file of this user, with one name, that others cannot write, or not even read.
//!
//! A file is never written in place. Its new bytes are written to another file and synced, and that
//! file then gets the name.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use pelago_wire::Kind;
use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, fsync, linkat, openat,
    renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Permissions of new files.
const MODE: u32 = 0o600;
/// Attempts to lock, and to find a free name.
const TRIES: u32 = 100;
/// Time between two attempts to lock.
const PAUSE: Duration = Duration::from_millis(20);

/// The location of a file: an open folder, and a name in it.
#[derive(Debug)]
pub struct OwnFile {
    dir: OwnedFd,
    name: OsString,
    path: PathBuf,
}

/// The other users that may read a file. None may write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// No other user.
    Nobody,
    /// Every user.
    Everybody,
}

/// The stamp of a file: it changes when the file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The reason for which a file is not used. It was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OwnFileError {
    /// The file does not exist.
    #[error("{} does not exist", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file was to be created, and exists.
    #[error("{} exists, and is not overwritten", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Its permissions let other users read or write it.
    #[error(
        "{} is open to other users (mode {mode:04o}): close it with `chmod 600 {}`",
        path.display(), path.display()
    )]
    Permissions {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It belongs to another user.
    #[error("{} belongs to uid {owner}, and this process runs as uid {user}: run it as the owner",
        path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// The uid of its owner.
        owner: u32,
        /// The uid of this process.
        user: u32,
    },
    /// It is a symbolic link, a folder, a device, or a file with several names.
    #[error("{} is {found}: put an ordinary file there", path.display())]
    Type {
        /// The file.
        path: PathBuf,
        /// The kind of file, for a message: "a symbolic link".
        found: &'static str,
    },
    /// It is larger than such a file may be, or not text.
    #[error("{} is not a text of at most {limit} bytes", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        limit: usize,
    },
    /// Another process changes it.
    #[error("another process changes {}", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{doing} {} failed", path.display())]
    Io {
        /// The operation, for a message: "opening".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
}

impl OwnFileError {
    /// Returns what the caller can do about the error.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Missing { .. } => Kind::NotFound,
            Self::Exists { .. } => Kind::Exists,
            Self::Permissions { .. } | Self::Owner { .. } | Self::Type { .. } => Kind::Denied,
            Self::NotText { .. } => Kind::Invalid,
            Self::Busy { .. } => Kind::Busy,
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Kind::Denied,
                _ => Kind::Busy,
            },
        }
    }
}

impl OwnFile {
    /// Returns the location of the file at `path`. Follows symbolic links, because the user gave
    /// the path.
    ///
    /// # Errors
    /// [`OwnFileError::Missing`] if its folder does not exist.
    pub fn of(path: &Path) -> Result<Self, OwnFileError> {
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let Some(name) = target.file_name() else {
            return Err(OwnFileError::Type { path: path.to_owned(), found: "a folder" });
        };
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or_else(|| Path::new("."));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(CWD, parent, flags, Mode::empty()) {
            Ok(dir) => Ok(Self { dir, name: name.to_owned(), path: path.to_owned() }),
            Err(Errno::NOENT) => Err(OwnFileError::Missing { path: path.to_owned() }),
            Err(error) => Err(failed("opening", parent, error)),
        }
    }

    /// Returns the location of the file `name` in an open folder, whose path is for messages.
    ///
    /// # Errors
    /// [`OwnFileError::Io`].
    pub fn at(dir: impl AsFd, dir_path: &Path, name: &str) -> Result<Self, OwnFileError> {
        let path = dir_path.join(name);
        let dir = dir.as_fd().try_clone_to_owned();
        let dir = dir.map_err(|source| OwnFileError::Io {
            doing: "opening",
            path: dir_path.to_owned(),
            source,
        })?;
        Ok(Self { dir, name: name.into(), path })
    }

    /// Returns the path of the file, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the text of the file, which may have `limit` bytes, and its stamp.
    ///
    /// # Errors
    /// [`OwnFileError`]; [`OwnFileError::Missing`] if there is none.
    pub fn read(
        &self,
        readers: Readers,
        limit: usize,
    ) -> Result<(String, FileStamp), OwnFileError> {
        let (file, stamp) = self.open(readers)?;
        let mut bytes = Vec::new();
        let read = file.take(limit as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|source| self.io("reading", source))?;
        let not_text = || OwnFileError::NotText { path: self.path.clone(), limit };
        if bytes.len() > limit {
            return Err(not_text());
        }
        let text = String::from_utf8(bytes).map_err(|_| not_text())?;
        Ok((text, stamp))
    }

    /// Returns the stamp of the file.
    ///
    /// # Errors
    /// [`OwnFileError`]; [`OwnFileError::Missing`] if there is none.
    pub fn stamp(&self, readers: Readers) -> Result<FileStamp, OwnFileError> {
        self.open(readers).map(|(_, stamp)| stamp)
    }

    /// Creates the file with this text, on stable storage. It has the whole text or does not exist.
    ///
    /// # Errors
    /// [`OwnFileError`]; [`OwnFileError::Exists`] if there is one: it is never overwritten.
    pub fn create(&self, text: &str) -> Result<(), OwnFileError> {
        if statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(OwnFileError::Exists { path: self.path.clone() });
        }
        let (name, mut new) = self.create_unnamed()?;
        let written = new.write_all(text.as_bytes()).and_then(|()| new.sync_all());
        let created = written
            .map_err(|source| self.io("writing", source))
            .and_then(|()| self.rename_new(&name));
        if created.is_err() {
            let _removed = unlinkat(&self.dir, &name, AtFlags::empty());
        }
        created.and_then(|()| self.sync_dir())
    }

    /// Begins a change of the file, and keeps other processes from changing it meanwhile.
    ///
    /// # Errors
    /// [`OwnFileError`]; [`OwnFileError::Busy`] if another process changes it for seconds.
    pub fn edit(&self) -> Result<Edit<'_>, OwnFileError> {
        let mut name = self.name.clone();
        name.push(".new");
        for _ in 0..TRIES {
            let flags = OFlags::RDWR | OFlags::CREATE;
            let new = File::from(self.open_at(&name, flags)?);
            self.check(&self.metadata(&new)?, Readers::Nobody)?;
            match flock(&new, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => thread::sleep(PAUSE),
                Err(error) => return Err(failed("locking", &self.path, error)),
                // A process that had the lock before may have renamed or removed this one.
                Ok(()) if !self.is_named(&name, &new)? => {}
                Ok(()) => {
                    new.set_len(0).map_err(|source| self.io("writing", source))?;
                    return Ok(Edit { file: self, name, new, is_finished: false });
                }
            }
        }
        Err(OwnFileError::Busy { path: self.path.clone() })
    }

    fn open(&self, readers: Readers) -> Result<(File, FileStamp), OwnFileError> {
        let file = File::from(self.open_at(&self.name, OFlags::RDONLY)?);
        let metadata = self.metadata(&file)?;
        self.check(&metadata, readers)?;
        Ok((file, FileStamp::of(&metadata)))
    }

    fn open_at(&self, name: &OsStr, flags: OFlags) -> Result<OwnedFd, OwnFileError> {
        // `O_NONBLOCK`: a pipe that another user has put there must not block.
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let path = self.path.clone();
        openat(&self.dir, name, flags, Mode::from_raw_mode(MODE)).map_err(|error| match error {
            Errno::NOENT => OwnFileError::Missing { path },
            Errno::EXIST => OwnFileError::Exists { path },
            Errno::LOOP => OwnFileError::Type { path, found: "a symbolic link" },
            Errno::NXIO | Errno::ISDIR => OwnFileError::Type { path, found: "not a file" },
            error => failed("opening", &path, error),
        })
    }

    /// Checks that a file is a regular one of this user.
    fn check(&self, metadata: &Metadata, readers: Readers) -> Result<(), OwnFileError> {
        let path = || self.path.clone();
        if !metadata.is_file() {
            return Err(OwnFileError::Type { path: path(), found: "not a file" });
        }
        let owner = metadata.uid();
        let user = geteuid().as_raw();
        if owner != user {
            return Err(OwnFileError::Owner { path: path(), owner, user });
        }
        let mode = metadata.mode() & 0o7777;
        let forbidden = match readers {
            Readers::Nobody => 0o077,
            Readers::Everybody => 0o022,
        };
        if mode & forbidden != 0 {
            return Err(OwnFileError::Permissions { path: path(), mode });
        }
        if metadata.nlink() > 1 {
            return Err(OwnFileError::Type { path: path(), found: "a file with other names" });
        }
        Ok(())
    }

    /// Creates a file in the same folder, under a name that no other process uses.
    fn create_unnamed(&self) -> Result<(OsString, File), OwnFileError> {
        for number in 0..TRIES {
            let mut name = OsString::from(".");
            name.push(&self.name);
            name.push(format!(".{}.{number}", std::process::id()));
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
            match self.open_at(&name, flags) {
                // A process with this id died here before.
                Err(OwnFileError::Exists { .. }) => {}
                opened => return Ok((name, File::from(opened?))),
            }
        }
        Err(OwnFileError::Busy { path: self.path.clone() })
    }

    /// Gives a new file its name, unless a file has it.
    fn rename_new(&self, new: &OsStr) -> Result<(), OwnFileError> {
        let dir = &self.dir;
        let name = &self.name;
        let renamed = match renameat_with(dir, new, dir, name, RenameFlags::NOREPLACE) {
            // The file system has no such rename, as NFS: a link does not overwrite either.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                linkat(dir, new, dir, name, AtFlags::empty())
                    .and_then(|()| unlinkat(dir, new, AtFlags::empty()))
            }
            renamed => renamed,
        };
        renamed.map_err(|error| match error {
            Errno::EXIST => OwnFileError::Exists { path: self.path.clone() },
            error => failed("writing", &self.path, error),
        })
    }

    /// Returns whether an open file has this name.
    fn is_named(&self, name: &OsStr, file: &File) -> Result<bool, OwnFileError> {
        let metadata = self.metadata(file)?;
        match statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(stat.st_ino == metadata.ino()),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(failed("examining", &self.path, error)),
        }
    }

    fn metadata(&self, file: &File) -> Result<Metadata, OwnFileError> {
        file.metadata().map_err(|source| self.io("examining", source))
    }

    /// Makes the names in the folder safe.
    fn sync_dir(&self) -> Result<(), OwnFileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.dir, ".", flags, Mode::empty())
            .and_then(fsync)
            .map_err(|error| failed("syncing the folder of", &self.path, error))
    }

    fn io(&self, doing: &'static str, source: io::Error) -> OwnFileError {
        OwnFileError::Io { doing, path: self.path.clone(), source }
    }
}

impl FileStamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// A change of a file that has begun. The new file `NAME.new` is also the lock. After a crash it
/// stays, and the next change uses it.
#[derive(Debug)]
pub struct Edit<'a> {
    file: &'a OwnFile,
    name: OsString,
    new: File,
    is_finished: bool,
}

impl Edit<'_> {
    /// Replaces the file by one with this text, on stable storage.
    ///
    /// # Errors
    /// [`OwnFileError::Io`].
    pub fn finish(mut self, text: &str) -> Result<(), OwnFileError> {
        let file = self.file;
        let written = self.new.write_all(text.as_bytes()).and_then(|()| self.new.sync_all());
        written.map_err(|source| file.io("writing", source))?;
        renameat(&file.dir, &self.name, &file.dir, &file.name)
            .map_err(|error| failed("writing", &file.path, error))?;
        self.is_finished = true;
        file.sync_dir()
    }
}

impl Drop for Edit<'_> {
    /// Removes the new file if it did not get the name, while the lock is held.
    fn drop(&mut self) {
        if !self.is_finished {
            let _removed = unlinkat(&self.file.dir, &self.name, AtFlags::empty());
        }
    }
}

fn failed(doing: &'static str, path: &Path, error: Errno) -> OwnFileError {
    OwnFileError::Io { doing, path: path.to_owned(), source: error.into() }
}

#[cfg(test)]
mod tests;
