//! A volume: a folder with all files of a server, and the lock that keeps other servers out.
//!
//! ```text
//! format         id, version and features; makes the folder a volume
//! format.copy    the same bytes
//! lock           locked while a server has the volume open; holds its process id
//! clean          exists if the volume was closed cleanly
//! table/         files of the engine, and twice the key of the hash of names
//! content/       content files
//! reserve        disk space to release when the disk is full
//! log            messages of the server
//! control.sock   the socket of `pelago status`
//! pelago.sock    the socket for mounts by other processes of this machine
//! files/         the default mount point
//! key            the private key of the server
//! clients        the machines that may connect to the server
//! keys           names of keys, and the users as whom guests act
//! ```
//!
//! `format` and its copy are written last when a volume is created, and replaced when the volume
//! gets a feature. So a folder without them and with nothing in `table` and `content` is a volume
//! half created, and may be created again. A folder without them but with data in them is damaged,
//! and is not changed.
//!
//! A shared store is a volume in a folder that several servers reach ([`crate::owner`]).

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use pelago_wire::{ShardId, limits};
use rustix::fs::OFlags;

use self::detect::Detected;
use self::layout::{
    CLEAN, CONTENT, FILES, FORMAT, FORMAT_COPY, FORMAT_NEW, LOG, PUBLIC, RESERVE, SECRET, TABLE,
};
use self::lock::Lock;
use self::twice::{Pair, TwoFiles};
use crate::folder::Folder;
use crate::hash::NameHasher;
use crate::table::TableRead;

pub use error::VolumeError;
pub use features::{
    set_has_revocations, set_has_sites, set_not_primary, set_primary_again, set_tags_complete,
};
pub use format::{
    FORMAT_VERSION, Format, FormatError, NEEDED_FEATURES, NOT_PRIMARY, REVOCATIONS, SHARED_STORE,
    SITES, TAGS_ARE_COMPLETE, VolumeId,
};
pub use layout::{AUDIT, CHARTER, CLIENTS, ISSUER, KEY, KEYS, LISTEN, POLICY};
pub use mirror::{ReplacedFile, is_not_primary, read_mirrored, replace_file};
pub use paths::{mount_path, session_socket_path, socket_path};
pub use remains::Remains;
pub use seed::{HashSeed, SeedError};
pub use server_folder::{ServerFolder, store_of};
pub use shared::{SharedOptions, expect_store};
pub use twice::Mend;

mod detect;
mod error;
mod features;
mod format;
pub(crate) mod layout;
mod lock;
mod mirror;
mod paths;
mod remains;
mod seed;
mod server_folder;
mod shared;
mod twice;

/// The owner of the root directory of a new volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Owner {
    /// The user id in the volume.
    pub uid: u32,
    /// The group id in the volume.
    pub gid: u32,
}

/// Settings of a new volume, which never change afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeOptions {
    /// The size in bytes up to which a file is stored in the table. Values above
    /// [`limits::INLINE_BYTES`] count as that.
    pub inline_bytes: u32,
    /// The volume and the site whose folder this is; `None` founds a volume.
    pub site: Option<SiteOf>,
}

/// A site of a volume that exists elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiteOf {
    /// The id of the volume.
    pub volume: VolumeId,
    /// The number of the site: not 0.
    pub site: u16,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self { inline_bytes: limits::INLINE_DEFAULT_BYTES as u32, site: None }
    }
}

/// An open volume. No other process can open it until this is dropped, unless it is a shared store.
#[derive(Debug)]
pub struct Volume {
    folder: Folder,
    table: Folder,
    content: Folder,
    format: Format,
    seed: HashSeed,
    /// The seed of the copy, if it differs.
    other_seed: Option<HashSeed>,
    /// The small files that are to be written again.
    mends: Vec<Mend>,
    was_clean: bool,
    /// `None` in a shared store: a lock proves nothing to other machines.
    _lock: Option<Lock>,
}

