//! The operations of a whole POSIX file system.

use crate::attr::{FileKind, NewMode, SetAttr};
use crate::id::{Cookie, Handle, InodeId, OpenId};
use crate::name::Name;

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenFlags {
    /// Bytes may be read.
    pub read: bool,
    /// Bytes may be written.
    pub write: bool,
    /// Each write goes to the end of the file.
    pub append: bool,
    /// The file is emptied first.
    pub truncate: bool,
    /// Each write is safe before it is answered (`O_SYNC`, `O_DSYNC`).
    pub sync: bool,
    /// Clear setuid and setgid bits when `truncate` empties the file, as for somebody without
    /// privilege (`FUSE_OPEN_KILL_SUIDGID`).
    pub kill_privileges: bool,
    /// Reads through it leave the time of the last read alone (`O_NOATIME`, or a mount that wants
    /// that).
    pub no_atime: bool,
    /// Each read changes the time of the last read, unless `no_atime`.
    pub strict_atime: bool,
    /// Who asks is beside the bytes and can use an open descriptor
    /// ([`crate::DataPath::Passthrough`]).
    pub passthrough: bool,
}

impl OpenFlags {
    /// `O_RDONLY`, and nothing else.
    pub const READ: Self = Self { read: true, ..Self::NONE };
    /// `O_WRONLY`, and nothing else.
    pub const WRITE: Self = Self { write: true, ..Self::NONE };
    /// `O_RDWR`, and nothing else.
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

/// How a rename treats a target that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RenameFlags {
    /// Replaces it.
    #[default]
    Replace,
    /// Answers [`crate::Code::Exists`].
    NoReplace,
    /// The two change places; both must exist.
    Exchange,
    /// Moves the name and leaves a whiteout in its old place: a character device 0/0, by which an
    /// overlay knows that the name is removed (`RENAME_WHITEOUT`).
    Whiteout {
        /// Replaces a target that exists; else answers [`crate::Code::Exists`].
        replace: bool,
    },
}

impl RenameFlags {
    /// Whether a target that exists is replaced.
    #[must_use]
    pub const fn replaces(self) -> bool {
        matches!(self, Self::Replace | Self::Whiteout { replace: true })
    }

    /// Whether a whiteout stays in the old place.
    #[must_use]
    pub const fn leaves_a_whiteout(self) -> bool {
        matches!(self, Self::Whiteout { .. })
    }
}

/// Whether an extended attribute must or must not exist before it is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum XattrFlags {
    /// Either.
    #[default]
    Any,
    /// It must not (`XATTR_CREATE`).
    Create,
    /// It must (`XATTR_REPLACE`).
    Replace,
}

/// What `fallocate` does with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocateMode {
    /// Reserve space; the file grows to the range's end unless `keep_size`.
    Reserve {
        /// Leave the size.
        keep_size: bool,
    },
    /// Make it a hole; the size stays.
    PunchHole,
    /// Make it zeros.
    Zero {
        /// Leave the size.
        keep_size: bool,
    },
}

/// What a seek looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// The next byte that is stored.
    Data,
    /// The next hole; the end of the file counts as one.
    Hole,
}

/// Where a seek starts and what it looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeekFrom {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// What to look for.
    pub whence: Whence,
}

