//! Content files: the bytes of files that are too large for a row, one plain file for each
//! generation.
//!
//! A content file is `XX/INO.GENERATION` below `content`: `XX` the low byte of the inode, all in
//! hex. Folders are made when first needed. Which generation is the right one, and whether a file
//! is still wanted, the table says; a content file that no row names is a leftover.
//!
//! What is safe: a file's bytes after [`ContentFile::sync`], its name after
//! [`ContentFile::sync_folder_once`], bytes, names and removals of some files after
//! [`Content::sync_these`], everything after [`Content::sync_all`] where the medium can.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use pelago_wire::{Generation, InodeId, VolumeStats};
use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, StatVfsMountFlags, fstatfs, fstatvfs, fsync, ftruncate, mkdirat,
    openat, syncfs, unlinkat,
};
use rustix::io::Errno;

use crate::folder::{self, FolderError};
use crate::os;

pub use error::Error;
pub use file::{ContentFile, Measured};

mod error;
mod file;

/// The content files of a volume. Its methods block on the medium.
#[derive(Debug)]
pub struct Content {
    root: Arc<Root>,
}

/// What [`Content::list`] finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// A content file.
    File {
        /// Whose bytes.
        ino: InodeId,
        /// Which of its content files.
        generation: Generation,
    },
    /// Something that this crate did not make.
    Foreign(PathBuf),
}

/// Content files that could not be made safe.
#[derive(Debug, thiserror::Error)]
#[error("content files could not be made safe")]
pub struct Unsynced {
    /// The first failure.
    #[source]
    pub error: Error,
    /// What it is about.
    pub what: Covered,
}

/// What a failed sync was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Covered {
    /// All content files that were not safe before.
    All,
    /// Some of those that were asked for.
    Some {
        /// Files whose bytes may be lost.
        files: Vec<InodeId>,
        /// Folders whose names may be lost: the low bytes of the inodes in them.
        folders: Vec<u64>,
    },
}

