//! Decoded requests.
//!
//! Borrowed parts point into the bytes of the request. An opcode that the kernel never sends after
//! the negotiation of [`crate::init`] is [`Operation::Other`], and gets `ENOSYS`.

use std::ffi::OsStr;

use rustix::fs::OFlags;

use crate::attr::Timestamp;
use crate::ids::{FileId, LockOwner, NodeId};
use crate::init::Init;

/// A request without its header. Each variant is named after its opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the opcode of its name, explained at its fields")]
pub enum Operation<'a> {
    Init(Init),
    Destroy,
    Lookup {
        name: &'a OsStr,
    },
    /// Has no reply.
    Forget {
        lookups: u64,
    },
    /// Has no reply.
    BatchForget(Forgets<'a>),
    GetAttr {
        file: Option<FileId>,
    },
    SetAttr(SetAttr),
    Readlink,
    Symlink(Symlink<'a>),
    Mknod(Mknod<'a>),
    Mkdir(Mkdir<'a>),
    Unlink {
        name: &'a OsStr,
    },
    Rmdir {
        name: &'a OsStr,
    },
    Rename(Rename<'a>),
    Link(Link<'a>),
    Open(Open),
    Create(Create<'a>),
    Tmpfile(Create<'a>),
    Read(Read),
    Write(Write<'a>),
    Flush(Flush),
    Release(Release),
    Fsync(Fsync),
    Opendir {
        flags: i32,
    },
    Readdir(Readdir),
    ReaddirPlus(Readdir),
    Releasedir {
        file: FileId,
    },
    Fsyncdir(Fsync),
    Statfs,
    Setxattr(Setxattr<'a>),
    Getxattr {
        name: &'a OsStr,
        size: u32,
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a OsStr,
    },
    Access {
        mask: u32,
    },
    Getlk(Getlk),
    /// FUSE_SETLK, and FUSE_SETLKW, which waits.
    Setlk(Setlk),
    /// Has no reply but `EAGAIN`; interrupts another request if that still waits.
    Interrupt {
        unique: u64,
    },
    Fallocate(Fallocate),
    Lseek(Lseek),
    CopyFileRange(CopyFileRange),
    /// Attributes and the birth time; the reply has all fields, whatever was requested.
    Statx,
    /// An opcode that this crate does not decode. FUSE_SYNCFS is one; Linux sends it to virtiofs
    /// only, so `sync` and `syncfs` never reach a file system over `/dev/fuse`.
    Other(u32),
}

/// The way in which the caller of a request waits for the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The caller closes a descriptor, perhaps because it exits.
    Close,
    /// The caller waits for any other request.
    Other,
    /// No process waits, and the bytes or the open have no other owner than the request: it must
    /// not be given up.
    WriteBack,
}

impl Operation<'_> {
    /// Returns the name of the opcode in lower case, without `FUSE_`.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Init(_) => "init",
            Self::Destroy => "destroy",
            Self::Lookup { .. } => "lookup",
            Self::Forget { .. } => "forget",
            Self::BatchForget(_) => "batch_forget",
            Self::GetAttr { .. } => "getattr",
            Self::SetAttr(_) => "setattr",
            Self::Readlink => "readlink",
            Self::Symlink(_) => "symlink",
            Self::Mknod(_) => "mknod",
            Self::Mkdir(_) => "mkdir",
            Self::Unlink { .. } => "unlink",
            Self::Rmdir { .. } => "rmdir",
            Self::Rename(_) => "rename",
            Self::Link(_) => "link",
            Self::Open(_) => "open",
            Self::Create(_) => "create",
            Self::Tmpfile(_) => "tmpfile",
            Self::Read(_) => "read",
            Self::Write(_) => "write",
            Self::Flush(_) => "flush",
            Self::Release(_) => "release",
            Self::Fsync(_) => "fsync",
            Self::Opendir { .. } => "opendir",
            Self::Readdir(_) => "readdir",
            Self::ReaddirPlus(_) => "readdirplus",
            Self::Releasedir { .. } => "releasedir",
            Self::Fsyncdir(_) => "fsyncdir",
            Self::Statfs => "statfs",
            Self::Setxattr(_) => "setxattr",
            Self::Getxattr { .. } => "getxattr",
            Self::Listxattr { .. } => "listxattr",
            Self::Removexattr { .. } => "removexattr",
            Self::Access { .. } => "access",
            Self::Getlk(_) => "getlk",
            Self::Setlk(_) => "setlk",
            Self::Interrupt { .. } => "interrupt",
            Self::Fallocate(_) => "fallocate",
            Self::Lseek(_) => "lseek",
            Self::CopyFileRange(_) => "copy_file_range",
            Self::Statx => "statx",
            Self::Other(_) => "other",
        }
    }

    /// Returns how the caller waits.
    pub(crate) const fn wait(&self) -> Wait {
        match self {
            Self::Flush(_) => Wait::Close,
            Self::Write(Write { from_cache: true, .. })
            | Self::Release(_)
            | Self::Releasedir { .. }
            | Self::Forget { .. }
            | Self::BatchForget(_)
            | Self::Interrupt { .. }
            | Self::Init(_)
            | Self::Destroy => Wait::WriteBack,
            Self::Write(_)
            | Self::Lookup { .. }
            | Self::GetAttr { .. }
            | Self::SetAttr(_)
            | Self::Readlink
            | Self::Symlink(_)
            | Self::Mknod(_)
            | Self::Mkdir(_)
            | Self::Unlink { .. }
            | Self::Rmdir { .. }
            | Self::Rename(_)
            | Self::Link(_)
            | Self::Open(_)
            | Self::Create(_)
            | Self::Tmpfile(_)
            | Self::Read(_)
            | Self::Fsync(_)
            | Self::Opendir { .. }
            | Self::Readdir(_)
            | Self::ReaddirPlus(_)
            | Self::Fsyncdir(_)
            | Self::Statfs
            | Self::Setxattr(_)
            | Self::Getxattr { .. }
            | Self::Listxattr { .. }
            | Self::Removexattr { .. }
            | Self::Access { .. }
            | Self::Getlk(_)
            | Self::Setlk(_)
            | Self::Fallocate(_)
            | Self::Lseek(_)
            | Self::CopyFileRange(_)
            | Self::Statx
            | Self::Other(_) => Wait::Other,
        }
    }
}

/// FUSE_BATCH_FORGET: an iterator over nodes and counts of lookups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgets<'a>(pub(crate) &'a [u8]);

/// FUSE_SETATTR. Attributes that are `None` stay unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission, setuid, setgid and sticky bits; other bits are ignored.
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size in bytes.
    pub size: Option<u64>,
    /// New time of the last read.
    pub atime: Option<SetTime>,
    /// New time of the last write.
    pub mtime: Option<SetTime>,
    /// New time of the last change; only in write-back mode, in which the kernel keeps it.
    pub ctime: Option<Timestamp>,
    /// The open file through which the change was made, if any.
    pub file: Option<FileId>,
    /// True if the change clears setuid and setgid bits (`FATTR_KILL_SUIDGID`: a truncation by a
    /// process without the right to keep them).
    pub kill_privileges: bool,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The present, by the clock of the file system.
    Now,
    /// A given time.
    To(Timestamp),
}

/// FUSE_SYMLINK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symlink<'a> {
    /// The name to create.
    pub name: &'a OsStr,
    /// The target of the link.
    pub target: &'a OsStr,
}

/// FUSE_MKNOD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mknod<'a> {
    /// The name to create.
    pub name: &'a OsStr,
    /// File type and permissions, as in `st_mode`.
    pub mode: u32,
    /// File mode creation mask of the caller.
    pub umask: u32,
    /// Device number; zero unless a device is made.
    pub rdev: u32,
}

/// FUSE_MKDIR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mkdir<'a> {
    /// The name to create.
    pub name: &'a OsStr,
    /// Permission bits.
    pub mode: u32,
    /// File mode creation mask of the caller.
    pub umask: u32,
}

/// FUSE_RENAME and FUSE_RENAME2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rename<'a> {
    /// The old name, in the directory of the header.
    pub name: &'a OsStr,
    /// The new directory.
    pub to_dir: NodeId,
    /// The new name.
    pub to_name: &'a OsStr,
    /// Flags of `renameat2`.
    pub flags: u32,
}

