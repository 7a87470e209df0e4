//! The copy of trees of names: that of the root, and those of directories whose names are lost.

use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use pelago_store::key::{self, Key, KeyRange};
use pelago_store::rows::{NameRow, Partition, Rnode, Row as _, Xattr};
use pelago_wire::{FileKind, InodeId, Time};
use rustix::process::geteuid;

use super::bytes::{self, Copier, Source};
use super::report::Report;
use super::rows::FoundRows;
use super::target::{self, Made, Target};
use super::{SalvageError, Salvaged};

/// Names that are read at a time.
const PAGE_NAMES: usize = 1024;

/// A copy under way.
pub(super) struct TreeCopy<'a> {
    pub(super) rows: &'a FoundRows,
    pub(super) copier: Copier<'a>,
    pub(super) report: Report,
    target: &'a Target,
    pub(super) done: Salvaged,
}

/// A name in the target.
struct TargetName<'a> {
    folder: BorrowedFd<'a>,
    name: &'a [u8],
    /// Its path in the target, for the report.
    path: &'a [u8],
}

/// A directory whose names are copied. It holds no descriptor: a tree may be deeper than a process
/// may have files open.
struct Level {
    ino: InodeId,
    /// Its path in the target, for the report.
    path: Vec<u8>,
    /// Its attributes, if they can be read.
    rnode: Option<Rnode>,
    /// The names that are not read yet.
    rest: KeyRange,
    /// Directories in it that are not copied yet.
    directories: Vec<(Vec<u8>, InodeId)>,
}

/// A name and the value of its row.
struct Entry {
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> TreeCopy<'a> {
    pub(super) fn new(
        rows: &'a FoundRows,
        copier: Copier<'a>,
        report: Report,
        target: &'a Target,
    ) -> Self {
        Self { rows, copier, report, target, done: Salvaged::default() }
    }

    /// Copies the tree of the root.
    pub(super) fn tree(&mut self) -> Result<(), SalvageError> {
        if !geteuid().is_root() {
            self.report.note("this user is not root: owners and devices are not kept")?;
        }
        let folder = self.target.make_folder("files")?;
        let level = self.level(InodeId::ROOT, b"files".to_vec())?;
        self.levels(level, folder)
    }

    /// Makes the folder `lost+found`.
    pub(super) fn make_lost_and_found(&self) -> Result<OwnedFd, SalvageError> {
        self.target.make_folder("lost+found")
    }

    /// Returns the result.
    pub(super) fn finish(mut self) -> Result<Salvaged, SalvageError> {
        self.report.finish()?;
        Ok(Salvaged { lines: self.report.lines, lost: self.report.lost, ..self.done })
    }

    /// Copies the directory `ino`, whose name is lost, into `lost+found`.
    pub(super) fn found_directory(
        &mut self,
        ino: InodeId,
        folder: BorrowedFd<'_>,
    ) -> Result<(), SalvageError> {
        let name = format!("{:016x}", ino.raw()).into_bytes();
        let path = [b"lost+found/", &name[..]].concat();
        self.report.lose(&path, "the name of this directory is lost")?;
        self.done.found += 1;
        match target::make_folder(folder, &name) {
            Ok(made) => {
                let level = self.level(ino, path)?;
                self.levels(level, made)
            }
            Err(error) => self.report.lose(&path, &format!("it cannot be made: {error}")),
        }
    }

    fn level(&mut self, ino: InodeId, path: Vec<u8>) -> Result<Level, SalvageError> {
        let failed = failed_rows;
        self.rows.mark(ino).map_err(failed)?;
        let row = self.rows.get(&key::inode(ino)).map_err(failed)?;
        let rnode = row.as_deref().and_then(|value| Rnode::decode(value).ok());
        let rnode = rnode.map(|(_, rnode)| rnode);
        if rnode.is_none() {
            self.report.lose(&path, "the attributes of this directory are lost")?;
        }
        if !self.doubt(&key::inode(ino), &path)? {
            // It has the times of the directory.
            self.doubt(&key::partition(ino, 0), &path)?;
        }
        let rest = key::names_of_dir(ino);
        if self.rows.overlaps(&rest) {
            self.report.lose(&path, "names in this directory may be missing, or older ones")?;
        }
        Ok(Level { ino, path, rnode, rest, directories: Vec::new() })
    }

    /// Copies a directory, for which `folder` was made, and all below it.
    fn levels(&mut self, first: Level, mut folder: OwnedFd) -> Result<(), SalvageError> {
        let mut levels = vec![first];
        while let Some(mut level) = levels.pop() {
            self.names(&mut level, folder.as_fd())?;
            let Some((name, ino)) = level.directories.pop() else {
                // The mode that it gets may forbid the way up.
                let above = levels.last().map(|above| {
                    let opened = target::open_above(folder.as_fd());
                    opened.map_err(|error| failed_in("opening", &above.path, error.into()))
                });
                self.finish_directory(&level, folder.as_fd())?;
                if let Some(above) = above {
                    folder = above?;
                }
                continue;
            };
            let path = [&level.path[..], b"/", &name].concat();
            let next = if self.rows.is_marked(ino).map_err(failed_rows)? {
                self.report.lose(&path, "this directory has another name already")?;
                None
            } else {
                match target::make_folder(folder.as_fd(), &name) {
                    Ok(made) => {
                        folder = made;
                        Some(self.level(ino, path)?)
                    }
                    Err(error) => {
                        self.report.lose(&path, &format!("it cannot be made: {error}"))?;
                        None
                    }
                }
            };
            levels.push(level);
            levels.extend(next);
        }
        Ok(())
    }

