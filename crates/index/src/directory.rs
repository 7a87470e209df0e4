//! The files of an index, with a checksum at the end of those to which the engine gives none.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    Directory, DirectoryLock, FileHandle, Lock, MmapDirectory, WatchCallback, WatchHandle, WritePtr,
};
use xxhash_rust::xxh3::xxh3_64;

const CHECKSUM_BYTES: usize = 8;

/// A folder whose files are mapped. The few files that name all others, and are replaced as a
/// whole, end with a checksum; each of the others has one of the engine's.
#[derive(Debug, Clone)]
pub(crate) struct Checked(MmapDirectory);

impl Checked {
    /// Returns the folder, which must exist.
    pub(crate) fn open(folder: &Path) -> tantivy::Result<Self> {
        Ok(Self(MmapDirectory::open(folder)?))
    }
}

impl Directory for Checked {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        self.0.get_file_handle(path)
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        self.0.delete(path)
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        self.0.exists(path)
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        self.0.open_write(path)
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        let mut bytes = self.0.atomic_read(path)?;
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
        self.0.atomic_write(path, &bytes)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.0.sync_directory()
    }

    fn acquire_lock(&self, lock: &Lock) -> Result<DirectoryLock, LockError> {
        self.0.acquire_lock(lock)
    }

    /// Nobody watches: a half loads its own commits.
    fn watch(&self, _: WatchCallback) -> tantivy::Result<WatchHandle> {
        Ok(WatchHandle::empty())
    }
}
