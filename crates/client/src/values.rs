//! Arguments and results of the methods of [`crate::Files`].

use pelago_wire::{
    Attr, DataPath, DirEntry, Entry, Error, FileKind, Handle, Name, NewMode, OpenId,
};

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// Handle of the directory.
    pub dir: Handle,
    /// A name in that directory.
    pub name: Name,
}

impl At {
    /// Returns the name `name` in `dir`.
    #[must_use]
    pub const fn new(dir: Handle, name: Name) -> Self {
        Self { dir, name }
    }
}

/// A file to make with [`crate::Files::make_node`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewNode {
    /// Any kind except directory and symbolic link.
    pub kind: FileKind,
    /// Permissions of the file, with the umask to apply.
    pub mode: NewMode,
    /// Device number; zero unless it is a device.
    pub rdev: u32,
}

/// An extended attribute to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xattr {
    /// Name with its prefix.
    pub name: Vec<u8>,
    /// New value.
    pub value: Vec<u8>,
    /// True if this access control list clears the setgid bit: its caller is not in the file's
    /// group.
    pub kill_setgid: bool,
}

/// A range of bytes in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// A position in an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePos {
    /// Id of the open file.
    pub open: OpenId,
    /// Bytes from the start of the file.
    pub offset: u64,
}

/// A file that was created and opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The new file.
    pub entry: Entry,
    /// Id of the open.
    pub open: OpenId,
    /// The path to its bytes.
    pub path: DataPath,
}

/// A file that was created and opened, with a credential for its maker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedWithCredential {
    /// The file, which is open.
    pub created: Created,
    /// The texts of a chain by which the maker has all rights to it, from that of a root on; the
    /// error if none was issued.
    pub credential: Result<Vec<Vec<u8>>, Error>,
}

/// A file that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Id of the open.
    pub open: OpenId,
    /// Attributes after the open.
    pub attr: Attr,
    /// The path to its bytes.
    pub path: DataPath,
}

/// A name that was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// Attributes of the inode; `links` counts the names it still has (zero for a directory).
    pub attr: Attr,
}

/// A name that was renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renamed {
    /// The renamed file, with its new hint.
    pub moved: Handle,
    /// The file it replaced, as in [`Removed`]; after an exchange the other file, with its new
    /// hint.
    pub replaced: Option<Entry>,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Bytes written; fewer than requested only if the disk is full.
    pub bytes: u64,
    /// Size of the file after the write.
    pub size: u64,
}

/// A page of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Entries in the order of their cookies.
    pub entries: Vec<DirEntry>,
    /// True if these entries are the last.
    pub end: bool,
}
