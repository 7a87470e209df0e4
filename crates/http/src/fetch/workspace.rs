//! The two files of a download beside its target: the data, and the state.
//!
//! Other users may be able to write that folder. So both files are opened relative to its
//! descriptor and belong to this user alone; a file that another user has put there is refused,
//! with an error that names it.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use pelago_folder::{Folder, FolderError};
use pelago_wire::blocks::{ExtentHash, Extents};
use pelago_wire::limits::{EXTENT_BYTES, NAME_BYTES};
use rustix::fs::{Gid, Mode, OFlags, fchmod, fchown};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::fetch::error::FetchError;
use crate::fetch::received::Received;
use crate::fetch::state::{Form, HEAD_BYTES, RECORD_BYTES, Record, StateHead};
use crate::hashes;

/// Bytes after which the received bytes are made safe.
const SYNC_BYTES: u64 = 64 << 20;
const DATA: &str = ".pelago-get";
const STATE: &str = ".pelago-state";
/// Permissions of both files until the download is whole.
const MODE: u32 = 0o600;
/// The limit for symbolic links that are followed from the path of a target to its file.
const LINKS: u32 = 40;

/// The files of a download, locked against other processes.
pub(super) struct Workspace {
    folder: Folder,
    name: OsString,
    data_name: OsString,
    state_name: OsString,
    data: File,
    state: File,
    unsynced: u64,
}

