//! The operations of a POSIX file system, as requests.

use crate::attr::{FileKind, NewMode, SetAttr};
use crate::id::{Cookie, Handle, InodeId, OpenId};
use crate::name::Name;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenFlags {
    /// The open may read bytes.
    pub read: bool,
    /// The open may write bytes.
    pub write: bool,
    /// Each write goes to the end of the file (`O_APPEND`).
    pub append: bool,
    /// The file is truncated to 0 bytes first (`O_TRUNC`).
    pub truncate: bool,
    /// Each write is safe before its reply (`O_SYNC`, `O_DSYNC`).
    pub sync: bool,
    /// With `truncate`: clear the setuid and setgid bits, as for an unprivileged user
    /// (`FUSE_OPEN_KILL_SUIDGID`).
    pub kill_privileges: bool,
    /// Reads do not change the time of the last read (`O_NOATIME`, or the mount option `noatime`).
    pub no_atime: bool,
    /// Each read changes the time of the last read, unless `no_atime` is set.
    pub strict_atime: bool,
    /// The caller is on the server's machine and can use a descriptor
    /// ([`crate::DataPath::Passthrough`]).
    pub passthrough: bool,
}

impl OpenFlags {
    /// `O_RDONLY` without other flags.
    pub const READ: Self = Self { read: true, ..Self::NONE };
    /// `O_WRONLY` without other flags.
    pub const WRITE: Self = Self { write: true, ..Self::NONE };
    /// `O_RDWR` without other flags.
    pub const READ_WRITE: Self = Self { write: true, ..Self::READ };

    const NONE: Self = Self {
        read: false,
        write: false,
        append: false,
        truncate: false,
        sync: false,
        kill_privileges: false,
        no_atime: false,
        strict_atime: false,
        passthrough: false,
    };
}

/// What a rename does if the target exists, and what it leaves in the old place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RenameFlags {
    /// Replaces the target.
    #[default]
    Replace,
    /// Fails with [`crate::Code::Exists`] (`RENAME_NOREPLACE`).
    NoReplace,
    /// Exchanges source and target; both must exist (`RENAME_EXCHANGE`).
    Exchange,
    /// Moves the name and leaves a whiteout in its old place: a character device 0/0, which tells
    /// an overlay that the name is removed (`RENAME_WHITEOUT`).
    Whiteout {
        /// Replace an existing target; if false, fail with [`crate::Code::Exists`].
        replace: bool,
    },
}

impl RenameFlags {
    /// Returns whether an existing target is replaced.
    #[must_use]
    pub const fn replaces(self) -> bool {
        matches!(self, Self::Replace | Self::Whiteout { replace: true })
    }

    /// Returns whether a whiteout stays in the old place.
    #[must_use]
    pub const fn leaves_a_whiteout(self) -> bool {
        matches!(self, Self::Whiteout { .. })
    }
}

/// What a request to set an extended attribute requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum XattrFlags {
    /// Nothing: creates or replaces the attribute.
    #[default]
    Any,
    /// The attribute does not exist (`XATTR_CREATE`).
    Create,
    /// The attribute exists (`XATTR_REPLACE`).
    Replace,
}

/// What `fallocate` does with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocateMode {
    /// Reserves space. The file grows to the end of the range, unless `keep_size` is set.
    Reserve {
        /// Do not change the size.
        keep_size: bool,
    },
    /// Makes the range a hole. The size stays.
    PunchHole,
    /// Fills the range with zeros. The file grows to its end, unless `keep_size` is set.
    Zero {
        /// Do not change the size.
        keep_size: bool,
    },
}

/// What a seek looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// The next stored byte (`SEEK_DATA`).
    Data,
    /// The next hole; the end of the file counts as one (`SEEK_HOLE`).
    Hole,
}

/// Where a seek starts and what it looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeekFrom {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Data or a hole.
    pub whence: Whence,
}

