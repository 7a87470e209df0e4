//! Disk space that is reserved, and released when the disk is full so that deleting, checking and
//! committing still work.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};

use crate::sync::Mutex;

/// The file `reserve` of a volume. Its methods block on the disk.
#[derive(Debug)]
pub struct Reserve {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// True if the file has all its blocks. Locked while the file grows or shrinks; no other lock
    /// is taken meanwhile.
    is_allocated: Mutex<bool>,
}

/// An operation on the reserve that failed.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {} failed", path.display())]
pub struct Error {
    /// The operation, for a message: "syncing".
    pub doing: &'static str,
    /// The file of the reserve.
    pub path: PathBuf,
    /// The error of the system call.
    #[source]
    pub source: io::Error,
}

impl Reserve {
    /// Opens the reserve in `file`, and allocates `bytes` to it if the disk has them and the file
    /// system can. `path` names the file in errors.
    ///
    /// # Errors
    /// [`Error`] if a system call fails, but not if the disk is too full: then
    /// [`Reserve::is_allocated`] returns false.
    pub fn open(file: File, path: PathBuf, bytes: u64) -> Result<Self, Error> {
        let reserve = Self { path, file, bytes, is_allocated: Mutex::new(false) };
        reserve.allocate()?;
        Ok(reserve)
    }

    /// Returns the size of the reserve in bytes, as if it were allocated.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Releases up to `bytes`, but keeps `keep` bytes. The caller allocates the space at once,
    /// before another program does. Returns whether any space was released.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn release_part(&self, bytes: u64, keep: u64) -> io::Result<bool> {
        let mut is_allocated = self.is_allocated.lock();
        let meta = self.file.metadata()?;
        // The length alone would not do: the file may be long and have no blocks.
        let has = meta.len().min(meta.blocks().saturating_mul(512));
        if has <= keep {
            return Ok(false);
        }
        *is_allocated = false;
        self.file.set_len(keep.max(has.saturating_sub(bytes)))?;
        Ok(true)
    }

    /// Releases all space. Returns whether the reserve was allocated.
    ///
    /// # Errors
    /// [`Error`] if a system call fails.
    pub fn release(&self) -> Result<bool, Error> {
        let mut is_allocated = self.is_allocated.lock();
        let had = *is_allocated;
        self.file.set_len(0).map_err(|source| self.failed("emptying", source))?;
        *is_allocated = false;
        // Some file systems reuse freed blocks only after their own journal is written.
        self.file.sync_all().map_err(|source| self.failed("syncing", source))?;
        Ok(had)
    }

    /// Allocates the space again, if the disk has it. Returns whether the reserve is allocated now.
    ///
    /// # Errors
    /// [`Error`] if a system call fails, but not if the disk is too full.
    pub fn allocate(&self) -> Result<bool, Error> {
        let mut is_allocated = self.is_allocated.lock();
        if !*is_allocated {
            *is_allocated =
                self.allocate_file().map_err(|source| self.failed("allocating", source))?;
        }
        Ok(*is_allocated)
    }

    /// Returns whether the reserve is allocated now.
    #[must_use]
    pub fn is_allocated(&self) -> bool {
        *self.is_allocated.lock()
    }

    fn allocate_file(&self) -> io::Result<bool> {
        let meta = self.file.metadata()?;
        let had = meta.blocks().saturating_mul(512);
        if had >= self.bytes && meta.len() >= self.bytes {
            return Ok(true);
        }
        // Look at the free space first: a failed allocation would fill the disk for a moment. Leave
        // as much again to other programs.
        let stats = fstatvfs(&self.file)?;
        let available = stats.f_bavail.saturating_mul(stats.f_frsize);
        if available / 2 < self.bytes.saturating_sub(had) {
            return Ok(false);
        }
        let allocated = match fallocate(&self.file, FallocateFlags::empty(), 0, self.bytes) {
            Ok(()) => self.file.sync_all(),
            Err(error) => Err(error.into()),
        };
        match allocated {
            Ok(()) => Ok(true),
            Err(error) => {
                self.file.set_len(0)?;
                let has_no_space = matches!(
                    error.kind(),
                    io::ErrorKind::StorageFull
                        | io::ErrorKind::QuotaExceeded
                        | io::ErrorKind::FileTooLarge
                        | io::ErrorKind::Unsupported
                );
                if has_no_space { Ok(false) } else { Err(error) }
            }
        }
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> Error {
        Error { doing, path: self.path.clone(), source }
    }
}
