//! The numbers by which kernel and file system name things to each other.

/// Names an inode towards the kernel; [`NodeId::ROOT`] is the root of the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeId(pub u64);

impl NodeId {
    /// Where every path begins.
    pub const ROOT: Self = Self(1);
}

/// Names an open file or directory, as the file system chose when it opened it (`fh`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId(pub u64);

/// The holder of a lock, as the kernel tells holders apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockOwner(pub u64);