    /// Copies the files of a directory, and records the directories in it.
    fn names(&mut self, level: &mut Level, folder: BorrowedFd<'_>) -> Result<(), SalvageError> {
        loop {
            let mut page = Vec::new();
            let scanned = self.rows.scan(&level.rest, &mut |key, value| {
                page.push(Entry { key: key.to_vec(), value: value.to_vec() });
                match page.len() < PAGE_NAMES {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            });
            scanned.map_err(failed_rows)?;
            let Some(last) = page.last() else { return Ok(()) };
            level.rest.from = [&last.key[..], &[0]].concat();
            for entry in page {
                self.name(level, folder, &entry)?;
            }
        }
    }

    fn name(
        &mut self,
        level: &mut Level,
        folder: BorrowedFd<'_>,
        entry: &Entry,
    ) -> Result<(), SalvageError> {
        let Some((_, _, name)) = key::parse_name(&entry.key) else { return Ok(()) };
        let path = [&level.path[..], b"/", name].concat();
        let row = match NameRow::decode(&entry.value) {
            Ok((_, row)) => row,
            Err(error) => return self.report.lose(&path, &format!("its row: {error}")),
        };
        let place = TargetName { folder, name, path: &path };
        match row {
            NameRow::Link { ino, kind: FileKind::Directory } => {
                level.directories.push((name.to_vec(), ino));
                Ok(())
            }
            NameRow::Link { ino, .. } => self.linked(ino, &place),
            NameRow::Rnode(rnode) => self.file(&rnode, &place),
        }
    }

    /// Copies a file that has, or had, several names, or gives its copy another name.
    fn linked(&mut self, ino: InodeId, place: &TargetName<'_>) -> Result<(), SalvageError> {
        if self.rows.is_marked(ino).map_err(failed_rows)? {
            return match self.target.link(ino, place.folder, place.name) {
                Ok(()) => Ok(()),
                Err(error) => {
                    let says = format!("this name of a file was not made: {error}");
                    self.report.lose(place.path, &says)
                }
            };
        }
        let value = self.rows.get(&key::inode(ino)).map_err(failed_rows)?;
        let Some(Ok((_, rnode))) = value.as_deref().map(Rnode::decode) else {
            return self.report.lose(place.path, "the row of its attributes is lost");
        };
        self.doubt(&key::inode(ino), place.path)?;
        self.file(&rnode, place)?;
        // If this fails, or nothing was made, the next name finds no file, and reports that.
        let _kept = self.target.keep_for_links(ino, place.folder, place.name);
        Ok(())
    }

    /// Copies a file that is no directory.
    fn file(&mut self, rnode: &Rnode, place: &TargetName<'_>) -> Result<(), SalvageError> {
        let made = match rnode.kind {
            FileKind::Regular => self.regular(rnode, place)?,
            FileKind::Directory => {
                self.report.lose(place.path, "its row is that of a directory")?;
                return Ok(());
            }
            _ => match target::make_special(place.folder, place.name, rnode) {
                Ok(()) => Some(rnode.mtime),
                Err(error) => {
                    self.report.lose(place.path, &format!("it cannot be made: {error}"))?;
                    None
                }
            },
        };
        // Its bytes are not looked for a second time, even if they are lost.
        self.rows.mark(rnode.ino).map_err(failed_rows)?;
        if let Some(mtime) = made {
            self.done.files += 1;
            let made = Made::Named { dir: place.folder, name: place.name, kind: rnode.kind };
            self.attributes(rnode, &made, place.path)?;
            let set = made.set_times(rnode.atime, mtime);
            self.told(set, place.path, "its times")?;
        }
        Ok(())
    }

    /// Copies a regular file. Returns the time of its last change; `None` if nothing was made.
    fn regular(
        &mut self,
        rnode: &Rnode,
        place: &TargetName<'_>,
    ) -> Result<Option<Time>, SalvageError> {
        let source = self.copier.source(rnode).map_err(failed_rows)?;
        if rnode.flags.inline {
            self.doubt(&key::inline(rnode.ino), place.path)?;
        }
        let mtime = match &source {
            Source::Content { mtime: Some(mtime), .. } => *mtime,
            _ => rnode.mtime,
        };
        let made = self.bytes(&source, place.folder, place.name, place.path)?;
        Ok(made.then_some(mtime))
    }

    /// Copies bytes into a new file. Returns whether there is one.
    pub(super) fn bytes(
        &mut self,
        source: &Source,
        folder: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
    ) -> Result<bool, SalvageError> {
        if let Source::Lost(why) = source {
            self.report.lose(path, why)?;
            return Ok(false);
        }
        let file = match target::make_file(folder, name) {
            Ok(file) => file,
            Err(error) => {
                self.report.lose(path, &format!("it cannot be made: {error}"))?;
                return Ok(false);
            }
        };
        let copied = match source {
            Source::Inline(bytes) => {
                let copied = bytes::Copied { bytes: bytes.len() as u64, unreadable: 0 };
                file.write_all_at(bytes, 0).map(|()| copied)
            }
            Source::Content { file: content, size, .. } => bytes::copy(content, *size, &file),
            Source::Empty | Source::Lost(_) => Ok(bytes::Copied::default()),
        };
        // A full disk ends the salvage: all that follows would fail too.
        let copied = copied.map_err(|error| failed_in("writing", path, error))?;
        self.done.bytes += copied.bytes;
        if copied.unreadable > 0 {
            let says = format!("the disk cannot read {} of its bytes", copied.unreadable);
            self.report.lose(path, &says)?;
        }
        if let Source::Content { short: short @ 1.., mtime, .. } = source {
            let says = match mtime {
                None => format!("its last {short} bytes are missing"),
                Some(_) => format!("its last {short} bytes were not synced when it was open"),
            };
            self.report.lose(path, &says)?;
        }
        Ok(true)
    }

    /// Sets the attributes of a directory, after the last file in it was made.
    fn finish_directory(
        &mut self,
        level: &Level,
        folder: BorrowedFd<'_>,
    ) -> Result<(), SalvageError> {
        if !level.path.starts_with(b"lost+found/") {
            self.done.directories += 1;
        }
        let Some(rnode) = &level.rnode else { return Ok(()) };
        let made = Made::Directory(folder);
        self.attributes(rnode, &made, &level.path)?;
        let counts = self.rows.get(&key::partition(level.ino, 0)).map_err(failed_rows)?;
        let counts = counts.as_deref().and_then(|value| Partition::decode(value).ok());
        let mtime = counts.map_or(rnode.mtime, |(_, counts)| counts.mtime.max(rnode.mtime));
        let set = made.set_times(rnode.atime, mtime);
        self.told(set, &level.path, "its times")
    }

    /// Sets owner, extended attributes and mode. The mode comes last, because it may forbid to set
    /// attributes. A change of the owner takes some of both away, so it comes first.
    fn attributes(
        &mut self,
        rnode: &Rnode,
        made: &Made<'_>,
        path: &[u8],
    ) -> Result<(), SalvageError> {
        let owned = made.set_owner(rnode);
        if rnode.flags.has_xattrs {
            self.xattrs(rnode, made, path)?;
        }
        // Without its owner it would give rights of this user.
        let set = owned.and_then(|()| made.set_mode(rnode));
        self.told(set, path, "its owner or mode")
    }

    fn xattrs(&mut self, rnode: &Rnode, made: &Made<'_>, path: &[u8]) -> Result<(), SalvageError> {
        let range = key::xattrs_of(rnode.ino);
        let mut attributes = Vec::new();
        let scanned = self.rows.scan(&range, &mut |key, value| {
            attributes.push(Entry { key: key.to_vec(), value: value.to_vec() });
            ControlFlow::Continue(())
        });
        scanned.map_err(failed_rows)?;
        if attributes.is_empty() || self.rows.overlaps(&range) {
            self.report.lose(path, "extended attributes may be missing, or older ones")?;
        }
        for Entry { key, value } in attributes {
            let Some(Key::Xattr { name, .. }) = Key::parse(&key) else { continue };
            let what = format!("its attribute {}", name.escape_ascii());
            match Xattr::decode(&value) {
                Ok((_, row)) => {
                    let set = made.set_xattr(name, row.value);
                    self.told(set, path, &what)?;
                }
                Err(error) => self.report.lose(path, &format!("{what}: {error}"))?,
            }
        }
        Ok(())
    }

    /// Reports that a file may be older than it was, if a newer version of the row at `key` may be
    /// lost. Returns whether it may.
    fn doubt(&mut self, key: &[u8], path: &[u8]) -> Result<bool, SalvageError> {
        let is_in_doubt = self.rows.is_in_doubt(key);
        if is_in_doubt {
            self.report.lose(path, "a newer state of it may be lost")?;
        }
        Ok(is_in_doubt)
    }

    fn told(
        &mut self,
        set: rustix::io::Result<()>,
        path: &[u8],
        what: &str,
    ) -> Result<(), SalvageError> {
        match set {
            Ok(()) => Ok(()),
            Err(error) => self.report.lose(path, &format!("{what} cannot be set: {error}")),
        }
    }
}

/// Describes a failure at a path in the target.
fn failed_in(doing: &'static str, path: &[u8], error: io::Error) -> SalvageError {
    super::failed_at(doing, &PathBuf::from(OsStr::from_bytes(path)), error)
}

/// Describes a failure of the salvage's table.
pub(super) fn failed_rows(source: pelago_store::table::Error) -> SalvageError {
    SalvageError::Rows { path: "the target".into(), source }
}
