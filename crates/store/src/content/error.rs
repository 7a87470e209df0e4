//! What can go wrong with a content file.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// Why a content file could not be used.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {} failed", path.display())]
pub struct Error {
    /// What was tried.
    pub doing: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Bytes of a write that are in the file all the same.
    pub written: usize,
    /// What the system answered.
    #[source]
    pub source: io::Error,
}

impl Error {
    pub(super) fn new(doing: &'static str, path: PathBuf, error: Errno) -> Self {
        Self::from_io(doing, path, error.into())
    }

    pub(super) const fn from_io(doing: &'static str, path: PathBuf, source: io::Error) -> Self {
        Self { doing, path, written: 0, source }
    }

    /// Whether the medium, or what its owner may use of it, is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Whether the medium takes no changes.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.source.kind() == io::ErrorKind::ReadOnlyFilesystem
    }

    /// Whether the medium's files cannot be that large.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.source.kind() == io::ErrorKind::FileTooLarge
    }

    /// Whether the medium cannot do such a thing at all.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        // `EOPNOTSUPP` and `ENOSYS`.
        self.source.kind() == io::ErrorKind::Unsupported
    }

    /// Whether the process has as many files open as it may.
    #[must_use]
    pub fn is_too_many_open(&self) -> bool {
        let errno = self.source.raw_os_error();
        errno == Some(Errno::MFILE.raw_os_error()) || errno == Some(Errno::NFILE.raw_os_error())
    }
}