/// FUSE_LINK, whose header has the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link<'a> {
    /// The file to link.
    pub node: NodeId,
    /// The new name.
    pub name: &'a OsStr,
}

/// FUSE_OPEN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// Flags of `open`, without `O_CREAT`, `O_EXCL` and `O_NOCTTY`.
    pub flags: i32,
    /// True if the truncation that `flags` request clears setuid and setgid bits
    /// (`FUSE_OPEN_KILL_SUIDGID`).
    pub kill_privileges: bool,
}

/// FUSE_CREATE, and FUSE_TMPFILE, whose name has no meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Create<'a> {
    /// The name to create.
    pub name: &'a OsStr,
    /// Flags of `open`.
    pub flags: i32,
    /// Permission bits.
    pub mode: u32,
    /// File mode creation mask of the caller.
    pub umask: u32,
    /// As in [`Open::kill_privileges`].
    pub kill_privileges: bool,
}

/// FUSE_READ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// The open file.
    pub file: FileId,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Limit of the bytes to return.
    pub size: u32,
}

/// FUSE_WRITE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write<'a> {
    /// The open file.
    pub file: FileId,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// The bytes to write.
    pub data: &'a [u8],
    /// True if the write clears setuid and setgid bits (`FUSE_WRITE_KILL_SUIDGID`).
    pub kill_privileges: bool,
    /// True if pages are written back (`FUSE_WRITE_CACHE`). Then `file` is any open of the node,
    /// and `flags` is zero.
    pub from_cache: bool,
    /// The owner of the writer's locks, if the kernel names it (`FUSE_WRITE_LOCKOWNER`).
    pub owner: Option<LockOwner>,
    /// Flags of the open file at this moment, with `O_SYNC` and `O_DSYNC` if the call asks for
    /// them. `fcntl(F_SETFL)` changes some of them after the open.
    pub flags: i32,
}

