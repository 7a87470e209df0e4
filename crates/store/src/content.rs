//! Content files: the bytes of files that are too large for an [`Inline`](crate::rows::Inline) row,
//! one plain file for each generation.
//!
//! The path of a content file is `content/XX/INO.GENERATION`, where `XX` is the low byte of the
//! inode; all in hex. Subfolders are created when first needed. The table says which generation is
//! current and whether the file is still needed. A content file that no row names is a leftover.
//!
//! Four calls make content files safe: [`ContentFile::sync`] the bytes of one,
//! [`ContentFile::sync_name`] its name, [`ContentStore::sync_files`] the bytes, names and removals
//! of several, and [`ContentStore::sync_all`] everything, if the file system has `syncfs`.

use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pelago_wire::{Generation, InodeId, VolumeStats};
use rustix::fs::{
    Advice, AtFlags, Dir, Mode, OFlags, Stat, fadvise, fstatvfs, ftruncate, openat, renameat,
    statat, unlinkat,
};
use rustix::io::Errno;

use self::root::Root;
use crate::folder::{Folder, FolderError};
use crate::os;

pub use error::Error;
pub use extent::{ExtentBlock, ExtentFile, ReadFrom};
pub use file::{ContentFile, ContentStat};
pub use root::subfolder_of;
pub use sync::{SyncError, SyncScope};

mod error;
mod extent;
mod file;
mod root;
mod spread;
mod sync;

/// The name of a file that exists only during [`ContentStore::can_detect_writers`].
const PROBE: &str = "probe";

/// The name of a file that exists only during [`ContentStore::create_unnamed`], on a file system
/// that makes no files without a name.
const UNNAMED: &str = "unnamed";

/// The content files of a volume. Its methods block on the disk.
#[derive(Debug)]
pub struct ContentStore {
    root: Arc<Root>,
    /// True if the kernel may read ahead in opened files.
    reads_ahead: bool,
    /// True if another server may still change files here.
    is_shared: bool,
}

/// Most generations that one creation passes over, because another server has taken them. Each
/// takeover leaves a few.
const TAKEN_GENERATIONS: u32 = 4096;

/// The access with which a content file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// Reads.
    Read,
    /// Reads and writes.
    ReadWrite,
}

/// An entry that [`ContentStore::list`] finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentEntry {
    /// A content file.
    File {
        /// The file whose bytes it holds.
        ino: InodeId,
        /// Its generation.
        generation: Generation,
    },
    /// A file or folder whose name this crate does not give.
    Foreign(PathBuf),
}