/// A request to a server. Who asks and when stands in [`crate::Context`]; bytes to write travel in
/// [`crate::Bulk`].
///
/// Each variant names the [`crate::Reply`] it gets, and says nothing of errors that every request
/// may have: `Stale`, `NotDirectory` for a directory that is none, `ReadOnly`, `NoSpace`, `Io`,
/// `Corrupt`, `Busy`, `Unavailable`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// What a name leads to. Reply: `Entry`; `NotFound`.
    Lookup {
        /// The directory.
        dir: Handle,
        /// The name in it.
        name: Name,
    },
    /// The directory above. Reply: `Entry`; the root's is the root.
    Parent {
        /// The directory.
        dir: Handle,
    },
    /// The file with this number, wherever it is. Where nothing tells its place all names are
    /// looked through. Reply: `Entry`.
    Find {
        /// Its number.
        ino: InodeId,
    },
    /// Attributes. Reply: `Attr`.
    GetAttr {
        /// The file.
        node: Handle,
    },
    /// Changes attributes. Reply: `Attr`.
    SetAttr {
        /// The file.
        node: Handle,
        /// Through which open file, where a program did it through a descriptor.
        open: Option<OpenId>,
        /// What to change.
        set: SetAttr,
    },
    /// Makes an ordinary file and opens it. Reply: `Created`; `Exists` in any case where the name
    /// is taken: the client decides whether to open what is there.
    Create {
        /// The directory.
        dir: Handle,
        /// The new name.
        name: Name,
        /// Its mode.
        mode: NewMode,
        /// What to open it for.
        flags: OpenFlags,
    },
    /// Makes an ordinary file that has no name, and opens it (`O_TMPFILE`). It is gone with its
    /// last open, or with the server, unless [`Request::Link`] gives it a name first. Reply:
    /// `Created`, whose attributes show no links.
    CreateUnnamed {
        /// The directory whose rules for new files it follows. Nothing of it changes.
        dir: Handle,
        /// Its mode.
        mode: NewMode,
        /// What to open it for.
        flags: OpenFlags,
    },
    /// Makes a directory. Reply: `Entry`; `Exists`.
    MakeDir {
        /// The directory.
        dir: Handle,
        /// The new name.
        name: Name,
        /// Its mode.
        mode: NewMode,
    },
    /// Makes a file of any kind but directory and symbolic link, without opening it. Reply:
    /// `Entry`; `Exists`, `Invalid`.
    MakeNode {
        /// The directory.
        dir: Handle,
        /// The new name.
        name: Name,
        /// What it shall be.
        kind: FileKind,
        /// Its mode.
        mode: NewMode,
        /// Device number, for devices.
        rdev: u32,
    },
    /// Makes a symbolic link. Reply: `Entry`; `Exists`, `NameTooLong`.
    Symlink {
        /// The directory.
        dir: Handle,
        /// The new name.
        name: Name,
        /// What it says, 1 to 4095 bytes without NUL.
        target: Vec<u8>,
    },
    /// Reads a symbolic link. Reply: `Bytes`; `Invalid`.
    ReadLink {
        /// The link.
        node: Handle,
    },
    /// Gives a file one more name, or its first ([`Request::CreateUnnamed`]). Reply: `Entry`;
    /// `Exists`, `NotPermitted` for a directory, `TooManyLinks`, `NotFound` for a file that has
    /// lost its last name.
    Link {
        /// The file.
        node: Handle,
        /// The directory.
        dir: Handle,
        /// The new name.
        name: Name,
    },
    /// Removes a name that is no directory's. Reply: `Removed`; `NotFound`, `IsDirectory`.
    Unlink {
        /// The directory.
        dir: Handle,
        /// The name.
        name: Name,
    },
    /// Removes an empty directory. Reply: `Removed`; `NotFound`, `NotEmpty`.
    RemoveDir {
        /// The directory above.
        dir: Handle,
        /// The name.
        name: Name,
    },
    /// Moves a name. Reply: `Renamed`; `NotFound`, `Exists`, `NotEmpty`, `IsDirectory`,
    /// `WouldLoop`.
    Rename {
        /// The directory it is in.
        from_dir: Handle,
        /// Its name there.
        from: Name,
        /// The directory it goes to.
        to_dir: Handle,
        /// Its name there.
        to: Name,
        /// What happens to a target that exists.
        flags: RenameFlags,
    },
    /// Opens an ordinary file. Reply: `Opened`; `IsDirectory`, `TooManyOpen`.
    Open {
        /// The file.
        node: Handle,
        /// What for.
        flags: OpenFlags,
    },
    /// A descriptor was closed: what was written through it becomes visible and done. May come
    /// several times for one open file. Reply: `Done`.
    Flush {
        /// The open file.
        open: OpenId,
    },
    /// The last descriptor was closed. Reply: `Done`.
    Release {
        /// The open file.
        open: OpenId,
    },
    /// Makes what was written safe. Reply: `Done`.
    Fsync {
        /// The open file.
        open: OpenId,
        /// Leave times alone that are not needed to find the bytes.
        data_only: bool,
    },
    /// Makes the changes of a directory safe. Reply: `Done`.
    FsyncDir {
        /// The directory.
        dir: Handle,
        /// [`crate::Service::losses`] when the caller opened it, or was told last; without it the
        /// caller is told only of what no other was told.
        since: Option<u64>,
    },
    /// Reads bytes. Reply: `Data`, shorter only at the end of the file.
    Read {
        /// The open file.
        open: OpenId,
        /// Bytes from the start.
        offset: u64,
        /// Bytes wanted, to [`crate::limits::IO_BYTES`].
        size: u32,
    },
    /// Writes the bulk's bytes. Reply: `Written`.
    Write {
        /// The open file.
        open: OpenId,
        /// Bytes from the start; not looked at where the file was opened to append.
        offset: u64,
        /// Clear setuid and setgid bits, as for somebody without privilege
        /// (`FUSE_WRITE_KILL_SUIDGID`).
        kill_privileges: bool,
    },
    /// Lists a directory. Reply: `Listed`.
    List {
        /// The directory.
        dir: Handle,
        /// Behind which place to go on.
        after: Cookie,
        /// The name that a ranked place was behind, if that is known: then the listing goes on
        /// exactly behind that name, even if it is gone, or others of its hash came or went.
        behind: Option<Name>,
        /// Entries wanted, to [`crate::limits::LIST_ENTRIES`].
        entries: u32,
        /// Whether attributes are wanted too.
        attributes: bool,
    },
    /// Reads an extended attribute. Reply: `Bytes`; `NoXattr`.
    GetXattr {
        /// The file.
        node: Handle,
        /// Its name, prefix included.
        name: Vec<u8>,
    },
    /// Lists extended attributes. Reply: `Bytes`, each name with a NUL behind it.
    ListXattr {
        /// The file.
        node: Handle,
    },
    /// Sets an extended attribute. Reply: `Done`; `Exists`, `NoXattr`, `TooBig`, `NotSupported`;
    /// of access control lists `Invalid`, and `AccessDenied` for a default one of what is no
    /// directory.
    SetXattr {
        /// The file.
        node: Handle,
        /// Its name, prefix included.
        name: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
        /// Whether it must exist or must not.
        flags: XattrFlags,
        /// Clear the setgid bit if this is an access control list: who sets it is not in the
        /// file's group (`FUSE_SETXATTR_ACL_KILL_SGID`).
        kill_setgid: bool,
    },
    /// Removes an extended attribute. Reply: `Done`; `NoXattr`.
    RemoveXattr {
        /// The file.
        node: Handle,
        /// Its name, prefix included.
        name: Vec<u8>,
    },
    /// Space and counts of the volume. Reply: `Volume`.
    StatFs,
    /// Reserves or frees a range of an open file. Reply: `Done`; `NotSupported`.
    Allocate {
        /// The open file.
        open: OpenId,
        /// Bytes from the start.
        offset: u64,
        /// Bytes of the range.
        length: u64,
        /// What to do with it.
        mode: AllocateMode,
    },
    /// Finds data or a hole. Reply: `Offset`; `NoData`, `NotSupported`.
    Seek {
        /// The open file.
        open: OpenId,
        /// Where to start and what to look for.
        from: SeekFrom,
    },
    /// Copies bytes within the server. Reply: `Written`; `NotSupported`.
    CopyRange {
        /// The open file to read.
        from: OpenId,
        /// Bytes from its start.
        from_offset: u64,
        /// The open file to write.
        to: OpenId,
        /// Bytes from its start.
        to_offset: u64,
        /// Bytes to copy.
        length: u64,
    },
}
