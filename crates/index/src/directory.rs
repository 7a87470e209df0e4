//! The files of an index, opened below its folder and read, not mapped.
//!
//! A mapped file that gets shorter, or has a block that the disk cannot read, ends the process by a
//! signal. A read returns an error, and the index is built again. Files never change once they are
//! written, so a part of a file that many readers use is in memory once.
//!
//! The few files that name all others, and are replaced as a whole, end with a checksum; each of
//! the others has one of the engine's.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::iter;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pelago_folder::{Folder, FolderError};
use quick_cache::sync::Cache;
use rustix::fs::OFlags;
use tantivy::HasLen;
use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    AntiCallToken, Directory, DirectoryLock, FileHandle, Lock, OwnedBytes, TerminatingWrite,
    WatchCallback, WatchHandle, WritePtr,
};
use xxhash_rust::xxh3::xxh3_64;

const CHECKSUM_BYTES: usize = 8;
/// Permissions of the files.
const MODE: u32 = 0o600;
/// The end of the name under which a file is written that replaces another one.
const NEW: &str = ".new";
/// The bytes from which on a part of a file is shared: it is in memory once for all its readers, as
/// long as one has it.
const SHARED_BYTES: usize = 4096;
/// The bytes of a piece. Smaller parts are read in pieces, some of which stay in memory.
const PIECE_BYTES: usize = 16 << 10;
const PIECES: usize = 128;

/// The files in a folder that only this user can enter.
///
/// It records that the disk is full, because the engine hides the kind of some errors.
#[derive(Clone)]
pub(crate) struct Files {
    folder: Folder,
    open: Arc<Mutex<HashMap<PathBuf, Weak<OpenFile>>>>,
    pieces: Arc<Pieces>,
    opened: Arc<AtomicU64>,
    is_full: Arc<AtomicBool>,
}

/// Parts of a file, by their begin and end.
type Parts = HashMap<(usize, usize), Weak<[u8]>>;
/// Pieces of files, by the number of the file and that of the piece.
type Pieces = Cache<(u64, usize), Arc<[u8]>>;

/// A file that does not change any more.
struct OpenFile {
    file: File,
    /// The number of the file, which no other opened file has.
    number: u64,
    bytes: usize,
    pieces: Arc<Pieces>,
    /// The parts that are in memory.
    parts: Mutex<Parts>,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Files {
    /// Returns the files of a folder.
    pub(crate) fn of(folder: Folder) -> Self {
        Self {
            folder,
            open: Arc::default(),
            pieces: Arc::new(Cache::new(PIECES)),
            opened: Arc::default(),
            is_full: Arc::default(),
        }
    }

    /// Returns the flag that says whether a write has found the disk full.
    pub(crate) fn is_full(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_full)
    }

    /// Opens a file that was written to its end.
    pub(crate) fn open_whole(&self, path: &Path) -> io::Result<File> {
        self.folder.open_file(path, OFlags::RDONLY).map_err(io_error)
    }

    fn opened(&self, file: File) -> io::Result<OpenFile> {
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(OpenFile {
            file,
            number,
            bytes,
            pieces: Arc::clone(&self.pieces),
            parts: Mutex::default(),
        })
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut new = path.as_os_str().to_owned();
        new.push(NEW);
        let mut file = self.folder.replace_file(&new, MODE).map_err(io_error)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        self.folder.rename(&new, path).map_err(io_error)
    }
}