impl Write<'_> {
    /// Returns whether the open file has `O_APPEND` at this moment.
    ///
    /// `offset` is then the end of the file as the kernel knows it, or if the call was made with
    /// `RWF_NOAPPEND`, which the request does not show, the offset of the call. Without `O_APPEND`
    /// it is that of the call, or with `RWF_APPEND` the end. A large write is split, in order;
    /// with `O_DIRECT` and the capability `ASYNC_DIO` its parts arrive in any order.
    #[must_use]
    pub fn appends(&self) -> bool {
        OFlags::from_bits_retain(self.flags.cast_unsigned()).contains(OFlags::APPEND)
    }
}

/// FUSE_FLUSH: a descriptor was closed. It comes at each `close`, and is the only request that
/// reports the end of `fcntl` locks by a close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flush {
    /// The open file.
    pub file: FileId,
    /// The process that closed it, as the owner of locks: its `fcntl` locks on the file end,
    /// through whichever open they were set. (It ends no lock of an open file description, which is
    /// another owner.)
    pub owner: LockOwner,
}

/// FUSE_RELEASE: the last descriptor was closed. Locks of the open file description end too, though
/// the request does not name their owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// The open file.
    pub file: FileId,
    /// Current flags of the open file.
    pub flags: i32,
    /// True if the release must do what FUSE_FLUSH does (`FUSE_RELEASE_FLUSH`).
    pub flush: bool,
    /// The owner of the `flock` lock that ends; `None` if the open never had one
    /// (`FUSE_RELEASE_FLOCK_UNLOCK`).
    pub flock_owner: Option<LockOwner>,
}

