//! A volume: a folder with the files that a server keeps, and who may use it now.
//!
//! ```text
//! format         what the volume is (this makes it one); never changes
//! lock           held while a server has the volume open; its process id is inside
//! clean          there while the volume was stopped cleanly
//! table/         the engine's files
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

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use pelago_wire::limits;

use self::folder::Found;
use self::lock::Lock;
use crate::hash::NameHasher;

pub use error::VolumeError;
pub use format::{FORMAT_VERSION, Format, FormatFault, VolumeId};

mod error;
mod folder;
mod format;
mod lock;

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
    dir: PathBuf,
    format: Format,
    was_clean: bool,
    _lock: Lock,
}

impl Volume {
    /// Makes a volume in `dir`, which is missing or empty (or a volume half made), and opens it.
    ///
    /// # Errors
    /// [`VolumeError`]; [`VolumeError::Exists`] where it is a volume already.
    pub fn create(dir: &Path, options: VolumeOptions) -> Result<Self, VolumeError> {
        match folder::look(dir)? {
            Found::Volume => return Err(VolumeError::Exists { path: dir.into() }),
            Found::Missing => make_dir(dir)?,
            Found::Nothing => {}
        }
        let lock = Lock::take(dir)?;
        // Somebody may have been faster between the look and the lock.
        if folder::look(dir)? == Found::Volume {
            return Err(VolumeError::Exists { path: dir.into() });
        }
        for folder in [TABLE, CONTENT] {
            let path = dir.join(folder);
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made.map_err(|error| VolumeError::from_io("making", &path, error))?,
            }
        }
        let format = Format::new(options.inline_bytes.min(limits::INLINE_BYTES as u32))
            .map_err(|error| VolumeError::from_io("making an id for", dir, error))?;
        write_clean(dir)?;
        write_format(dir, &format)?;
        Ok(Self { dir: dir.into(), format, was_clean: true, _lock: lock })
    }

    /// Opens the volume in `dir`.
    ///
    /// # Errors
    /// [`VolumeError`]; [`VolumeError::Missing`] where there is none yet.
    pub fn open(dir: &Path) -> Result<Self, VolumeError> {
        match folder::look(dir)? {
            Found::Volume => {}
            Found::Missing | Found::Nothing => {
                return Err(VolumeError::Missing { path: dir.into() });
            }
        }
        // Read before the lock too: nothing is written to what is not ours to use.
        read_format(dir)?;
        let lock = Lock::take(dir)?;
        let format = read_format(dir)?;
        for folder in [TABLE, CONTENT] {
            folder::expect_folder(&dir.join(folder))?;
        }
        let was_clean = is_there(&dir.join(CLEAN))?;
        Ok(Self { dir: dir.into(), format, was_clean, _lock: lock })
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
        let path = self.dir.join(CLEAN);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed.map_err(|error| VolumeError::from_io("removing", &path, error))?,
        }
        sync_dir(&self.dir)
    }

    /// Says on the medium that everything in the volume is whole. The caller has made all else safe
    /// before, and changes nothing afterwards.
    ///
    /// # Errors
    /// [`VolumeError`]; the volume then counts as stopped uncleanly, which costs only time.
    pub fn mark_clean(&self) -> Result<(), VolumeError> {
        write_clean(&self.dir)?;
        sync_dir(&self.dir)
    }

    /// Whether it was stopped cleanly before it was opened now.
    #[must_use]
    pub const fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// Its folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
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
        NameHasher::new(self.format.hash_seed)
    }

    /// Bytes of a file that are kept in the table.
    #[must_use]
    pub const fn inline_bytes(&self) -> usize {
        self.format.inline_bytes as usize
    }

    /// The folder of the engine's files.
    #[must_use]
    pub fn table_dir(&self) -> PathBuf {
        self.dir.join(TABLE)
    }

    /// The folder of the content files.
    #[must_use]
    pub fn content_dir(&self) -> PathBuf {
        self.dir.join(CONTENT)
    }
}

/// Where the server of the volume in `dir` writes its log.
#[must_use]
pub fn log_path(dir: &Path) -> PathBuf {
    dir.join(LOG)
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
pub(crate) const RESERVE: &str = "reserve";
const LOG: &str = "log";
const SOCKET: &str = "control.sock";
const FILES: &str = "files";

/// The names that the files of a volume have.
const NAMES: [&str; 10] =
    [FORMAT, FORMAT_NEW, LOCK, CLEAN, TABLE, CONTENT, RESERVE, LOG, SOCKET, FILES];

fn read_format(dir: &Path) -> Result<Format, VolumeError> {
    let path = dir.join(FORMAT);
    let bytes = fs::read(&path).map_err(|error| VolumeError::from_io("reading", &path, error))?;
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

fn write_clean(dir: &Path) -> Result<(), VolumeError> {
    let path = dir.join(CLEAN);
    let made = File::create(&path).and_then(|file| file.sync_all());
    made.map_err(|error| VolumeError::from_io("writing", &path, error))
}

/// Writes the file so that either it is there whole or it is not.
fn write_format(dir: &Path, format: &Format) -> Result<(), VolumeError> {
    let new = dir.join(FORMAT_NEW);
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(&format.encode())?;
        file.sync_all()
    });
    written.map_err(|error| VolumeError::from_io("writing", &new, error))?;
    let path = dir.join(FORMAT);
    fs::rename(&new, &path).map_err(|error| VolumeError::from_io("writing", &path, error))?;
    sync_dir(dir)
}

fn sync_dir(dir: &Path) -> Result<(), VolumeError> {
    File::open(dir)
        .and_then(|file| file.sync_all())
        .map_err(|error| VolumeError::from_io("syncing", dir, error))
}

fn is_there(path: &Path) -> Result<bool, VolumeError> {
    path.try_exists().map_err(|error| VolumeError::from_io("looking for", path, error))
}