impl Directory for Files {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        let mut open = self.open.lock();
        if let Some(file) = open.get(path).and_then(Weak::upgrade) {
            return Ok(file);
        }
        let opened = self.open_whole(path).and_then(|file| self.opened(file));
        let file = Arc::new(opened.map_err(|error| read_error(path, error))?);
        open.retain(|_, file| file.strong_count() > 0);
        open.insert(path.to_owned(), Arc::downgrade(&file));
        Ok(file)
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        let failed = |error| DeleteError::IoError {
            io_error: Arc::new(io_error(error)),
            filepath: path.to_owned(),
        };
        if !self.folder.contains(path).map_err(failed)? {
            return Err(DeleteError::FileDoesNotExist(path.to_owned()));
        }
        self.folder.remove(path).map_err(failed)
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        let found = self.folder.contains(path);
        found.map_err(|error| OpenReadError::wrap_io_error(io_error(error), path.to_owned()))
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        let file = match self.folder.create_new(path, MODE) {
            Ok(file) => file,
            Err(error) if error.is_found() => {
                return Err(OpenWriteError::FileAlreadyExists(path.to_owned()));
            }
            Err(error) => {
                let error = io_error(error);
                note(&self.is_full, &error);
                return Err(OpenWriteError::wrap_io_error(error, path.to_owned()));
            }
        };
        Ok(BufWriter::new(Box::new(Written { file, is_full: Arc::clone(&self.is_full) })))
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        let mut bytes = Vec::new();
        let read = self.open_whole(path).and_then(|mut file| file.read_to_end(&mut bytes));
        read.map_err(|error| read_error(path, error))?;
        let is_right = bytes
            .split_last_chunk::<CHECKSUM_BYTES>()
            .is_some_and(|(data, checksum)| xxh3_64(data) == u64::from_le_bytes(*checksum));
        if !is_right {
            let error = io::Error::new(io::ErrorKind::InvalidData, "its checksum is wrong");
            return Err(OpenReadError::wrap_io_error(error, path.to_owned()));
        }
        bytes.truncate(bytes.len() - CHECKSUM_BYTES);
        Ok(bytes)
    }

    fn atomic_write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        let mut bytes = data.to_vec();
        bytes.extend(xxh3_64(data).to_le_bytes());
        self.replace(path, &bytes).inspect_err(|error| note(&self.is_full, error))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.folder.sync().map_err(io_error)
    }

    fn acquire_lock(&self, lock: &Lock) -> Result<DirectoryLock, LockError> {
        let file = self.folder.open_file(&lock.filepath, OFlags::RDWR | OFlags::CREATE);
        let file = file.map_err(|error| LockError::wrap_io_error(io_error(error)))?;
        match lock.is_blocking {
            true => file.lock().map_err(LockError::wrap_io_error)?,
            false => file.try_lock().map_err(|_| LockError::LockBusy)?,
        }
        // The lock ends with the descriptor.
        Ok(DirectoryLock::from(Box::new(file)))
    }

    /// No reader watches the files: a half loads its own commits.
    fn watch(&self, _: WatchCallback) -> tantivy::Result<WatchHandle> {
        Ok(WatchHandle::empty())
    }
}

impl OpenFile {
    fn read_small(&self, range: &Range<usize>) -> io::Result<OwnedBytes> {
        let piece = range.start / PIECE_BYTES;
        let begin = piece * PIECE_BYTES;
        let whole = begin..self.bytes.min(begin + PIECE_BYTES);
        if range.end > whole.end {
            return Ok(OwnedBytes::new(self.read(range)?));
        }
        let key = (self.number, piece);
        let bytes = self.pieces.get_or_insert_with(&key, || self.read(&whole))?;
        Ok(OwnedBytes::new(bytes).slice(range.start - begin..range.end - begin))
    }

    fn read(&self, range: &Range<usize>) -> io::Result<Arc<[u8]>> {
        let mut bytes: Arc<[u8]> = iter::repeat_n(0, range.len()).collect();
        let own = Arc::get_mut(&mut bytes).expect("no other one has it yet");
        self.file.read_exact_at(own, range.start as u64)?;
        Ok(bytes)
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenFile").field("file", &self.file).finish_non_exhaustive()
    }
}

impl HasLen for OpenFile {
    fn len(&self) -> usize {
        self.bytes
    }
}

impl FileHandle for OpenFile {
    fn read_bytes(&self, range: Range<usize>) -> io::Result<OwnedBytes> {
        if range.start > range.end || range.end > self.bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if range.len() < SHARED_BYTES {
            return self.read_small(&range);
        }
        let mut parts = self.parts.lock();
        let key = (range.start, range.end);
        if let Some(part) = parts.get(&key).and_then(Weak::upgrade) {
            return Ok(OwnedBytes::new(part));
        }
        let part = self.read(&range)?;
        parts.retain(|_, part| part.strong_count() > 0);
        parts.insert(key, Arc::downgrade(&part));
        Ok(OwnedBytes::new(part))
    }
}

/// A file that is being written, whose errors are recorded.
struct Written {
    file: File,
    is_full: Arc<AtomicBool>,
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).inspect_err(|error| note(&self.is_full, error))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TerminatingWrite for Written {
    fn terminate_ref(&mut self, _: AntiCallToken) -> io::Result<()> {
        self.file.sync_data().inspect_err(|error| note(&self.is_full, error))
    }
}

fn note(is_full: &AtomicBool, error: &io::Error) {
    if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        is_full.store(true, Ordering::Relaxed);
    }
}

fn read_error(path: &Path, error: io::Error) -> OpenReadError {
    match error.kind() {
        io::ErrorKind::NotFound => OpenReadError::FileDoesNotExist(path.to_owned()),
        _ => OpenReadError::wrap_io_error(error, path.to_owned()),
    }
}

/// Returns the error of the system; a file that is not ours is damage.
fn io_error(error: FolderError) -> io::Error {
    match error {
        FolderError::Io { source, .. } => source,
        other => io::Error::new(io::ErrorKind::InvalidData, other),
    }
}