/// A request to a server. [`crate::Context`] names the caller; [`crate::Bulk`] has the bytes to
/// write.
///
/// Each variant names its [`crate::Reply`], then its errors. Every request may also fail with
/// `Stale`, `NotDirectory` (a handle that must be a directory is none), `ReadOnly`, `NoSpace`,
/// `Io`, `Corrupt`, `Busy` or `Unavailable`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Looks a name up. Reply: `Entry`; `NotFound`.
    Lookup {
        /// The directory of the name.
        dir: Handle,
        /// The name in `dir`.
        name: Name,
    },
    /// Finds the parent directory. Reply: `Entry`; for the root the root itself.
    Parent {
        /// The directory whose parent is wanted.
        dir: Handle,
    },
    /// Finds a file by its inode number. Scans all names if no row tells where the file is. Reply:
    /// `Entry`.
    Find {
        /// The inode number.
        ino: InodeId,
    },
    /// Reads the attributes of a file. Reply: `Attr`.
    GetAttr {
        /// The file.
        node: Handle,
    },
    /// Changes attributes of a file. Reply: `Attr`.
    SetAttr {
        /// The file.
        node: Handle,
        /// The open file, if the program used a descriptor.
        open: Option<OpenId>,
        /// The attributes to change.
        set: SetAttr,
    },
    /// Creates a regular file and opens it. Reply: `Created`; `Exists` if the name exists: the
    /// client decides whether to open that file.
    Create {
        /// The directory that gets the name.
        dir: Handle,
        /// The new name.
        name: Name,
        /// The mode before the umask.
        mode: NewMode,
        /// How to open the new file.
        flags: OpenFlags,
    },
    /// Creates an unnamed regular file and opens it (`O_TMPFILE`). The file is removed at its last
    /// close, or when the server ends, unless [`Request::Link`] gives it a name first. Reply:
    /// `Created` with 0 links.
    CreateUnnamed {
        /// The directory that decides group and default access control list. It does not change.
        dir: Handle,
        /// The mode before the umask.
        mode: NewMode,
        /// How to open the new file.
        flags: OpenFlags,
    },
    /// Creates a directory. Reply: `Entry`; `Exists`.
    MakeDir {
        /// The directory that gets the name.
        dir: Handle,
        /// The new name.
        name: Name,
        /// The mode before the umask.
        mode: NewMode,
    },
    /// Creates a file of any type except directory and symbolic link, and does not open it. Reply:
    /// `Entry`; `Exists`, `Invalid`.
    MakeNode {
        /// The directory that gets the name.
        dir: Handle,
        /// The new name.
        name: Name,
        /// The type of the new file.
        kind: FileKind,
        /// The mode before the umask.
        mode: NewMode,
        /// Device number in the kernel's 32-bit encoding; 0 for other files.
        rdev: u32,
    },
    /// Creates a symbolic link. Reply: `Entry`; `Exists`, `NameTooLong`.
    Symlink {
        /// The directory that gets the name.
        dir: Handle,
        /// The new name.
        name: Name,
        /// The target, 1 to 4095 bytes without NUL.
        target: Vec<u8>,
    },
    /// Reads the target of a symbolic link. Reply: `Bytes`; `Invalid` for other files.
    ReadLink {
        /// The symbolic link.
        node: Handle,
    },
    /// Gives a file one more name, or a first name after [`Request::CreateUnnamed`]. Reply:
    /// `Entry`; `Exists`, `NotPermitted` for a directory, `TooManyLinks`, `NotFound` for a file
    /// whose last name was removed.
    Link {
        /// The file.
        node: Handle,
        /// The directory that gets the name.
        dir: Handle,
        /// The new name.
        name: Name,
    },
    /// Removes a name of a file that is not a directory. Reply: `Removed`; `NotFound`,
    /// `IsDirectory`.
    Unlink {
        /// The directory of the name.
        dir: Handle,
        /// The name to remove.
        name: Name,
    },
    /// Removes an empty directory. Reply: `Removed`; `NotFound`, `NotEmpty`.
    RemoveDir {
        /// The parent directory.
        dir: Handle,
        /// The name to remove.
        name: Name,
    },
    /// Renames a file. Reply: `Renamed`; `NotFound`, `Exists`, `NotEmpty`, `IsDirectory`,
    /// `WouldLoop`.
    Rename {
        /// The directory of the old name.
        from_dir: Handle,
        /// The old name.
        from: Name,
        /// The directory of the new name.
        to_dir: Handle,
        /// The new name.
        to: Name,
        /// What to do if the target exists.
        flags: RenameFlags,
    },
    /// Opens a regular file. Reply: `Opened`; `IsDirectory`, `TooManyOpen`.
    Open {
        /// The file.
        node: Handle,
        /// How to open the file.
        flags: OpenFlags,
    },
    /// Commits the changes of an open file, because a descriptor was closed. May come several times
    /// for one open file. Reply: `Done`.
    Flush {
        /// The open file.
        open: OpenId,
    },
    /// Ends an open, because its last descriptor was closed. Reply: `Done`.
    Release {
        /// The open file.
        open: OpenId,
    },
    /// Makes the bytes of a file safe, and its attributes. Reply: `Done`.
    Fsync {
        /// The open file.
        open: OpenId,
        /// Times need not become safe (`fdatasync`).
        data_only: bool,
    },
    /// Makes the names of a directory safe. Reply: `Done`.
    FsyncDir {
        /// The directory to sync.
        dir: Handle,
        /// [`crate::Service::losses`] at the time of the open, or of the last report to this
        /// caller. Without it the caller gets only losses that were reported to no other caller.
        since: Option<u64>,
    },
    /// Reads bytes. Reply: `Data`, shorter only at the end of the file.
    Read {
        /// The open file.
        open: OpenId,
        /// Bytes from the start.
        offset: u64,
        /// Bytes to read, at most [`crate::limits::IO_BYTES`].
        size: u32,
    },
    /// Writes the bytes of [`crate::Bulk`]. Reply: `Written`.
    Write {
        /// The open file.
        open: OpenId,
        /// Bytes from the start of the file; ignored if the open has `append`.
        offset: u64,
        /// Clear the setuid and setgid bits, as for an unprivileged user
        /// (`FUSE_WRITE_KILL_SUIDGID`).
        kill_privileges: bool,
    },
    /// Lists a directory. Reply: `Listed`.
    List {
        /// The directory to list.
        dir: Handle,
        /// The position after which the listing continues.
        after: Cookie,
        /// The name before a ranked position, if the caller knows it. The listing then continues
        /// exactly after that name, even if names with its hash were added or removed.
        behind: Option<Name>,
        /// Entries to return, at most [`crate::limits::LIST_ENTRIES`].
        entries: u32,
        /// Return the handle and the attributes of each entry too.
        attributes: bool,
    },
    /// Reads an extended attribute. Reply: `Bytes`; `NoXattr`.
    GetXattr {
        /// The file.
        node: Handle,
        /// The attribute's name, prefix included.
        name: Vec<u8>,
    },
    /// Lists extended attributes. Reply: `Bytes`, each name followed by a NUL.
    ListXattr {
        /// The file.
        node: Handle,
    },
    /// Sets an extended attribute. Reply: `Done`; `Exists`, `NoXattr`, `TooBig`, `NotSupported`;
    /// for access control lists also `Invalid`, and `AccessDenied` for a default list of a file
    /// that is not a directory.
    SetXattr {
        /// The file.
        node: Handle,
        /// The attribute's name, prefix included.
        name: Vec<u8>,
        /// The value, at most [`crate::limits::XATTR_VALUE_BYTES`].
        value: Vec<u8>,
        /// Whether the attribute must exist, or must not.
        flags: XattrFlags,
        /// Clear the setgid bit if the attribute is an access control list, because the caller is
        /// not in the file's group (`FUSE_SETXATTR_ACL_KILL_SGID`).
        kill_setgid: bool,
    },
    /// Removes an extended attribute. Reply: `Done`; `NoXattr`.
    RemoveXattr {
        /// The file.
        node: Handle,
        /// The attribute's name, prefix included.
        name: Vec<u8>,
    },
    /// Reads space and inodes of the volume. Reply: `Volume`.
    StatFs,
    /// Reserves or frees a range of an open file. Reply: `Done`; `NotSupported`.
    Allocate {
        /// The open file.
        open: OpenId,
        /// Bytes from the start.
        offset: u64,
        /// Bytes of the range.
        length: u64,
        /// What to do with the range.
        mode: AllocateMode,
    },
    /// Finds data or a hole. Reply: `Offset`; `NoData`, `NotSupported`.
    Seek {
        /// The open file.
        open: OpenId,
        /// Start and goal of the seek.
        from: SeekFrom,
    },
    /// Copies bytes between open files, within the server. Reply: `Written`; `NotSupported`.
    CopyRange {
        /// The open file to read from.
        from: OpenId,
        /// Bytes from the start of the source.
        from_offset: u64,
        /// The open file to write to.
        to: OpenId,
        /// Bytes from the start of the target.
        to_offset: u64,
        /// Bytes to copy.
        length: u64,
    },
}