/// FUSE_GETLK: which lock would prevent this one? The reply is one that does, or this one with
/// [`FileLockKind::Unlock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Getlk {
    /// The open file.
    pub file: FileId,
    /// The owner of the lock. Its own locks prevent nothing.
    pub owner: LockOwner,
    /// The lock.
    pub lock: FileLock,
}

/// FUSE_SETLK and FUSE_SETLKW: sets or ends a lock. `EAGAIN` if another owner's lock prevents it.
///
/// A process owns its `fcntl` locks, whichever open it uses; an open file description owns its
/// `flock` lock, and the locks of `F_OFD_SETLK`. The kernel sends no unlock for what a close ends:
/// see [`Flush`] and [`Release`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setlk {
    /// The open file.
    pub file: FileId,
    /// The owner of the lock.
    pub owner: LockOwner,
    /// The lock; `flock` covers all bytes.
    pub lock: FileLock,
    /// True if it is a `flock` lock, which is independent of all others (`FUSE_LK_FLOCK`).
    pub is_flock: bool,
    /// True if the request waits until nothing prevents it. Only
    /// [`Filesystem::interrupt`](crate::Filesystem::interrupt) ends the wait of a killed program.
    pub wait: bool,
}

/// A lock on a range of a file (`fuse_file_lock`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLock {
    /// Kind of the lock.
    pub kind: FileLockKind,
    /// First byte.
    pub start: u64,
    /// Last byte, from `start` to `i64::MAX`, which stands for the end of the file wherever it is.
    pub end: u64,
    /// Process id of the caller, or in a reply of a process that holds the lock; zero if unknown.
    pub pid: u32,
}

/// Kinds of locks, numbered as `l_type` of `fcntl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum FileLockKind {
    /// Shared with other readers.
    Read = 0,
    /// Exclusive.
    Write = 1,
    /// None: what there is in the range ends.
    Unlock = 2,
}

/// FUSE_FSYNC and FUSE_FSYNCDIR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fsync {
    /// The open file or directory.
    pub file: FileId,
    /// True if only data and what is needed to read it must be synced (`fdatasync`).
    pub data_only: bool,
}

/// FUSE_READDIR and FUSE_READDIRPLUS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readdir {
    /// The open directory.
    pub file: FileId,
    /// The offset of the last entry that the kernel has; zero at the start.
    pub offset: u64,
    /// Limit of the bytes of the reply.
    pub size: u32,
}

/// FUSE_SETXATTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setxattr<'a> {
    /// The name with its prefix.
    pub name: &'a OsStr,
    /// The new value.
    pub value: &'a [u8],
    /// Flags of `setxattr`.
    pub flags: i32,
    /// True if this access control list clears the setgid bit (`FUSE_SETXATTR_ACL_KILL_SGID`).
    pub kill_setgid: bool,
}

/// FUSE_FALLOCATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fallocate {
    /// The open file.
    pub file: FileId,
    /// Start of the range in bytes.
    pub offset: u64,
    /// Length of the range in bytes.
    pub length: u64,
    /// Mode of `fallocate`.
    pub mode: i32,
}

/// FUSE_LSEEK; only for `SEEK_DATA` and `SEEK_HOLE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lseek {
    /// The open file.
    pub file: FileId,
    /// Start of the search in bytes.
    pub offset: u64,
    /// `SEEK_DATA` or `SEEK_HOLE`.
    pub whence: i32,
}

/// FUSE_COPY_FILE_RANGE. (Its 64-bit successor is [`Operation::Other`]; the kernel then sends this
/// one.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyFileRange {
    /// The open file to read.
    pub from: FileId,
    /// Start of the range to read.
    pub from_offset: u64,
    /// The file to write; the header has the one to read.
    pub to_node: NodeId,
    /// The open file to write.
    pub to: FileId,
    /// Start of the range to write.
    pub to_offset: u64,
    /// Bytes to copy; the reply can report at most `u32::MAX`.
    pub length: u64,
    /// No flags are defined.
    pub flags: u64,
}