impl Workspace {
    /// Opens the files beside a target, and creates them if they do not exist.
    pub(super) fn open(target: &Path) -> Result<Self, FetchError> {
        let target = resolve(target)?;
        let folder = Folder::open(parent_of(&target))?;
        let name = target.file_name().unwrap_or_default().to_owned();
        let [data_name, state_name] = [DATA, STATE].map(|end| hidden(name.as_bytes(), end));
        let data = open_file(&folder, &data_name)?;
        match data.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FetchError::InUse { path: target }),
            Err(TryLockError::Error(error)) => {
                return Err(FetchError::of_disk(&folder.path().join(&data_name), error));
            }
        }
        // Another download may have ended between the open and the lock: the file is its target
        // now.
        if !folder.is_named(&data_name, &data)? {
            return Err(FetchError::InUse { path: target });
        }
        let state = open_file(&folder, &state_name)?;
        Ok(Self { folder, name, data_name, state_name, data, state, unsynced: 0 })
    }

    /// Returns the head of the state file, if an earlier run has written one.
    pub(super) fn head(&self) -> Option<StateHead> {
        let mut bytes = vec![0; HEAD_BYTES];
        self.state.read_exact_at(&mut bytes, 0).ok()?;
        StateHead::decode(&bytes)
    }

    /// Begins a download from nothing.
    pub(super) fn begin(&mut self, head: &StateHead) -> Result<(), FetchError> {
        let size = if head.form == Form::Blocks { head.size.unwrap_or(0) } else { 0 };
        self.state.set_len(0).map_err(|error| self.state_failed(error))?;
        self.data.set_len(0).map_err(|error| self.data_failed(error))?;
        // A sparse file: it takes room as blocks are written.
        self.data.set_len(size).map_err(|error| self.data_failed(error))?;
        self.state.write_all_at(&head.encode(), 0).map_err(|error| self.state_failed(error))?;
        self.unsynced = 0;
        Ok(())
    }

    /// Removes everything that was received.
    pub(super) fn forget(&mut self) -> Result<(), FetchError> {
        self.state.set_len(0).map_err(|error| self.state_failed(error))?;
        self.data.set_len(0).map_err(|error| self.data_failed(error))
    }

    /// Removes both files.
    pub(super) fn remove(self) {
        // Nothing was received: a file that stays takes no room.
        for name in [&self.state_name, &self.data_name] {
            let _removed = self.folder.remove(name);
        }
    }

    /// Returns the blocks that an earlier run has received of a file. Extents that were verified
    /// are hashed again: after a loss of power some of them may be gone. A match with the recorded
    /// hash proves nothing until the server confirms it: see [`Received::has_notes`].
    pub(super) fn received(&self, file: Extents) -> Result<Received, FetchError> {
        let mut received = Received::new(file);
        let found = self.data.metadata().map_err(|error| self.data_failed(error))?;
        if found.len() != file.size() {
            return Ok(received);
        }
        let mut buffer = Vec::new();
        for (record, extent) in self.records(file).zip(0..) {
            let Ok(record) = record else { break };
            match record.hash {
                None => received.restore(extent, record.have, false),
                Some(hash) if self.hash_of(file.extent(extent), &mut buffer)? == hash => {
                    received.restore(extent, record.have, true);
                }
                Some(_) => {}
            }
        }
        Ok(received)
    }

    /// Returns the number of received bytes of a file whose bytes come in order.
    pub(super) fn length(&self) -> Result<u64, FetchError> {
        self.data.metadata().map(|it| it.len()).map_err(|error| self.data_failed(error))
    }

    /// Writes a part of the file.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FetchError> {
        self.data.write_all_at(bytes, offset).map_err(|error| self.data_failed(error))?;
        self.unsynced += bytes.len() as u64;
        if self.unsynced >= SYNC_BYTES {
            self.sync()?;
        }
        Ok(())
    }

    /// Writes the record of an extent. The blocks that it names were written before.
    pub(super) fn record(&self, extent: u64, record: Record) -> Result<(), FetchError> {
        let at = Record::at(extent);
        let written = self.state.write_all_at(&record.encode(), at);
        written.map_err(|error| self.state_failed(error))
    }

    /// Hashes a part of the data file.
    pub(super) fn hash_of(
        &self,
        part: Range<u64>,
        buffer: &mut Vec<u8>,
    ) -> Result<ExtentHash, FetchError> {
        // A part is at most an extent.
        buffer.resize(((part.end - part.start) as usize).min(EXTENT_BYTES), 0);
        let read = self.data.read_exact_at(buffer, part.start);
        read.map_err(|error| self.data_failed(error))?;
        Ok(*blake3::hash(buffer).as_bytes())
    }

    /// Returns the root of a file of which each extent is verified.
    pub(super) fn root(&self, file: Extents) -> Result<ExtentHash, FetchError> {
        let mut failed = None;
        let hashes = self.records(file).map(|record| match record {
            Ok(record) => record.hash.unwrap_or_default(),
            Err(error) => {
                failed.get_or_insert(error);
                ExtentHash::default()
            }
        });
        let root = hashes::root(file, hashes);
        failed.map_or(Ok(root), |error| Err(self.state_failed(error)))
    }

    /// Makes the received bytes safe: first the data, then the state that describes it.
    pub(super) fn sync(&mut self) -> Result<(), FetchError> {
        self.data.sync_data().map_err(|error| self.data_failed(error))?;
        self.state.sync_data().map_err(|error| self.state_failed(error))?;
        self.unsynced = 0;
        Ok(())
    }

    /// Moves the file to its target, which it replaces atomically. It takes the permissions and the
    /// group of a file of this user that it replaces.
    pub(super) fn finish(self) -> Result<PathBuf, FetchError> {
        self.set_permissions().map_err(|error| self.data_failed(error))?;
        self.data.sync_all().map_err(|error| self.data_failed(error))?;
        self.folder.rename(&self.data_name, &self.name)?;
        self.folder.sync()?;
        // The state file has no meaning without the data file.
        let _removed = self.folder.remove(&self.state_name);
        Ok(self.folder.path().join(&self.name))
    }

    fn set_permissions(&self) -> io::Result<()> {
        let mode = match self.folder.kept_of(&self.name).map_err(io::Error::other)? {
            None => 0o666 & !umask(),
            Some(kept) if kept.group == self.data.metadata()?.gid() => kept.mode,
            Some(kept) => match fchown(&self.data, None, Some(Gid::from_raw(kept.group))) {
                Ok(()) => kept.mode,
                // The file keeps this process's group, which does not get the rights of the other
                // group.
                Err(_) => kept.mode & !0o070 | (kept.mode & 0o007) << 3,
            },
        };
        match fchmod(&self.data, Mode::from_raw_mode(mode)) {
            // A file system that gives all files to one user stores no permissions for them.
            Err(Errno::PERM) if self.data.metadata()?.uid() != geteuid().as_raw() => Ok(()),
            set => Ok(set?),
        }
    }

    /// Reads the records of all extents; beyond the end of the state file they are empty.
    fn records(&self, file: Extents) -> impl Iterator<Item = io::Result<Record>> {
        let from = At { file: &self.state, offset: Record::at(0) };
        let mut from = BufReader::with_capacity(1 << 16, from);
        (0..file.count()).map(move |_| {
            let mut bytes = [0; RECORD_BYTES];
            match from.read_exact(&mut bytes) {
                Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
                Err(_) => Ok(Record::default()),
                Ok(()) => Ok(Record::decode(&bytes)),
            }
        })
    }

    fn data_failed(&self, error: io::Error) -> FetchError {
        FetchError::of_disk(&self.folder.path().join(&self.data_name), error)
    }

    fn state_failed(&self, error: io::Error) -> FetchError {
        FetchError::of_disk(&self.folder.path().join(&self.state_name), error)
    }
}

