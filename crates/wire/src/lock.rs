//! Locks of files, as `flock(2)` and `fcntl(2)` set them.

use crate::limits;

/// The holder of a lock within its session: a number that the client's kernel chose. It stands for
/// a process if the lock is of kind [`LockKind::Posix`], else for an open file description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockOwner(pub u64);

/// The system call that sets a lock. Locks of `flock` do not conflict with those of `fcntl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockKind {
    /// `flock`: the whole file, whatever the range says. Ends with the open file description.
    Flock,
    /// `fcntl` with `F_SETLK`: a range of bytes. Ends when the process closes any descriptor of the
    /// file. A deadlock of such locks is found.
    Posix,
    /// `fcntl` with `F_OFD_SETLK`: as `Posix`, but it ends with the open file description, and a
    /// deadlock is not found. FUSE does not tell such a lock from a `Posix` one, so that a mount
    /// sends `Posix`.
    OpenFile,
}

/// The mode of a lock, by what it permits other owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockMode {
    /// Others may hold read locks of the range (`F_RDLCK`, `LOCK_SH`).
    Read,
    /// Others hold no lock of the range (`F_WRLCK`, `LOCK_EX`).
    Write,
    /// No lock: setting it removes the owner's locks of the range (`F_UNLCK`, `LOCK_UN`).
    Unlock,
}

/// A lock of a range of bytes: to set, to test, or held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLock {
    /// The system call it belongs to.
    pub kind: LockKind,
    /// Shared, exclusive, or none.
    pub mode: LockMode,
    /// The first byte.
    pub start: u64,
    /// The last byte, at least `start`; [`FileLock::TO_END`] for a lock that grows with the file.
    pub end: u64,
    /// The process that set the lock, as its own mount numbers processes. 0 in a reply about a lock
    /// of another session or of kind [`LockKind::OpenFile`].
    pub pid: u32,
}

impl FileLock {
    /// The last byte of a lock without an end (the maximum of `off_t`).
    pub const TO_END: u64 = limits::FILE_BYTES;

    /// Returns the range that the lock covers: for `flock` the whole file.
    #[must_use]
    pub const fn range(&self) -> LockRange {
        match self.kind {
            LockKind::Flock => LockRange::ALL,
            LockKind::Posix | LockKind::OpenFile => LockRange { start: self.start, end: self.end },
        }
    }
}

/// The range of bytes that a lock covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRange {
    /// The first byte.
    pub start: u64,
    /// The last byte.
    pub end: u64,
}

impl LockRange {
    /// All bytes of a file.
    pub const ALL: Self = Self { start: 0, end: FileLock::TO_END };

    /// Returns whether a lock can have this range: it is not empty, and ends at
    /// [`FileLock::TO_END`] or before.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.start <= self.end && self.end <= FileLock::TO_END
    }

    /// Returns whether the two ranges have a byte in common.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// Returns the smallest range that contains both.
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}
