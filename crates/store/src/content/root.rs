//! The folder `content` and its 256 subfolders: names of content files, and which of them are
//! safe.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use pelago_wire::{Generation, InodeId};
use rustix::fs::{
    Mode, OFlags, StatVfsMountFlags, fstatfs, fstatvfs, fsync, mkdirat, openat, syncfs,
};
use rustix::io::Errno;

use super::error::Error;
use super::spread::spread;
use crate::folder::Folder;
use crate::sync::Mutex;

const SUBFOLDERS: usize = 256;
/// The type of a file system below FUSE (`linux/magic.h`).
const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;

/// The folder `content`, shared by all open content files.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    folder: Folder,
    subfolders: Vec<Subfolder>,
    has_syncfs: bool,
    keeps_atime: bool,
}

/// The names in one subfolder since the volume was opened.
#[derive(Debug)]
struct Subfolder {
    /// The number of names created. Starts at 1, which stands for all older names, which may not be
    /// safe.
    created: AtomicU64,
    /// The number of names that are safe. Locked while the subfolder is synced, so that a thread
    /// that waits finds its name safe; no other lock is taken meanwhile.
    synced: Mutex<u64>,
}

impl Default for Subfolder {
    fn default() -> Self {
        Self { created: AtomicU64::new(1), synced: Mutex::new(0) }
    }
}

impl Root {
    /// Opens the folder, and lets its file system spread the content files.
    pub(super) fn open(folder: &Folder) -> Result<Self, Error> {
        spread(folder);
        Self::open_unchanged(folder)
    }

    /// Opens the folder without a change of it.
    pub(super) fn open_unchanged(folder: &Folder) -> Result<Self, Error> {
        let path = folder.path().to_path_buf();
        let failed = |error| Error::new("examining", path.clone(), error);
        // FUSE does not pass `syncfs` on to its server: the call succeeds and does nothing.
        let has_syncfs = fstatfs(folder).map_err(failed)?.f_type != FUSE_SUPER_MAGIC;
        let mount = fstatvfs(folder).map_err(failed)?;
        let keeps_atime = !mount.f_flag.contains(StatVfsMountFlags::NOATIME);
        let subfolders = (0..SUBFOLDERS).map(|_| Subfolder::default()).collect();
        Ok(Self { path, folder: folder.clone(), subfolders, has_syncfs, keeps_atime })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Returns whether `syncfs` reaches the disk.
    pub(super) fn has_syncfs(&self) -> bool {
        self.has_syncfs
    }

    #[cfg(test)]
    pub(super) fn set_has_syncfs(&mut self, has_syncfs: bool) {
        self.has_syncfs = has_syncfs;
    }

    /// Returns whether the file system is mounted without `noatime`.
    pub(super) fn keeps_atime(&self) -> bool {
        self.keeps_atime
    }

    /// Opens a file by its path below the root.
    pub(super) fn open_file(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        openat(&self.folder, name, flags, Mode::RUSR | Mode::WUSR)
    }

    /// Creates a content file and opens it for reading and writing. `if_exists` is `TRUNC`, to
    /// truncate an existing file, or `EXCL`, to fail if there is one. Creates its subfolder if that
    /// is missing.
    pub(super) fn create_file(&self, name: &str, if_exists: OFlags) -> Result<OwnedFd, Error> {
        let flags = OFlags::RDWR | OFlags::CREATE | if_exists;
        let created = match self.open_file(name, flags) {
            Err(Errno::NOENT) => {
                let subfolder = &name[..2];
                match mkdirat(&self.folder, subfolder, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => self.open_file(name, flags),
                    Err(error) => {
                        return Err(Error::new("creating", self.path.join(subfolder), error));
                    }
                }
            }
            opened => opened,
        };
        created.map_err(|error| Error::new("creating", self.path.join(name), error))
    }

    fn subfolder(&self, ino: InodeId) -> &Subfolder {
        &self.subfolders[subfolder_of(ino) as usize]
    }

    /// Returns the number for [`Root::sync_name`] of a name that was just created, or found.
    pub(super) fn name_number(&self, ino: InodeId, is_new: bool) -> u64 {
        let subfolder = self.subfolder(ino);
        if is_new {
            subfolder.created.fetch_add(1, Ordering::AcqRel) + 1
        } else {
            subfolder.created.load(Ordering::Acquire)
        }
    }

    /// Returns whether the names of a subfolder up to `number` are safe.
    pub(super) fn is_name_synced(&self, ino: InodeId, number: u64) -> bool {
        *self.subfolder(ino).synced.lock() >= number
    }

    /// Makes the names of a subfolder up to `number` safe, and that of the subfolder.
    pub(super) fn sync_name(&self, ino: InodeId, number: u64) -> Result<(), Error> {
        let subfolder = self.subfolder(ino);
        let mut synced = subfolder.synced.lock();
        if *synced >= number {
            return Ok(());
        }
        if *synced == 0 {
            self.sync_root()?;
        }
        let created = subfolder.created.load(Ordering::Acquire);
        self.sync_subfolder(subfolder_of(ino))?;
        *synced = created;
        Ok(())
    }

    /// Makes all changes of names in a subfolder safe, removals included.
    pub(super) fn sync_names(&self, subfolder: u64) -> Result<(), Error> {
        self.sync_root()?;
        match self.sync_subfolder(subfolder) {
            // No content file was ever created in it.
            Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => Ok(()),
            synced => synced,
        }
    }

    /// Makes everything on the file system safe.
    pub(super) fn sync_all(&self) -> Result<(), Error> {
        syncfs(&self.folder).map_err(|error| Error::new("syncing", self.path.clone(), error))
    }

    fn sync_root(&self) -> Result<(), Error> {
        fsync(&self.folder).map_err(|error| Error::new("syncing", self.path.clone(), error))
    }

    fn sync_subfolder(&self, subfolder: u64) -> Result<(), Error> {
        let name = format!("{subfolder:02x}");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.folder, &name, flags, Mode::empty())
            .and_then(fsync)
            .map_err(|error| Error::new("syncing", self.path.join(&name), error))
    }
}

/// Returns the number of the subfolder that has an inode's content files.
pub fn subfolder_of(ino: InodeId) -> u64 {
    ino.raw() & 0xff
}

/// Returns the path of a content file below the root.
pub(super) fn file_name(ino: InodeId, generation: Generation) -> String {
    format!("{:02x}/{:016x}.{:08x}", subfolder_of(ino), ino.raw(), generation.0)
}

/// Parses the last component of the path of a content file.
pub(super) fn parse_file_name(name: &str) -> Option<(InodeId, Generation)> {
    let (ino, generation) = name.split_once('.')?;
    if ino.len() != 16 || generation.len() != 8 {
        return None;
    }
    let generation = u32::try_from(from_hex(generation)?).ok().filter(|number| *number != 0)?;
    Some((InodeId::from_raw(from_hex(ino)?), Generation(generation)))
}

/// Parses the name of a subfolder.
pub(super) fn parse_subfolder(name: &str) -> Option<u64> {
    if name.len() == 2 { from_hex(name) } else { None }
}

/// Parses lower-case hexadecimal digits.
fn from_hex(digits: &str) -> Option<u64> {
    let is_hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_hex { u64::from_str_radix(digits, 16).ok() } else { None }
}
