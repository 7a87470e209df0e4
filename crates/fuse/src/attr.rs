//! File attributes in the kernel's terms.

/// A point in time: seconds since 1970 (UTC), rounded down, and nanoseconds (below 10⁹).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds after `seconds`.
    pub nanos: u32,
}

/// The file types, numbered as in `st_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum FileType {
    /// A named pipe.
    Fifo = 0o010_000,
    /// A character device.
    CharDevice = 0o020_000,
    /// A directory.
    Directory = 0o040_000,
    /// A block device.
    BlockDevice = 0o060_000,
    /// A regular file.
    Regular = 0o100_000,
    /// A symbolic link.
    Symlink = 0o120_000,
    /// A socket.
    Socket = 0o140_000,
}

impl FileType {
    /// Returns the number that `d_type` of a directory entry has.
    #[must_use]
    pub const fn in_listing(self) -> u32 {
        self as u32 >> 12
    }
}

/// Attributes of a file (`fuse_attr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Inode number that programs see (`st_ino`).
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Allocated blocks of 512 bytes.
    pub blocks: u64,
    /// Time of the last read.
    pub atime: Timestamp,
    /// Time of the last write.
    pub mtime: Timestamp,
    /// Time of the last change of bytes or attributes.
    pub ctime: Timestamp,
    /// Type of the file.
    pub file_type: FileType,
    /// Permission, setuid, setgid and sticky bits: the lower twelve of `st_mode`.
    pub mode: u16,
    /// Count of hard links.
    pub links: u32,
    /// Id of the owner.
    pub uid: u32,
    /// Id of the group.
    pub gid: u32,
    /// Device number; zero unless it is a device.
    pub rdev: u32,
    /// Preferred I/O size in bytes (`st_blksize`).
    pub block_bytes: u32,
}
