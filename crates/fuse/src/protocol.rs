//! Flags of the protocol (`include/uapi/linux/fuse.h`, 7.45) that file systems use.

use crate::init::Capabilities;

/// Reads and writes bypass the page cache.
pub const FOPEN_DIRECT_IO: u32 = 1 << 0;
/// The open keeps cached pages of the file.
pub const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// The file cannot seek.
pub const FOPEN_NONSEEKABLE: u32 = 1 << 2;
/// The kernel may cache the listing of the directory.
pub const FOPEN_CACHE_DIR: u32 = 1 << 3;
/// The file is a stream: it has no position, and reads wait for no write.
pub const FOPEN_STREAM: u32 = 1 << 4;
/// A closed descriptor sends no FUSE_FLUSH.
pub const FOPEN_NOFLUSH: u32 = 1 << 5;
/// Direct writes to one file may run concurrently.
pub const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
/// The kernel reads and writes a registered descriptor.
pub const FOPEN_PASSTHROUGH: u32 = 1 << 7;

/// Capabilities, named as in the kernel without `FUSE_`.
impl Capabilities {
    /// Reads of one file may run concurrently.
    pub const ASYNC_READ: Self = Self(1 << 0);
    /// The file system keeps `fcntl` locks, also those of open file descriptions; else the kernel.
    /// Excludes [`FOPEN_NOFLUSH`]: an unlock at a close is carried by FUSE_FLUSH alone.
    pub const POSIX_LOCKS: Self = Self(1 << 1);
    /// FUSE_OPEN has `O_TRUNC`; else FUSE_SETATTR truncates.
    pub const ATOMIC_O_TRUNC: Self = Self(1 << 3);
    /// Forgotten nodes are looked up by their id (names `.` and `..`).
    pub const EXPORT_SUPPORT: Self = Self(1 << 4);
    /// Writes may be larger than a page. Always wanted.
    pub const BIG_WRITES: Self = Self(1 << 5);
    /// The file system applies the umask, not the kernel.
    pub const DONT_MASK: Self = Self(1 << 6);
    /// The file system keeps `flock` locks; else the kernel does.
    pub const FLOCK_LOCKS: Self = Self(1 << 10);
    /// Cached pages are dropped if size or mtime of the file have changed.
    pub const AUTO_INVAL_DATA: Self = Self(1 << 12);
    /// Listings have attributes (FUSE_READDIRPLUS).
    pub const DO_READDIRPLUS: Self = Self(1 << 13);
    /// Direct I/O is split into concurrent requests.
    pub const ASYNC_DIO: Self = Self(1 << 15);
    /// Lookups and listings of one directory may run concurrently.
    pub const PARALLEL_DIROPS: Self = Self(1 << 18);
    /// The kernel caches and checks access control lists.
    pub const POSIX_ACL: Self = Self(1 << 20);
    /// A request may have more than 32 pages. Always wanted.
    pub const MAX_PAGES: Self = Self(1 << 22);
    /// The kernel caches targets of symbolic links.
    pub const CACHE_SYMLINKS: Self = Self(1 << 23);
    /// The file system clears setuid and setgid bits on request (7.33, Linux 5.13).
    pub const HANDLE_KILLPRIV_V2: Self = Self(1 << 28);
    /// FUSE_SETXATTR has flags (7.33, Linux 5.13). Always wanted.
    pub const SETXATTR_EXT: Self = Self(1 << 29);
    /// FUSE_INIT has `flags2` (7.36, Linux 5.17). Always wanted.
    pub const INIT_EXT: Self = Self(1 << 30);
    /// The kernel knows [`crate::Notifier::expire_entry`]. It needs no request; a file system that
    /// wants it learns whether it is there (7.38, Linux 6.3).
    pub const HAS_EXPIRE_ONLY: Self = Self(1 << 35);
    /// Files opened for direct I/O can be mapped (7.39, Linux 6.6).
    pub const DIRECT_IO_ALLOW_MMAP: Self = Self(1 << 36);
    /// Files can be read and written through registered descriptors (7.40, Linux 6.9). Excludes
    /// write-back mode.
    pub const PASSTHROUGH: Self = Self(1 << 37);
    /// Requests come over io_uring (7.42, Linux 6.14). The session wants it, not a file system.
    pub(crate) const OVER_IO_URING: Self = Self(1 << 41);
}
