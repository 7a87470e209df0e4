//! Attributes as the kernel wants them.

/// A point in time: seconds since 1970, rounded down, and nanoseconds behind them (below 10⁹).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds; before 1970 below zero.
    pub seconds: i64,
    /// Nanoseconds after `seconds`.
    pub nanos: u32,
}

/// The kinds of files, with the numbers of `st_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum FileType {
    /// A pipe with a name.
    Fifo = 0o010_000,
    /// A device read by characters.
    CharDevice = 0o020_000,
    /// A directory.
    Directory = 0o040_000,
    /// A device read by blocks.
    BlockDevice = 0o060_000,
    /// An ordinary file.
    Regular = 0o100_000,
    /// A symbolic link.
    Symlink = 0o120_000,
    /// A socket.
    Socket = 0o140_000,
}

impl FileType {
    /// As `d_type` in a listing.
    #[must_use]
    pub const fn in_listing(self) -> u32 {
        self as u32 >> 12
    }
}

/// Attributes of a file (`fuse_attr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// What programs see as `st_ino`.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes that it takes.
    pub blocks: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last written.
    pub mtime: Timestamp,
    /// Last changed in any way.
    pub ctime: Timestamp,
    /// Of what kind.
    pub file_type: FileType,
    /// Permission, setuid, setgid and sticky bits: the lower twelve of `st_mode`.
    pub mode: u16,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Which device, if it is one.
    pub rdev: u32,
    /// Bytes that programs are told to read and write at a time.
    pub block_bytes: u32,
}