impl Volume {
    /// Creates a volume in the folder `dir` and opens it. The folder must be missing, empty, or a
    /// volume half created.
    ///
    /// # Errors
    /// [`VolumeError`]; [`VolumeError::Exists`] if there is a volume already.
    pub fn create(dir: &Path, options: VolumeOptions) -> Result<Self, VolumeError> {
        let folder = match detect::detect(dir)? {
            Detected::Volume(_) => return Err(VolumeError::Exists { path: dir.into() }),
            Detected::Missing => {
                create_dir(dir)?;
                Folder::open(dir)?
            }
            Detected::Empty(folder) => folder,
        };
        detect::check_files(&folder)?;
        let lock = Lock::take(&folder)?;
        // Another process may have created a volume before we took the lock.
        if detect::is_volume(&folder)? {
            return Err(VolumeError::Exists { path: dir.into() });
        }
        let table = folder.create_folder(TABLE)?;
        let content = folder.create_folder(CONTENT)?;
        let inline_bytes = options.inline_bytes.min(limits::INLINE_BYTES as u32);
        let format = Format::new(inline_bytes, options.site)
            .map_err(|error| VolumeError::from_io("creating an id for", dir, error))?;
        let seed = HashSeed::create(&table)?;
        write_clean(&folder)?;
        write_format(&folder, &format)?;
        Ok(Self {
            folder,
            table,
            content,
            format,
            seed,
            other_seed: None,
            mends: Vec::new(),
            was_clean: true,
            _lock: Some(lock),
        })
    }

    /// Opens the volume in `dir`, of which this folder is the primary.
    ///
    /// # Errors
    /// [`VolumeError`]; [`VolumeError::Missing`] if there is none, [`VolumeError::NotPrimary`] if
    /// another folder is to be served.
    pub fn open(dir: &Path) -> Result<Self, VolumeError> {
        Self::open_if(dir, |format| match format.is_not_primary() {
            true => Err(VolumeError::NotPrimary { path: dir.into() }),
            false => Ok(()),
        })
    }

    /// Opens the volume in `dir` if `check` takes its format.
    fn open_if(
        dir: &Path,
        check: impl Fn(&Format) -> Result<(), VolumeError>,
    ) -> Result<Self, VolumeError> {
        let folder = match detect::detect(dir)? {
            Detected::Volume(folder) => folder,
            Detected::Missing | Detected::Empty(_) => {
                return Err(VolumeError::Missing { path: dir.into() });
            }
        };
        detect::check_files(&folder)?;
        // Read before the lock is taken too, because that writes to the folder: a volume that this
        // program cannot open must not change.
        let check = |format: &Format| match format.is_shared() {
            true => Err(VolumeError::SharedStore { path: dir.into() }),
            false => check(format),
        };
        check(&read_format(&folder)?.value)?;
        let lock = Lock::take(&folder)?;
        let Pair { value: format, mut mends, .. } = read_format(&folder)?;
        check(&format)?;
        let table = detect::open_subfolder(&folder, TABLE)?;
        let content = detect::open_subfolder(&folder, CONTENT)?;
        let seeds = HashSeed::read(&table)?;
        mends.extend(seeds.mends);
        let was_clean = folder.contains_file(CLEAN)?;
        Ok(Self {
            folder,
            table,
            content,
            format,
            seed: seeds.value,
            other_seed: seeds.other,
            mends,
            was_clean,
            _lock: Some(lock),
        })
    }

