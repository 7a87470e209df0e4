//! Space that is given up when the medium is full, so that removing, checking and committing still
//! work.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};

/// The file `reserve` of a volume. Its methods block on the medium.
#[derive(Debug)]
pub struct Reserve {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// Taken alone; held while the file grows or shrinks.
    held: Mutex<bool>,
}

/// What failed with the reserve.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {} failed", path.display())]
pub struct Error {
    /// What was tried.
    pub doing: &'static str,
    /// The file.
    pub path: PathBuf,
    /// What the system answered.
    #[source]
    pub source: io::Error,
}

impl Reserve {
    /// Reserves `bytes` in this file, where there is space for that: a medium that is too full, or
    /// that cannot reserve, is no error, but then nothing [is held](Self::is_held). Errors name the
    /// file by `path`.
    ///
    /// # Errors
    /// [`Error`] where the medium fails otherwise.
    pub fn ensure(file: File, path: PathBuf, bytes: u64) -> Result<Self, Error> {
        let reserve = Self { path, file, bytes, held: Mutex::new(false) };
        reserve.restore()?;
        Ok(reserve)
    }

    /// Bytes that are reserved while nobody needs them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Frees up to `bytes` of the space, for one who takes them at once; `kept` stay. Answers
    /// whether any was freed.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn lend(&self, bytes: u64, kept: u64) -> io::Result<bool> {
        let mut held = self.held.lock();
        let meta = self.file.metadata()?;
        // A file that never got its blocks has none to lend.
        let has = meta.len().min(meta.blocks().saturating_mul(512));
        if has <= kept {
            return Ok(false);
        }
        *held = false;
        self.file.set_len(kept.max(has.saturating_sub(bytes)))?;
        Ok(true)
    }

    /// Frees the space. Answers whether there was any.
    ///
    /// # Errors
    /// [`Error`] where the medium fails.
    pub fn give_up(&self) -> Result<bool, Error> {
        let mut held = self.held.lock();
        let had = *held;
        self.file.set_len(0).map_err(|source| self.failed("emptying", source))?;
        *held = false;
        // Some file systems lend freed space again only after their journal is written.
        self.file.sync_all().map_err(|source| self.failed("syncing", source))?;
        Ok(had)
    }

    /// Reserves the space again, where there is enough. Answers whether it is held now.
    ///
    /// # Errors
    /// [`Error`] where the medium fails otherwise.
    pub fn restore(&self) -> Result<bool, Error> {
        let mut held = self.held.lock();
        if !*held {
            *held = self.fill().map_err(|source| self.failed("reserving", source))?;
        }
        Ok(*held)
    }

    /// Whether the space is reserved now.
    #[must_use]
    pub fn is_held(&self) -> bool {
        *self.held.lock()
    }

    fn fill(&self) -> io::Result<bool> {
        let meta = self.file.metadata()?;
        let had = meta.blocks().saturating_mul(512);
        if had >= self.bytes && meta.len() >= self.bytes {
            return Ok(true);
        }
        // Asked first, so that a reserve that cannot be had does not fill the medium on the way,
        // and one that can leaves somebody else as much again.
        let stats = fstatvfs(&self.file)?;
        let available = stats.f_bavail.saturating_mul(stats.f_frsize);
        if available / 2 < self.bytes.saturating_sub(had) {
            return Ok(false);
        }
        let got = match fallocate(&self.file, FallocateFlags::empty(), 0, self.bytes) {
            Ok(()) => self.file.sync_all(),
            Err(error) => Err(error.into()),
        };
        match got {
            Ok(()) => Ok(true),
            Err(error) => {
                self.file.set_len(0)?;
                let lacking = matches!(
                    error.kind(),
                    io::ErrorKind::StorageFull
                        | io::ErrorKind::QuotaExceeded
                        | io::ErrorKind::FileTooLarge
                        | io::ErrorKind::Unsupported
                );
                if lacking { Ok(false) } else { Err(error) }
            }
        }
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> Error {
        Error { doing, path: self.path.clone(), source }
    }
}
