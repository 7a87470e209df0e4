//! The files of an index, with a checksum at the end of those to which the engine gives none.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    AntiCallToken, Directory, DirectoryLock, FileHandle, Lock, MmapDirectory, TerminatingWrite,
    WatchCallback, WatchHandle, WritePtr,
};
use xxhash_rust::xxh3::xxh3_64;

const CHECKSUM_BYTES: usize = 8;

/// A folder whose files are mapped. The few files that name all others, and are replaced as a
/// whole, end with a checksum; each of the others has one of the engine's.
///
/// It notes that the disk is full, because the engine hides the kind of some errors.
#[derive(Debug, Clone)]
pub(crate) struct Checked {
    files: MmapDirectory,
    is_full: Arc<AtomicBool>,
}

impl Checked {
    /// Returns the folder, which must exist.
    pub(crate) fn open(folder: &Path) -> tantivy::Result<Self> {
        Ok(Self { files: MmapDirectory::open(folder)?, is_full: Arc::default() })
    }

    /// Returns what tells whether a write has found the disk full.
    pub(crate) fn is_full(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_full)
    }
}

impl Directory for Checked {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        self.files.get_file_handle(path)
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        self.files.delete(path)
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        self.files.exists(path)
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        let file = self.files.open_write(path).inspect_err(|error| {
            if let OpenWriteError::IoError { io_error, .. } = error {
                note(&self.is_full, io_error);
            }
        })?;
        let is_full = Arc::clone(&self.is_full);
        Ok(WritePtr::new(Box::new(Noting { file, is_full })))
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        let mut bytes = self.files.atomic_read(path)?;
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
        self.files.atomic_write(path, &bytes).inspect_err(|error| note(&self.is_full, error))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.files.sync_directory()
    }

    fn acquire_lock(&self, lock: &Lock) -> Result<DirectoryLock, LockError> {
        self.files.acquire_lock(lock)
    }

    /// No reader watches the files: a half loads its own commits.
    fn watch(&self, _: WatchCallback) -> tantivy::Result<WatchHandle> {
        Ok(WatchHandle::empty())
    }
}

/// A file whose errors are noted.
struct Noting {
    file: WritePtr,
    is_full: Arc<AtomicBool>,
}

impl Write for Noting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).inspect_err(|error| note(&self.is_full, error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().inspect_err(|error| note(&self.is_full, error))
    }
}

impl TerminatingWrite for Noting {
    fn terminate_ref(&mut self, token: AntiCallToken) -> io::Result<()> {
        self.file.terminate_ref(token).inspect_err(|error| note(&self.is_full, error))
    }
}

fn note(is_full: &AtomicBool, error: &io::Error) {
    if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        is_full.store(true, Ordering::Relaxed);
    }
}