    /// Opens the volume in `dir`, or creates it with `options` if there is none.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub fn open_or_create(dir: &Path, options: VolumeOptions) -> Result<Self, VolumeError> {
        match Self::open(dir) {
            Err(VolumeError::Missing { .. }) => {}
            opened => return opened,
        }
        match Self::create(dir, options) {
            // Another process created it meanwhile. Open that one, once it is unlocked.
            Err(VolumeError::Exists { .. }) => Self::open(dir),
            created => created,
        }
    }

    /// Compares the seed with the names of the volume's table, and takes that of the copy if only
    /// that one fits. Called before [`Volume::hasher`].
    ///
    /// # Errors
    /// [`VolumeError::Corrupt`] if neither fits: they are of another volume.
    pub fn confirm_seed(&mut self, table: &dyn TableRead) -> Result<(), VolumeError> {
        let fits = |seed: &HashSeed| seed.fits(table);
        // If the names cannot be read, nothing speaks against the first one.
        if fits(&self.seed).unwrap_or(true) {
            return Ok(());
        }
        let what = "it is of another volume";
        let path = self.table.path().join(layout::SEED);
        match self.other_seed.take() {
            Some(other) if matches!(fits(&other), Ok(true)) => {
                self.seed = other;
                self.mends.retain(|mend| !seed::is_seed(&mend.path));
                self.mends.push(Mend { path, what, is_damage: true });
                Ok(())
            }
            _ => Err(VolumeError::Corrupt { path, what }),
        }
    }

    /// Returns which small files are damaged, missing or out of date. The volume is open by the
    /// second file of each.
    #[must_use]
    pub fn mends(&self) -> &[Mend] {
        &self.mends
    }

    /// Writes small files again that are damaged, missing or out of date. The caller has compared
    /// the volume's id with that of the table, and called [`Volume::confirm_seed`]; in a shared
    /// store it owns the shard.
    ///
    /// # Errors
    /// [`VolumeError`]. The call can be repeated.
    pub fn mend(&self) -> Result<(), VolumeError> {
        if self.mends.is_empty() {
            return Ok(());
        }
        let is_seed = |mend: &Mend| seed::is_seed(&mend.path);
        if self.mends.iter().any(is_seed) {
            self.seed.write(&self.table)?;
        }
        if !self.mends.iter().all(is_seed) {
            write_format(&self.folder, &self.format)?;
        }
        Ok(())
    }

    /// Marks the volume as in use, on stable storage. Nothing in the volume may change before. In a
    /// shared store this does nothing: the baton names its user ([`crate::owner`]).
    ///
    /// # Errors
    /// [`VolumeError`]. The volume still counts as clean then.
    pub fn mark_unclean(&self) -> Result<(), VolumeError> {
        if self.is_shared() {
            return Ok(());
        }
        self.folder.remove(CLEAN)?;
        Ok(self.folder.sync()?)
    }

    /// Marks the volume as closed cleanly. The caller must have made everything else safe, and must
    /// change nothing afterwards. In a shared store this does nothing, as
    /// [`Volume::mark_unclean`].
    ///
    /// # Errors
    /// [`VolumeError`]. The next open then recovers the volume, which only takes time.
    pub fn mark_clean(&self) -> Result<(), VolumeError> {
        if self.is_shared() {
            return Ok(());
        }
        write_clean(&self.folder)?;
        Ok(self.folder.sync()?)
    }

    /// Returns whether the folder is a shared store: others may have it open too.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.format.is_shared()
    }

    /// Returns whether the volume had been closed cleanly, or was new, when this process opened it;
    /// false for a shared store.
    #[must_use]
    pub const fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// Returns the path of the volume's folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the volume's folder. Other users may be able to write it.
    #[must_use]
    pub const fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Returns the folder of the engine's files. In a shared store it is the store: the engine's
    /// files are where [`crate::owner::Taken::folder`] says.
    #[must_use]
    pub const fn table(&self) -> &Folder {
        &self.table
    }

    /// Returns the folder of the content files.
    #[must_use]
    pub const fn content(&self) -> &Folder {
        &self.content
    }

    /// Opens the file of the reserve, or creates it if it is missing. Returns its path too.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub fn open_reserve(&self) -> Result<(File, PathBuf), VolumeError> {
        let file = self.folder.open_file(RESERVE, OFlags::WRONLY | OFlags::CREATE)?;
        Ok((file, self.dir().join(RESERVE)))
    }

    /// Returns id, version and features, as they were when the volume was opened.
    #[must_use]
    pub const fn format(&self) -> &Format {
        &self.format
    }

    /// Returns the shard whose rows are in the table: a site has one so far.
    #[must_use]
    pub const fn shard_id(&self) -> ShardId {
        ShardId { site: self.format.site, shard: 0 }
    }

    /// Returns the id.
    #[must_use]
    pub const fn id(&self) -> VolumeId {
        self.format.id
    }

    /// Returns the hasher of names.
    #[must_use]
    pub const fn hasher(&self) -> NameHasher {
        self.seed.hasher()
    }

    /// Returns the size in bytes up to which a file is stored in the table.
    #[must_use]
    pub const fn inline_bytes(&self) -> usize {
        self.format.inline_bytes as usize
    }

    /// Returns the path of the folder of the engine's files.
    #[must_use]
    pub fn table_dir(&self) -> PathBuf {
        self.table.path().into()
    }

    /// Returns the path of the folder of the content files.
    #[must_use]
    pub fn content_dir(&self) -> PathBuf {
        self.content.path().into()
    }
}