impl Content {
    /// The content files in the folder `dir`, which is there.
    ///
    /// # Errors
    /// [`Error`] where it cannot be opened.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let folder = folder::Folder::open(dir).map_err(|error| match error {
            FolderError::Io { doing, path, source } => Error::from_io(doing, path, source),
            other => Error::from_io("opening", dir.into(), io::Error::other(other)),
        })?;
        Self::open_in(&folder)
    }

    /// The content files in a folder that is ours alone.
    ///
    /// # Errors
    /// [`Error`] where it cannot be measured.
    pub fn open_in(folder: &folder::Folder) -> Result<Self, Error> {
        let (fd, path) = (folder.clone(), folder.path().to_path_buf());
        let folders = (0..FOLDERS).map(|_| Folder::default()).collect();
        let medium = fstatfs(&fd).map_err(|error| Error::new("measuring", path.clone(), error))?;
        let syncs_whole = medium.f_type != FUSE_SUPER_MAGIC;
        let mount = fstatvfs(&fd).map_err(|error| Error::new("measuring", path.clone(), error))?;
        let keeps_read_times = !mount.f_flag.contains(StatVfsMountFlags::NOATIME);
        Ok(Self { root: Arc::new(Root { path, fd, folders, syncs_whole, keeps_read_times }) })
    }

    /// Makes the content file and opens it to read and write. One that is there is a leftover, and
    /// is emptied: the caller knows that no row names it.
    ///
    /// # Errors
    /// [`Error`] from the medium.
    pub fn create(&self, ino: InodeId, generation: Generation) -> Result<ContentFile, Error> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
        let name = name_of(ino, generation);
        let fd = match self.root.open_file(&name, flags) {
            Err(Errno::NOENT) => {
                let folder = &name[..2];
                match mkdirat(&self.root.fd, folder, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => self.root.open_file(&name, flags),
                    Err(error) => {
                        return Err(Error::new("making", self.root.path.join(folder), error));
                    }
                }
            }
            opened => opened,
        };
        let fd = fd.map_err(|error| Error::new("making", self.root.path.join(&name), error))?;
        Ok(ContentFile::new(fd, Arc::clone(&self.root), ino, generation, true))
    }

    /// Makes the content file as [`Content::create`] does, but opens it to read only.
    ///
    /// # Errors
    /// [`Error`] from the medium.
    pub fn create_to_read(
        &self,
        ino: InodeId,
        generation: Generation,
    ) -> Result<ContentFile, Error> {
        let name = name_of(ino, generation);
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::EXCL;
        if let Ok(fd) = self.root.open_file(&name, flags) {
            return Ok(ContentFile::new(fd, Arc::clone(&self.root), ino, generation, true));
        }
        // A leftover, or its folder is missing.
        drop(self.create(ino, generation)?);
        self.open_there(ino, generation)
    }

    /// Opens a content file, to write too where `write` is set. `None`: there is none.
    ///
    /// # Errors
    /// [`Error`] from the medium.
    pub fn open_file(
        &self,
        ino: InodeId,
        generation: Generation,
        write: bool,
    ) -> Result<Option<ContentFile>, Error> {
        let name = name_of(ino, generation);
        let flags = if write { OFlags::RDWR } else { OFlags::RDONLY };
        match self.root.open_file(&name, flags) {
            Ok(fd) => {
                let root = Arc::clone(&self.root);
                Ok(Some(ContentFile::new(fd, root, ino, generation, false)))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(Error::new("opening", self.root.path.join(&name), error)),
        }
    }

    /// Whether there is such a content file.
    ///
    /// # Errors
    /// [`Error`] from the medium.
    pub fn exists(&self, ino: InodeId, generation: Generation) -> Result<bool, Error> {
        let name = name_of(ino, generation);
        match rustix::fs::statat(&self.root.fd, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(Error::new("looking for", self.root.path.join(&name), error)),
        }
    }

    /// As [`ContentFile::measure`], without opening the file. `None`: there is none.
    ///
    /// # Errors
    /// [`Error`] from the medium.
    pub fn measure(&self, ino: InodeId, generation: Generation) -> Result<Option<Measured>, Error> {
        let name = name_of(ino, generation);
        match rustix::fs::statat(&self.root.fd, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Measured::of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(Error::new("measuring", self.root.path.join(&name), error)),
        }
    }

    /// Opens a content file to read only that must be there.
    ///
    /// # Errors
    /// [`Error`] from the medium, also where there is none.
    pub fn open_there(&self, ino: InodeId, generation: Generation) -> Result<ContentFile, Error> {
        let opened = self.open_file(ino, generation, false)?;
        opened.ok_or_else(|| self.missing("opening", ino, generation))
    }

    /// Measures a content file that must be there, as [`Content::measure`] does.
    ///
    /// # Errors
    /// [`Error`] from the medium, also where there is none.
    pub fn measure_there(&self, ino: InodeId, generation: Generation) -> Result<Measured, Error> {
        let measured = self.measure(ino, generation)?;
        measured.ok_or_else(|| self.missing("measuring", ino, generation))
    }

    /// Removes a content file; who has it open keeps it. Answers whether there was one.
    ///
    /// # Errors
    /// [`Error`] from the medium.
    pub fn remove(&self, ino: InodeId, generation: Generation) -> Result<bool, Error> {
        let name = name_of(ino, generation);
        match unlinkat(&self.root.fd, &name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(Error::new("removing", self.root.path.join(&name), error)),
        }
    }

    /// Visits every content file, in no order, until the visitor breaks. What is made or removed
    /// meanwhile may be visited or not.
    ///
    /// # Errors
    /// [`Error`] from the medium.
    pub fn list(&self, visit: &mut dyn FnMut(Listed) -> ControlFlow<()>) -> Result<(), Error> {
        let root = &self.root.path;
        for folder in entries(&self.root.fd, root)? {
            let number = folder.to_str().filter(|name| name.len() == 2).and_then(from_hex);
            let path = root.join(&folder);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let opened = openat(&self.root.fd, &folder, flags, Mode::empty());
            let is_folder = !matches!(opened, Err(Errno::NOTDIR | Errno::LOOP));
            // A crash left it: the next probe takes it away.
            if folder == PROBE && !is_folder {
                continue;
            }
            let (Some(number), true) = (number, is_folder) else {
                if visit(Listed::Foreign(path)).is_break() {
                    return Ok(());
                }
                continue;
            };
            let opened = opened.map_err(|error| Error::new("listing", path.clone(), error))?;
            for file in entries(&opened, &path)? {
                let parsed = file.to_str().and_then(parse_name);
                let listed = match parsed {
                    Some((ino, generation)) if ino.raw() & 0xff == number => {
                        Listed::File { ino, generation }
                    }
                    _ => Listed::Foreign(path.join(&file)),
                };
                if visit(listed).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Whether [`ContentFile::has_writers`] can be believed here: tried on a file of its own, which
    /// nobody but a mapping writes, and then nobody.
    ///
    /// # Errors
    /// [`Error`] where the medium cannot tell at all.
    pub fn tells_writers(&self) -> Result<bool, Error> {
        let failed = |error: io::Error| {
            Error::from_io("looking for writers of", self.root.path.join(PROBE), error)
        };
        let failed_here = |error: Errno| failed(error.into());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
        let writer = self.root.open_file(PROBE, flags).map_err(failed_here)?;
        let reader = self.root.open_file(PROBE, OFlags::RDONLY);
        unlinkat(&self.root.fd, PROBE, AtFlags::empty()).map_err(failed_here)?;
        let reader = reader.map_err(failed_here)?;
        ftruncate(&writer, 1).map_err(failed_here)?;
        let mapped = os::Mapped::new(&writer).map_err(failed)?;
        drop(writer);
        let is_seen = os::has_writers(&reader).map_err(failed)?;
        drop(mapped);
        Ok(is_seen && !os::has_writers(&reader).map_err(failed)?)
    }

    /// Space and counts of the medium.
    ///
    /// # Errors
    /// [`Error`] from the medium.
    pub fn statfs(&self) -> Result<VolumeStats, Error> {
        let stats = fstatvfs(&self.root.fd)
            .map_err(|error| Error::new("measuring", self.root.path.clone(), error))?;
        Ok(VolumeStats {
            block_bytes: u32::try_from(stats.f_frsize).unwrap_or(u32::MAX),
            blocks: stats.f_blocks,
            free: stats.f_bfree,
            available: stats.f_bavail,
            files: stats.f_files,
            free_files: stats.f_ffree,
        })
    }

    /// Whether the medium remembers when a file was read.
    #[must_use]
    pub fn keeps_read_times(&self) -> bool {
        self.root.keeps_read_times
    }

    /// Makes the bytes, times and names of these files safe; of those that are removed, that they
    /// are. One sync of the whole file system, where that reaches it; below FUSE it does nothing,
    /// and each file and its folder is synced by itself.
    ///
    /// # Errors
    /// [`Unsynced`]: what is not safe, and may be lost. The system tells that once: a later sync
    /// that succeeds says nothing about it.
    pub fn sync_these(&self, files: &[(InodeId, Generation)]) -> Result<(), Unsynced> {
        if self.root.syncs_whole {
            return self.sync_all().map_err(|error| Unsynced { error, what: Covered::All });
        }
        let (mut failed, mut folders) = (Vec::new(), BTreeSet::new());
        let mut first = None;
        for (ino, generation) in files {
            let opened = self.open_file(*ino, *generation, false);
            let synced = opened.and_then(|file| file.map_or(Ok(()), |file| file.sync(false)));
            if let Err(error) = synced {
                failed.push(*ino);
                first.get_or_insert(error);
            }
            folders.insert(ino.raw() & 0xff);
        }
        let mut failed_folders = Vec::new();
        for folder in folders {
            if let Err(error) = self.root.sync_names(folder) {
                failed_folders.push(folder);
                first.get_or_insert(error);
            }
        }
        let what = Covered::Some { files: failed, folders: failed_folders };
        first.map_or(Ok(()), |error| Err(Unsynced { error, what }))
    }

    /// Whether [`Content::sync_all`] reaches the medium, and tells of every failure to write bytes
    /// back since the last one, though no descriptor was open then (`syncfs` from Linux 5.8).
    #[must_use]
    pub fn syncs_whole(&self) -> bool {
        self.root.syncs_whole
    }

    /// Drops what the system has in memory of a content file that is synced: from now on everybody
    /// reads what the medium has. Pages that a program has mapped stay. `None`: there is no such
    /// file.
    ///
    /// # Errors
    /// [`Error`] from the medium.
    pub fn drop_cached(&self, ino: InodeId, generation: Generation) -> Result<Option<()>, Error> {
        let Some(file) = self.open_file(ino, generation, false)? else { return Ok(None) };
        file.drop_cached().map(Some)
    }

    /// Makes all content files safe, with their names and times (and whatever else is on their
    /// file system), where [`Content::sync_these`] need not go from file to file.
    ///
    /// # Errors
    /// [`Error`] from the medium.
    pub fn sync_all(&self) -> Result<(), Error> {
        syncfs(&self.root.fd).map_err(|error| Error::new("syncing", self.root.path.clone(), error))
    }

    fn missing(&self, doing: &'static str, ino: InodeId, generation: Generation) -> Error {
        Error::new(doing, self.root.path.join(name_of(ino, generation)), Errno::NOENT)
    }
}

/// The folder of all content files, shared with those that are open.
#[derive(Debug)]
struct Root {
    path: PathBuf,
    fd: folder::Folder,
    folders: Vec<Folder>,
    /// Whether `syncfs` reaches the medium.
    syncs_whole: bool,
    /// Whether it is mounted without `noatime`.
    keeps_read_times: bool,
}

/// What is known of one of the 256 folders since the volume was opened.
#[derive(Debug)]
struct Folder {
    /// Counts up with each name made. It begins at 1, for the names that were there before, of
    /// which nobody knows whether they are safe.
    made: AtomicU64,
    /// Names that are safe. Taken alone; held while the folder is synced, so that those who come
    /// meanwhile find their work done.
    synced: Mutex<u64>,
}

const FOLDERS: usize = 256;
/// A file that is there for an instant.
const PROBE: &str = "probe";
/// `statfs` of what is below FUSE (`linux/magic.h`).
const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;

impl Default for Folder {
    fn default() -> Self {
        Self { made: AtomicU64::new(1), synced: Mutex::new(0) }
    }
}

impl Root {
    fn open_file(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)
    }

    fn folder_of(&self, ino: InodeId) -> &Folder {
        &self.folders[(ino.raw() & 0xff) as usize]
    }

    /// The number to hand to [`Root::sync_folder`] for a name that was just made, or found.
    fn number(&self, ino: InodeId, made: bool) -> u64 {
        let folder = self.folder_of(ino);
        if made {
            folder.made.fetch_add(1, Ordering::AcqRel) + 1
        } else {
            folder.made.load(Ordering::Acquire)
        }
    }

    /// Whether the names of a folder up to `number` are safe.
    fn is_synced(&self, ino: InodeId, number: u64) -> bool {
        *self.folder_of(ino).synced.lock() >= number
    }

    /// Makes the names of a folder safe up to `number`, and the folder's own.
    fn sync_folder(&self, ino: InodeId, number: u64) -> Result<(), Error> {
        let folder = self.folder_of(ino);
        let mut synced = folder.synced.lock();
        if *synced >= number {
            return Ok(());
        }
        if *synced == 0 {
            fsync(&self.fd).map_err(|error| Error::new("syncing", self.path.clone(), error))?;
        }
        let made = folder.made.load(Ordering::Acquire);
        self.sync_one(ino.raw() & 0xff)?;
        *synced = made;
        Ok(())
    }

    /// Makes all names of a folder safe, and its own, removed ones too.
    fn sync_names(&self, folder: u64) -> Result<(), Error> {
        fsync(&self.fd).map_err(|error| Error::new("syncing", self.path.clone(), error))?;
        match self.sync_one(folder) {
            // Nothing was ever made in it.
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(()),
            synced => synced,
        }
    }

    fn sync_one(&self, folder: u64) -> Result<(), Error> {
        let name = format!("{folder:02x}");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.fd, &name, flags, Mode::empty())
            .and_then(fsync)
            .map_err(|error| Error::new("syncing", self.path.join(&name), error))
    }
}

fn name_of(ino: InodeId, generation: Generation) -> String {
    format!("{:02x}/{:016x}.{:08x}", ino.raw() & 0xff, ino.raw(), generation.0)
}

fn parse_name(name: &str) -> Option<(InodeId, Generation)> {
    let (ino, generation) = name.split_once('.')?;
    if ino.len() != 16 || generation.len() != 8 {
        return None;
    }
    let generation = u32::try_from(from_hex(generation)?).ok().filter(|number| *number != 0)?;
    Some((InodeId::from_raw(from_hex(ino)?), Generation(generation)))
}

/// The number, where all is lower-case hex.
fn from_hex(digits: &str) -> Option<u64> {
    let lower = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if lower { u64::from_str_radix(digits, 16).ok() } else { None }
}

/// The names in a folder; all of them first, so that the visitor may remove what it is shown.
fn entries(folder: impl AsFd, path: &Path) -> Result<Vec<OsString>, Error> {
    let failed = |error: Errno| Error::new("listing", path.into(), error);
    let mut names = Vec::new();
    for entry in Dir::read_from(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    names.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a file system that knows no `syncfs` is asked for instead: files that are there, that
    /// were removed, and whose folder never was.
    #[test]
    fn each_file_is_synced_where_the_medium_cannot_sync_all() {
        let folder = tempfile::tempdir().unwrap();
        let mut content = Content::open(folder.path()).unwrap();
        Arc::get_mut(&mut content.root).unwrap().syncs_whole = false;
        let (there, gone, never) = (7, 0x107, 0x208);
        let file = |raw| (InodeId::from_raw(raw), Generation::FIRST);
        for raw in [there, gone] {
            content.create(file(raw).0, file(raw).1).unwrap().write_at(b"x", 0).unwrap();
        }
        assert!(content.remove(file(gone).0, file(gone).1).unwrap());
        content.sync_these(&[file(there), file(gone), file(never)]).unwrap();
    }
}
