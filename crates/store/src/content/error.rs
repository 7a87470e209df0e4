//! Errors of content files.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// An operation on a content file that failed.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {} failed", path.display())]
pub struct Error {
    /// The operation, for a message: "opening".
    pub doing: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Bytes that a failed write or copy had written before.
    pub written: usize,
    /// The error of the system call.
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

    /// Returns whether the disk is full or a quota is used up (`ENOSPC`, `EDQUOT`).
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Returns whether the file system is read-only (`EROFS`).
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.source.kind() == io::ErrorKind::ReadOnlyFilesystem
    }

    /// Returns whether the file would be larger than the file system allows (`EFBIG`).
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.source.kind() == io::ErrorKind::FileTooLarge
    }

    /// Returns whether the file system does not have this operation (`EOPNOTSUPP`, `ENOSYS`).
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        self.source.kind() == io::ErrorKind::Unsupported
    }

    /// Returns whether the process or the system has too many files open (`EMFILE`, `ENFILE`).
    #[must_use]
    pub fn is_too_many_open(&self) -> bool {
        let errno = self.source.raw_os_error();
        errno == Some(Errno::MFILE.raw_os_error()) || errno == Some(Errno::NFILE.raw_os_error())
    }
}