/// Opens the folder of the volume in `dir` without its lock, to read or change the files beside the
/// table. Checks that they belong to the user of this process: a file that another user adds would
/// be refused by the server.
///
/// # Errors
/// [`VolumeError`]; [`VolumeError::Missing`] if there is none.
pub fn open_folder(dir: &Path) -> Result<Folder, VolumeError> {
    match detect::detect(dir)? {
        Detected::Volume(folder) => {
            detect::check_files(&folder)?;
            Ok(folder)
        }
        Detected::Missing | Detected::Empty(_) => Err(VolumeError::Missing { path: dir.into() }),
    }
}

/// Opens the log of the volume in `folder` for appending, or creates it.
///
/// # Errors
/// [`VolumeError`].
pub fn open_log(folder: &Folder) -> Result<File, VolumeError> {
    Ok(folder.open_file(LOG, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE)?)
}

/// Opens the default mount point of the volume in `folder`, or creates it.
///
/// # Errors
/// [`VolumeError`].
pub fn create_mount_point(folder: &Folder) -> Result<Folder, VolumeError> {
    Ok(folder.create_folder(FILES)?)
}

/// Returns the id of the process that has the volume in `dir` open. Returns `None` if there is no
/// such process, or if this user cannot see it. Changes nothing.
#[must_use]
pub fn lock_holder(dir: &Path) -> Option<u32> {
    lock::lock_holder(dir)
}

const FORMAT_FILES: TwoFiles =
    TwoFiles { first: FORMAT, copy: FORMAT_COPY, new: FORMAT_NEW, mode: PUBLIC };

fn read_format(folder: &Folder) -> Result<Pair<Format>, VolumeError> {
    twice::read(folder, &FORMAT_FILES, format::MAX_BYTES, |path, bytes| {
        Format::decode(bytes).map_err(|error| VolumeError::from_format(path, error))
    })
}

/// Creates a folder and its missing parents, and makes their names safe.
fn create_dir(dir: &Path) -> Result<(), VolumeError> {
    let parent = match dir.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    if !exists(parent)? {
        create_dir(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
        created => created.map_err(|error| VolumeError::from_io("creating", dir, error))?,
    }
    sync_dir(parent)
}

fn write_clean(folder: &Folder) -> Result<(), VolumeError> {
    let written = folder.replace_file(CLEAN, SECRET)?.sync_all();
    written.map_err(|error| VolumeError::from_io("writing", &folder.path().join(CLEAN), error))
}

fn write_format(folder: &Folder, format: &Format) -> Result<(), VolumeError> {
    twice::write(folder, &FORMAT_FILES, &format.encode())
}

fn sync_dir(dir: &Path) -> Result<(), VolumeError> {
    File::open(dir)
        .and_then(|file| file.sync_all())
        .map_err(|error| VolumeError::from_io("syncing", dir, error))
}

fn exists(path: &Path) -> Result<bool, VolumeError> {
    path.try_exists().map_err(|error| VolumeError::from_io("looking for", path, error))
}
