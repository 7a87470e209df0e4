//! Options of a mount.

use std::path::PathBuf;

/// Options of a mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The mount point, an empty directory.
    pub mount_point: PathBuf,
    /// The source that `df` and `mount` show.
    pub fs_name: String,
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// Which reads update atime.
    pub atime: Atime,
    /// What the mount trusts in the volume's files; only root may trust anything.
    pub trusts: Trusts,
    /// Whether to use passthrough, if the kernel accepts it; the bytes must be on this machine.
    /// [`crate::Mount::passthrough`] returns the result.
    pub passthrough: bool,
    /// Limit of the inode table in bytes, beyond which the kernel is asked to forget inodes.
    pub inode_table_bytes: u64,
    /// What the kernel may keep of what it was answered.
    pub keeps: Keeps,
}

/// What the kernel may keep of the replies of a mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Keeps {
    /// Names, attributes, listings and pages, until they change. For the mount in the server's own
    /// process, which is told of changes by others ([`crate::Mount::local_cache`]).
    #[default]
    Everything,
    /// Nothing: the server is asked every time, and files bypass the page cache. For a mount that
    /// is told of nothing; it uses no passthrough.
    Nothing,
}

/// Which reads of a file update its atime.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Atime {
    /// The first read after a change, and one read a day (`relatime`).
    #[default]
    Relative,
    /// No reads (`noatime`).
    Never,
    /// All reads (`strictatime`). They bypass the page cache, so that the server sees each.
    Always,
}

/// What a mount trusts in a volume's files; nothing by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trusts {
    /// The setuid and setgid bits and capabilities of programs (`suid`).
    pub suid: bool,
    /// Device files (`dev`).
    pub dev: bool,
}
