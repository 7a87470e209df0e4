//! Numbers of the protocol (`include/uapi/linux/fuse.h`, 7.45) that file systems use.

use crate::init::Capabilities;

/// Past the kernel's pages.
pub const FOPEN_DIRECT_IO: u32 = 1 << 0;
/// Pages of the file stay.
pub const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// No offsets.
pub const FOPEN_NONSEEKABLE: u32 = 1 << 2;
/// The listing of a directory may be kept.
pub const FOPEN_CACHE_DIR: u32 = 1 << 3;
/// No FUSE_FLUSH when a descriptor is closed.
pub const FOPEN_NOFLUSH: u32 = 1 << 5;
/// Direct writes to one file at the same time.
pub const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
/// By a registered descriptor.
pub const FOPEN_PASSTHROUGH: u32 = 1 << 7;

/// Abilities, named as in the kernel without `FUSE_`.
impl Capabilities {
    /// Reads of one file at the same time.
    pub const ASYNC_READ: Self = Self(1 << 0);
    /// `O_TRUNC` comes with the open.
    pub const ATOMIC_O_TRUNC: Self = Self(1 << 3);
    /// Nodes that the kernel has forgotten are looked up by their number (`.` and `..`).
    pub const EXPORT_SUPPORT: Self = Self(1 << 4);
    /// Writes may be larger than a page. Always agreed.
    pub const BIG_WRITES: Self = Self(1 << 5);
    /// The caller's umask is not applied by the kernel.
    pub const DONT_MASK: Self = Self(1 << 6);
    /// Pages go when size or time of a file turn out to be others.
    pub const AUTO_INVAL_DATA: Self = Self(1 << 12);
    /// Listings bring attributes.
    pub const DO_READDIRPLUS: Self = Self(1 << 13);
    /// Direct requests are split and sent at once.
    pub const ASYNC_DIO: Self = Self(1 << 15);
    /// Lookups and listings of one directory at the same time.
    pub const PARALLEL_DIROPS: Self = Self(1 << 18);
    /// Access control lists are kept, asked for and checked.
    pub const POSIX_ACL: Self = Self(1 << 20);
    /// More than 32 pages a request.
    pub const MAX_PAGES: Self = Self(1 << 22);
    /// Symbolic links are kept.
    pub const CACHE_SYMLINKS: Self = Self(1 << 23);
    /// The file system clears setuid bits when it is told to.
    pub const HANDLE_KILLPRIV_V2: Self = Self(1 << 28);
    /// FUSE_SETXATTR has flags. Always agreed where it is offered.
    pub const SETXATTR_EXT: Self = Self(1 << 29);
    /// FUSE_INIT has `flags2`. Always agreed where it is offered.
    pub const INIT_EXT: Self = Self(1 << 30);
    /// What may not be kept can be mapped.
    pub const DIRECT_IO_ALLOW_MMAP: Self = Self(1 << 36);
    /// Registered descriptors.
    pub const PASSTHROUGH: Self = Self(1 << 37);
}