/// A reader of a file from an offset on.
struct At<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// Follows symbolic links of this user and of root, and checks that a file may be put there.
fn resolve(target: &Path) -> Result<PathBuf, FetchError> {
    let refused = |what| FetchError::Target { path: target.to_owned(), what };
    let mut path = target.to_owned();
    for _ in 0..LINKS {
        if path.file_name().is_none() || path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(FetchError::Directory { path: target.to_owned() });
        }
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => {
                // Another user who may write the folder must not choose the file that is replaced.
                if ![0, geteuid().as_raw()].contains(&found.uid()) {
                    return Err(refused("a symbolic link of another user"));
                }
                let to = fs::read_link(&path).map_err(|error| FetchError::of_disk(&path, error))?;
                path = parent_of(&path).join(to);
            }
            Ok(found) if found.is_dir() => {
                return Err(FetchError::Directory { path: target.to_owned() });
            }
            Ok(found) if !found.is_file() => return Err(refused("no regular file")),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(FetchError::of_disk(target, error));
            }
            Ok(_) | Err(_) => return Ok(path),
        }
    }
    Err(refused("a symbolic link that leads to none but links"))
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Returns the umask of this process; if that is unknown, one that denies all to other users.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o077)
}

/// Returns the name of a file beside the target. A long name is cut, and has a hash of the whole.
fn hidden(name: &[u8], end: &str) -> OsString {
    let most = NAME_BYTES - 1 - STATE.len();
    let mut bytes = vec![b'.'];
    if name.len() <= most {
        bytes.extend(name);
    } else {
        let hash = blake3::hash(name).to_hex();
        let hash = &hash.as_bytes()[..16];
        bytes.extend(&name[..most - hash.len()]);
        bytes.extend(hash);
    }
    bytes.extend(end.as_bytes());
    OsString::from_vec(bytes)
}

/// Opens a file of this user, or creates it.
fn open_file(folder: &Folder, name: &OsString) -> Result<File, FolderError> {
    match folder.create_new(name, MODE) {
        Err(error) if error.is_found() => folder.open_file(name, OFlags::RDWR),
        created => created,
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::blocks::HaveMap;

    use super::*;

    fn head(size: u64) -> StateHead {
        let url = "http://a/b".to_owned();
        let tag = "\"t\"".to_owned();
        StateHead { url, tag, form: Form::Blocks, size: Some(size) }
    }

    #[test]
    fn what_was_verified_is_hashed_again() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        let file = Extents::of(3 << 20).unwrap();
        let mut work = Workspace::open(&target).unwrap();
        work.begin(&head(file.size())).unwrap();
        let bytes = vec![7; 1 << 20];
        let hash = Some(*blake3::hash(&bytes).as_bytes());
        for extent in [0, 1] {
            work.write(extent << 20, &bytes).unwrap();
            work.record(extent, Record { have: u16::MAX, hash }).unwrap();
        }
        work.record(2, Record { have: 0b110, hash: None }).unwrap();
        work.write(5 + (1 << 20), b"x").unwrap();
        drop(work);
        let work = Workspace::open(&target).unwrap();
        assert_eq!(work.head(), Some(head(file.size())));
        let mut received = work.received(file).unwrap();
        assert_eq!(received.prepare_resume(), HaveMap::of((0..16).chain([33, 34])));
    }

    #[test]
    fn two_downloads_to_one_target_are_one_too_many() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        let first = Workspace::open(&target).unwrap();
        assert!(matches!(Workspace::open(&target), Err(FetchError::InUse { .. })));
        assert_eq!(first.finish().unwrap(), target);
        assert!(Workspace::open(&target).is_ok());
    }

    #[test]
    fn directories_are_not_replaced_and_long_names_are_cut() {
        let folder = tempfile::tempdir().unwrap();
        let refused = Workspace::open(folder.path());
        assert!(matches!(refused, Err(FetchError::Directory { .. })));
        let refused = Workspace::open(&folder.path().join("new/"));
        assert!(matches!(refused, Err(FetchError::Directory { .. })));
        let refused = Workspace::open(Path::new("/dev/null"));
        assert!(matches!(refused, Err(FetchError::Target { what: "no regular file", .. })));
        let long = folder.path().join("x".repeat(NAME_BYTES));
        assert_eq!(Workspace::open(&long).unwrap().finish().unwrap(), long);
    }
}
