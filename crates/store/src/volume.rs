//! A volume: a folder with the files that a server keeps, and who may use it now.
//!
//! ```text
//! format         what the volume is (this makes it one); never changes
//! lock           held while a server has the volume open; its process id is inside
//! clean          there while the volume was stopped cleanly
//! table/         the engine's files, and the key of the hash of names
//! content/       content files
//! reserve        space to give up when the medium is full
//! log            what the server says
//! control.sock   where `status` asks
//! files/         where it is mounted, unless told otherwise
//! ```
//!
//! Making a volume writes `format` last: a folder without it, and with nothing in `table` and
//! `content`, is a volume half made, and is made again. A folder without it and with something in
//! them has lost its `format`, and is left alone.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use pelago_wire::limits;
use rustix::fs::OFlags;

use self::found::Found;
use self::lock::Lock;
use crate::folder::Folder;
use crate::hash::NameHasher;

pub use error::VolumeError;
pub use format::{FORMAT_VERSION, Format, FormatFault, VolumeId};
pub use seed::Seed;

mod error;
mod format;
mod found;
mod lock;
mod seed;

/// What is chosen when a volume is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeOptions {
    /// Bytes of a file that are kept in the table, to [`limits::INLINE_BYTES`]; more are cut to it.
    pub inline_bytes: u32,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self { inline_bytes: limits::INLINE_DEFAULT_BYTES as u32 }
    }
}

/// A volume that this process has to itself until it is dropped.
#[derive(Debug)]
pub struct Volume {
    folder: Folder,
    table: Folder,
    content: Folder,
    format: Format,
    seed: Seed,
    was_clean: bool,
    _lock: Lock,
}

impl Volume {
    /// Makes a volume in `dir`, which is missing or empty (or a volume half made), and opens it.
    ///
    /// # Errors
    /// [`VolumeError`]; [`VolumeError::Exists`] where it is a volume already.
    pub fn create(dir: &Path, options: VolumeOptions) -> Result<Self, VolumeError> {
        let folder = match found::look(dir)? {
            Found::Volume(_) => return Err(VolumeError::Exists { path: dir.into() }),
            Found::Missing => {
                make_dir(dir)?;
                Folder::open(dir)?
            }
            Found::Nothing(folder) => folder,
        };
        found::expect_ours(&folder)?;
        let lock = Lock::take(&folder)?;
        // Somebody may have been faster between the look and the lock.
        if folder.has(FORMAT)? {
            return Err(VolumeError::Exists { path: dir.into() });
        }
        let (table, content) = (folder.make_folder(TABLE)?, folder.make_folder(CONTENT)?);
        let format = Format::new(options.inline_bytes.min(limits::INLINE_BYTES as u32))
            .map_err(|error| VolumeError::from_io("making an id for", dir, error))?;
        let seed = Seed::make(&table)?;
        write_clean(&folder)?;
        write_format(&folder, &format)?;
        Ok(Self { folder, table, content, format, seed, was_clean: true, _lock: lock })
    }

    /// Opens the volume in `dir`.
    ///
    /// # Errors
    /// [`VolumeError`]; [`VolumeError::Missing`] where there is none yet.
    pub fn open(dir: &Path) -> Result<Self, VolumeError> {
        let folder = match found::look(dir)? {
            Found::Volume(folder) => folder,
            Found::Missing | Found::Nothing(_) => {
                return Err(VolumeError::Missing { path: dir.into() });
            }
        };
        found::expect_ours(&folder)?;
        // Read before the lock too: nothing is written to what is not ours to use.
        read_format(&folder)?;
        let lock = Lock::take(&folder)?;
        let format = read_format(&folder)?;
        let table = found::expect_folder(&folder, TABLE)?;
        let content = found::expect_folder(&folder, CONTENT)?;
        let seed = Seed::read(&table)?;
        let was_clean = folder.has_file(CLEAN)?;
        Ok(Self { folder, table, content, format, seed, was_clean, _lock: lock })
    }