impl ContentStore {
    /// Opens the existing folder `dir`.
    ///
    /// # Errors
    /// [`Error`] if it cannot be opened.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let folder = Folder::open(dir).map_err(|error| match error {
            FolderError::Io { doing, path, source } => Error::from_io(doing, path, source),
            other => Error::from_io("opening", dir.into(), io::Error::other(other)),
        })?;
        Self::open_in(&folder)
    }

    /// Opens the content files in a folder that only this user can write.
    ///
    /// # Errors
    /// [`Error`] if its file system cannot be examined.
    pub fn open_in(folder: &Folder) -> Result<Self, Error> {
        Ok(Self::over(Root::open(folder)?))
    }

    /// As [`ContentStore::open_in`], without a change of the folder.
    pub fn open_unchanged(folder: &Folder) -> Result<Self, Error> {
        Ok(Self::over(Root::open_unchanged(folder)?))
    }

    fn over(root: Root) -> Self {
        Self { root: Arc::new(root), reads_ahead: true, is_shared: false }
    }

    /// Returns the store for a folder that other servers share. A server that was taken for dead
    /// may go on there at any time, so no file is emptied or replaced, and a generation whose file
    /// exists is not used again.
    #[must_use]
    pub fn shared(self) -> Self {
        Self { is_shared: true, ..self }
    }

    /// Returns whether another server may still change files here.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Returns the store with readahead off: of the files that it opens, only what is read comes
    /// into the page cache. Pages under readahead are locked, and a control group of processes that
    /// is out of memory cannot free them. Their amount for each reader is a setting of the disk,
    /// some 8 MiB.
    #[must_use]
    pub fn without_readahead(self) -> Self {
        Self { reads_ahead: false, ..self }
    }

    /// Creates a content file and opens it for reading and writing. A leftover with this name is
    /// truncated: the caller knows that no row names it. In a shared folder another server may be
    /// about to write the leftover, so the new file gets a later generation: see
    /// [`ContentFile::generation`].
    ///
    /// # Errors
    /// [`Error`] if a system call fails.
    pub fn create(&self, ino: InodeId, generation: Generation) -> Result<ContentFile, Error> {
        if self.is_shared {
            return self.create_untaken(ino, generation);
        }
        let fd = self.root.create_file(&root::file_name(ino, generation), OFlags::TRUNC)?;
        Ok(self.opened(fd, ino, generation, true))
    }

    /// Creates a content file of the first generation from this one on that has none.
    fn create_untaken(
        &self,
        ino: InodeId,
        mut generation: Generation,
    ) -> Result<ContentFile, Error> {
        for _ in 0..TAKEN_GENERATIONS {
            match self.root.create_file(&root::file_name(ino, generation), OFlags::EXCL) {
                Ok(fd) => return Ok(self.opened(fd, ino, generation, true)),
                Err(error) if error.source.kind() == io::ErrorKind::AlreadyExists => {
                    generation = beside(generation);
                }
                Err(error) => return Err(error),
            }
        }
        Err(self.failed("creating", ino, generation, Errno::EXIST))
    }

    /// Creates a content file as [`ContentStore::create`] does, and opens it for reading only.
    ///
    /// # Errors
    /// [`Error`] if a system call fails.
    pub fn create_read_only(
        &self,
        ino: InodeId,
        generation: Generation,
    ) -> Result<ContentFile, Error> {
        let name = root::file_name(ino, generation);
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::EXCL;
        if let Ok(fd) = self.root.open_file(&name, flags) {
            return Ok(self.opened(fd, ino, generation, true));
        }
        // There is a leftover, or no subfolder: `create` handles both.
        let created = self.create(ino, generation)?;
        self.open_existing(ino, created.generation())
    }

    /// Puts an empty file in the place of a content file, and opens it for reading and writing. The
    /// old one stays as it is for descriptors that are open. A crash in between leaves an empty
    /// file of the next generation.
    ///
    /// # Errors
    /// [`Error`] if a system call fails, and in a shared folder. The old file has kept its place
    /// then.
    pub fn replace(&self, ino: InodeId, generation: Generation) -> Result<ContentFile, Error> {
        if self.is_shared {
            return Err(self.failed("replacing", ino, generation, Errno::OPNOTSUPP));
        }
        let from = root::file_name(ino, beside(generation));
        let to = root::file_name(ino, generation);
        let fd = self.root.create_file(&from, OFlags::TRUNC)?;
        let folder = self.root.folder();
        if let Err(error) = renameat(folder, &from, folder, &to) {
            // The caller reports the first failure, not this one.
            drop(self.remove(ino, beside(generation)));
            return Err(self.failed("replacing", ino, generation, error));
        }
        Ok(self.opened(fd, ino, generation, true))
    }

    /// Removes the leftover of a crash during [`ContentStore::replace`]. Returns whether there was
    /// one. The caller knows that no row names the next generation.
    ///
    /// # Errors
    /// [`Error`] if the system call fails.
    pub fn remove_replacement(&self, ino: InodeId, generation: Generation) -> Result<bool, Error> {
        self.remove(ino, beside(generation))
    }

    /// Makes a file without a name, for bytes of this generation that are kept while the content
    /// file changes. It ends with its last descriptor.
    ///
    /// # Errors
    /// [`Error`] if a system call fails.
    pub fn create_unnamed(
        &self,
        ino: InodeId,
        generation: Generation,
    ) -> Result<ContentFile, Error> {
        let made = self.root.open_file(".", OFlags::RDWR | OFlags::TMPFILE);
        let made = made.or_else(|_unsupported| {
            let unlink = || unlinkat(self.root.folder(), UNNAMED, AtFlags::empty());
            // A crash may have left it. Another thread may be here too: then it unlinks for both.
            let _left = unlink();
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
            let made = self.root.open_file(UNNAMED, flags)?;
            let _unlinked = unlink();
            Ok(made)
        });
        match made {
            Ok(fd) => Ok(self.opened(fd, ino, generation, false)),
            Err(error) => Err(self.failed("copying", ino, generation, error)),
        }
    }

    /// Opens a content file. Returns `None` if there is no such file.
    ///
    /// # Errors
    /// [`Error`] if a system call fails.
    pub fn open_file(
        &self,
        ino: InodeId,
        generation: Generation,
        access: FileAccess,
    ) -> Result<Option<ContentFile>, Error> {
        let name = root::file_name(ino, generation);
        let flags = match access {
            FileAccess::Read => OFlags::RDONLY,
            FileAccess::ReadWrite => OFlags::RDWR,
        };
        match self.root.open_file(&name, flags) {
            Ok(fd) => Ok(Some(self.opened(fd, ino, generation, false))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.failed("opening", ino, generation, error)),
        }
    }

    fn opened(
        &self,
        fd: OwnedFd,
        ino: InodeId,
        generation: Generation,
        is_new: bool,
    ) -> ContentFile {
        if !self.reads_ahead {
            // A file system without readahead may refuse the advice, and needs none.
            let _refused = fadvise(&fd, 0, None, Advice::Random);
        }
        ContentFile::new(fd, Arc::clone(&self.root), ino, generation, is_new)
    }

    /// Opens a content file, which must exist, for reading only.
    ///
    /// # Errors
    /// [`Error`] if a system call fails, or if there is no such file.
    pub fn open_existing(
        &self,
        ino: InodeId,
        generation: Generation,
    ) -> Result<ContentFile, Error> {
        let opened = self.open_file(ino, generation, FileAccess::Read)?;
        opened.ok_or_else(|| self.failed("opening", ino, generation, Errno::NOENT))
    }

    /// Returns whether there is such a content file.
    ///
    /// # Errors
    /// [`Error`] if the system call fails.
    pub fn exists(&self, ino: InodeId, generation: Generation) -> Result<bool, Error> {
        match self.stat_name(ino, generation) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.failed("looking for", ino, generation, error)),
        }
    }

    /// Returns size, blocks and times as [`ContentFile::stat`] does, without opening the file.
    /// Returns `None` if there is no such file.
    ///
    /// # Errors
    /// [`Error`] if the system call fails.
    pub fn stat(&self, ino: InodeId, generation: Generation) -> Result<Option<ContentStat>, Error> {
        match self.stat_name(ino, generation) {
            Ok(stat) => Ok(Some(ContentStat::from(stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.failed("examining", ino, generation, error)),
        }
    }

    /// Returns size, blocks and times of a content file, which must exist.
    ///
    /// # Errors
    /// [`Error`] if the system call fails, or if there is no such file.
    pub fn stat_existing(
        &self,
        ino: InodeId,
        generation: Generation,
    ) -> Result<ContentStat, Error> {
        let found = self.stat(ino, generation)?;
        found.ok_or_else(|| self.failed("examining", ino, generation, Errno::NOENT))
    }

    /// Removes a content file. Open descriptors of it stay valid. Returns whether there was one.
    ///
    /// # Errors
    /// [`Error`] if the system call fails.
    pub fn remove(&self, ino: InodeId, generation: Generation) -> Result<bool, Error> {
        let name = root::file_name(ino, generation);
        match unlinkat(self.root.folder(), &name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.failed("removing", ino, generation, error)),
        }
    }

    /// Calls `visit` with every content file, in no order, until it breaks. It may miss files that
    /// are created meanwhile, and see files that are removed meanwhile.
    ///
    /// # Errors
    /// [`Error`] if a system call fails.
    pub fn list(
        &self,
        visit: &mut dyn FnMut(ContentEntry) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let root = self.root.path();
        for name in entries(self.root.folder(), root)? {
            let number = name.to_str().and_then(root::parse_subfolder);
            let path = root.join(&name);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let opened = openat(self.root.folder(), &name, flags, Mode::empty());
            let is_folder = !matches!(opened, Err(Errno::NOTDIR | Errno::LOOP));
            // A crash left it there. The next use removes it.
            if (name == PROBE || name == UNNAMED) && !is_folder {
                continue;
            }
            let (Some(number), true) = (number, is_folder) else {
                if visit(ContentEntry::Foreign(path)).is_break() {
                    return Ok(());
                }
                continue;
            };
            let opened = opened.map_err(|error| Error::new("listing", path.clone(), error))?;
            for file in entries(&opened, &path)? {
                let entry = match file.to_str().and_then(root::parse_file_name) {
                    Some((ino, generation)) if subfolder_of(ino) == number => {
                        ContentEntry::File { ino, generation }
                    }
                    _ => ContentEntry::Foreign(path.join(&file)),
                };
                if visit(entry).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Returns whether [`ContentFile::has_writers`] works on this file system. Tries it on a file
    /// of its own, first with a mapping as the only writer, then without any.
    ///
    /// # Errors
    /// [`Error`] if a system call fails, for example because there are no leases here.
    pub fn can_detect_writers(&self) -> Result<bool, Error> {
        let failed = |error: io::Error| {
            Error::from_io("looking for writers of", self.root.path().join(PROBE), error)
        };
        let failed_with = |error: Errno| failed(error.into());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
        let writer = self.root.open_file(PROBE, flags).map_err(failed_with)?;
        let reader = self.root.open_file(PROBE, OFlags::RDONLY);
        unlinkat(self.root.folder(), PROBE, AtFlags::empty()).map_err(failed_with)?;
        let reader = reader.map_err(failed_with)?;
        ftruncate(&writer, 1).map_err(failed_with)?;
        let mapping = os::MappedPage::new(&writer).map_err(failed)?;
        drop(writer);
        let is_seen = os::has_writers(&reader).map_err(failed)?;
        drop(mapping);
        Ok(is_seen && !os::has_writers(&reader).map_err(failed)?)
    }

    /// Returns the space and the number of files of the file system.
    ///
    /// # Errors
    /// [`Error`] if the system call fails.
    pub fn statfs(&self) -> Result<VolumeStats, Error> {
        let stats = fstatvfs(self.root.folder())
            .map_err(|error| Error::new("examining", self.root.path().into(), error))?;
        Ok(VolumeStats {
            block_bytes: u32::try_from(stats.f_frsize).unwrap_or(u32::MAX),
            blocks: stats.f_blocks,
            free: stats.f_bfree,
            available: stats.f_bavail,
            files: stats.f_files,
            free_files: stats.f_ffree,
        })
    }

    /// Returns whether the file system keeps the times of reads: it is not mounted with `noatime`.
    #[must_use]
    pub fn keeps_atime(&self) -> bool {
        self.root.keeps_atime()
    }

    /// Drops the page cache of a content file that is synced, so that later reads come from the
    /// disk. Pages that a program has mapped stay. Returns `None` if there is no such file.
    ///
    /// # Errors
    /// [`Error`] if a system call fails.
    pub fn drop_page_cache(
        &self,
        ino: InodeId,
        generation: Generation,
    ) -> Result<Option<()>, Error> {
        let Some(file) = self.open_file(ino, generation, FileAccess::Read)? else {
            return Ok(None);
        };
        file.drop_page_cache().map(Some)
    }

    fn stat_name(&self, ino: InodeId, generation: Generation) -> Result<Stat, Errno> {
        let name = root::file_name(ino, generation);
        statat(self.root.folder(), &name, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn failed(
        &self,
        doing: &'static str,
        ino: InodeId,
        generation: Generation,
        error: Errno,
    ) -> Error {
        Error::new(doing, self.root.path().join(root::file_name(ino, generation)), error)
    }
}

/// Returns the generation whose name the replacement of a content file has at first.
fn beside(generation: Generation) -> Generation {
    Generation(generation.0.checked_add(1).unwrap_or(1))
}

/// Returns the names in a folder. Reads all before the first is visited, because the visitor may
/// remove what it is shown.
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

    /// Without `syncfs` each file and folder is synced: for a file that exists, for one that was
    /// removed, and for one whose subfolder never existed.
    #[test]
    fn each_file_is_synced_if_syncfs_does_not_reach_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let mut content = ContentStore::open(folder.path()).unwrap();
        Arc::get_mut(&mut content.root).unwrap().set_has_syncfs(false);
        let there = 7;
        let gone = 0x107;
        let never = 0x208;
        let file = |raw| (InodeId::from_raw(raw), Generation::FIRST);
        for raw in [there, gone] {
            content.create(file(raw).0, file(raw).1).unwrap().write_at(b"x", 0).unwrap();
        }
        assert!(content.remove(file(gone).0, file(gone).1).unwrap());
        content.sync_files(&[file(there), file(gone), file(never)]).unwrap();
    }
}