    /// Opens the volume in `dir`, made with `options` where there is none yet.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub fn open_or_create(dir: &Path, options: VolumeOptions) -> Result<Self, VolumeError> {
        match Self::open(dir) {
            Err(VolumeError::Missing { .. }) => {}
            opened => return opened,
        }
        match Self::create(dir, options) {
            // Somebody was faster: theirs is as good, once they let it go.
            Err(VolumeError::Exists { .. }) => Self::open(dir),
            created => created,
        }
    }

    /// Says on the medium that the volume is in use. It is safe when this returns; nothing may be
    /// changed in the volume before.
    ///
    /// # Errors
    /// [`VolumeError`]; the volume counts as clean still.
    pub fn mark_unclean(&self) -> Result<(), VolumeError> {
        self.folder.remove(CLEAN)?;
        Ok(self.folder.sync()?)
    }

    /// Says on the medium that everything in the volume is whole. The caller has made all else safe
    /// before, and changes nothing afterwards.
    ///
    /// # Errors
    /// [`VolumeError`]; the volume then counts as stopped uncleanly, which costs only time.
    pub fn mark_clean(&self) -> Result<(), VolumeError> {
        write_clean(&self.folder)?;
        Ok(self.folder.sync()?)
    }

    /// Whether it was stopped cleanly before it was opened now.
    #[must_use]
    pub const fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// Its folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// Returns its folder, open. Others may be able to write it.
    #[must_use]
    pub const fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Returns the folder of the engine's files, open.
    #[must_use]
    pub const fn table(&self) -> &Folder {
        &self.table
    }

    /// Returns the folder of the content files, open.
    #[must_use]
    pub const fn content(&self) -> &Folder {
        &self.content
    }

    /// Opens the file of the reserve, made if it is missing. Answers its path too.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub fn reserve(&self) -> Result<(File, PathBuf), VolumeError> {
        let file = self.folder.file(RESERVE, OFlags::WRONLY | OFlags::CREATE)?;
        Ok((file, self.dir().join(RESERVE)))
    }

    /// What it is.
    #[must_use]
    pub const fn format(&self) -> &Format {
        &self.format
    }

    /// Its id.
    #[must_use]
    pub const fn id(&self) -> VolumeId {
        self.format.id
    }

    /// The hasher of its names.
    #[must_use]
    pub const fn hasher(&self) -> NameHasher {
        self.seed.hasher()
    }

    /// Bytes of a file that are kept in the table.
    #[must_use]
    pub const fn inline_bytes(&self) -> usize {
        self.format.inline_bytes as usize
    }

    /// The folder of the engine's files.
    #[must_use]
    pub fn table_dir(&self) -> PathBuf {
        self.table.path().into()
    }

    /// The folder of the content files.
    #[must_use]
    pub fn content_dir(&self) -> PathBuf {
        self.content.path().into()
    }
}

/// Opens the log of the volume in this folder, to append to it.
///
/// # Errors
/// [`VolumeError`].
pub fn open_log(folder: &Folder) -> Result<File, VolumeError> {
    Ok(folder.file(LOG, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE)?)
}

/// Opens the directory in this folder where the volume is mounted unless told otherwise, made if it
/// is missing.
///
/// # Errors
/// [`VolumeError`].
pub fn make_mount_point(folder: &Folder) -> Result<Folder, VolumeError> {
    Ok(folder.make_folder(FILES)?)
}

/// Where the server of the volume in `dir` answers `status`. The path may be too long for a
/// socket; who uses it goes through a descriptor of the folder.
#[must_use]
pub fn socket_path(dir: &Path) -> PathBuf {
    dir.join(SOCKET)
}

/// Where the volume in `dir` is mounted unless told otherwise.
#[must_use]
pub fn mount_path(dir: &Path) -> PathBuf {
    dir.join(FILES)
}

/// Who has the volume in `dir` open, where that can be seen without changing anything.
#[must_use]
pub fn holder(dir: &Path) -> Option<u32> {
    lock::holder(dir)
}

const FORMAT: &str = "format";
const FORMAT_NEW: &str = "format.new";
const LOCK: &str = "lock";
const CLEAN: &str = "clean";
const TABLE: &str = "table";
const CONTENT: &str = "content";
const RESERVE: &str = "reserve";
const LOG: &str = "log";
const SOCKET: &str = "control.sock";
const FILES: &str = "files";

/// The names that the files of a volume have.
const NAMES: [&str; 10] =
    [FORMAT, FORMAT_NEW, LOCK, CLEAN, TABLE, CONTENT, RESERVE, LOG, SOCKET, FILES];

fn read_format(folder: &Folder) -> Result<Format, VolumeError> {
    let path = folder.path().join(FORMAT);
    let mut bytes = Vec::new();
    let file = folder.file(FORMAT, OFlags::RDONLY)?;
    file.take(format::BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| VolumeError::from_io("reading", &path, error))?;
    Format::decode(&bytes).map_err(|fault| VolumeError::from_fault(&path, fault))
}

/// Makes a folder and those above it that are missing; the name of each is safe then.
fn make_dir(dir: &Path) -> Result<(), VolumeError> {
    let parent = match dir.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    if !is_there(parent)? {
        make_dir(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
        made => made.map_err(|error| VolumeError::from_io("making", dir, error))?,
    }
    sync_dir(parent)
}

fn write_clean(folder: &Folder) -> Result<(), VolumeError> {
    let made = folder.new_file(CLEAN, SECRET)?.sync_all();
    made.map_err(|error| VolumeError::from_io("writing", &folder.path().join(CLEAN), error))
}

/// Writes the file so that either it is there whole or it is not.
fn write_format(folder: &Folder, format: &Format) -> Result<(), VolumeError> {
    let mut file = folder.new_file(FORMAT_NEW, PUBLIC)?;
    let written = file.write_all(&format.encode()).and_then(|()| file.sync_all());
    let new = folder.path().join(FORMAT_NEW);
    written.map_err(|error| VolumeError::from_io("writing", &new, error))?;
    folder.rename(FORMAT_NEW, FORMAT)?;
    Ok(folder.sync()?)
}

fn sync_dir(dir: &Path) -> Result<(), VolumeError> {
    File::open(dir)
        .and_then(|file| file.sync_all())
        .map_err(|error| VolumeError::from_io("syncing", dir, error))
}

fn is_there(path: &Path) -> Result<bool, VolumeError> {
    path.try_exists().map_err(|error| VolumeError::from_io("looking for", path, error))
}

/// Permissions of a file that others may read.
const PUBLIC: u32 = 0o644;
/// Permissions of a file that nobody else may read.
const SECRET: u32 = 0o600;
