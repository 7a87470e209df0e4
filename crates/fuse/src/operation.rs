//! Everything the kernel may ask, decoded.
//!
//! Borrowed parts point into the bytes of the request. What the kernel never sends in the
//! agreement that [`crate::init`] makes is [`Operation::Other`], to which the session answers
//! `ENOSYS`.

use std::ffi::OsStr;

use crate::attr::Timestamp;
use crate::ids::{FileId, LockOwner, NodeId};
use crate::init::Init;

/// One request, but for its header. Each variant is named after its opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the opcode of its name, explained at its fields")]
pub enum Operation<'a> {
    Init(Init),
    Destroy,
    Lookup {
        name: &'a OsStr,
    },
    /// Never answered.
    Forget {
        lookups: u64,
    },
    /// Never answered.
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
    /// Never answered; ends another request, if it still waits.
    Interrupt {
        unique: u64,
    },
    Fallocate(Fallocate),
    Lseek(Lseek),
    CopyFileRange(CopyFileRange),
    /// Attributes and the time of birth; whatever is asked for, all is told.
    Statx,
    /// An opcode that is not among these.
    Other(u32),
}

/// FUSE_BATCH_FORGET: an iterator of nodes and counts of lookups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgets<'a>(pub(crate) &'a [u8]);

/// FUSE_SETATTR. What is `None` stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission, setuid, setgid and sticky bits; other bits may be set and mean nothing.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Last written.
    pub mtime: Option<SetTime>,
    /// Last changed; only where the kernel keeps it (write-back).
    pub ctime: Option<Timestamp>,
    /// Through which open file, if any.
    pub file: Option<FileId>,
    /// setuid and setgid bits go with this change (`FATTR_KILL_SUIDGID`: a truncation by somebody
    /// without the right to keep them).
    pub kill_privileges: bool,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The server's own.
    Now,
    /// This one.
    To(Timestamp),
}

/// FUSE_SYMLINK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symlink<'a> {
    /// The name to make.
    pub name: &'a OsStr,
    /// What it says.
    pub target: &'a OsStr,
}

/// FUSE_MKNOD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mknod<'a> {
    /// The name to make.
    pub name: &'a OsStr,
    /// Kind and permissions, as `st_mode`.
    pub mode: u32,
    /// The caller's.
    pub umask: u32,
    /// Which device, if it is to be one.
    pub rdev: u32,
}

/// FUSE_MKDIR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mkdir<'a> {
    /// The name to make.
    pub name: &'a OsStr,
    /// Permissions.
    pub mode: u32,
    /// The caller's.
    pub umask: u32,
}

/// FUSE_RENAME and FUSE_RENAME2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rename<'a> {
    /// The name there is.
    pub name: &'a OsStr,
    /// The directory it goes to.
    pub to_dir: NodeId,
    /// The name it gets.
    pub to_name: &'a OsStr,
    /// Of `renameat2`.
    pub flags: u32,
}

/// FUSE_LINK; the header names the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link<'a> {
    /// What gets one more name.
    pub node: NodeId,
    /// The name.
    pub name: &'a OsStr,
}

/// FUSE_OPEN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// Of `open`, without `O_CREAT`, `O_EXCL` and `O_NOCTTY`.
    pub flags: i32,
    /// setuid and setgid bits go with the truncation that `flags` ask for
    /// (`FUSE_OPEN_KILL_SUIDGID`).
    pub kill_privileges: bool,
}

/// FUSE_CREATE; FUSE_TMPFILE, whose name says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Create<'a> {
    /// The name to make.
    pub name: &'a OsStr,
    /// Of `open`.
    pub flags: i32,
    /// Permissions.
    pub mode: u32,
    /// The caller's.
    pub umask: u32,
    /// As in [`Open`].
    pub kill_privileges: bool,
}

/// FUSE_READ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// The open file.
    pub file: FileId,
    /// From where.
    pub offset: u64,
    /// The most bytes.
    pub size: u32,
}

/// FUSE_WRITE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write<'a> {
    /// The open file.
    pub file: FileId,
    /// To where.
    pub offset: u64,
    /// The bytes.
    pub data: &'a [u8],
    /// setuid and setgid bits go with it (`FUSE_WRITE_KILL_SUIDGID`).
    pub kill_privileges: bool,
    /// Of `open`, as they are now; zero where pages are written back.
    pub flags: i32,
}

/// FUSE_FLUSH: a descriptor was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flush {
    /// The open file.
    pub file: FileId,
    /// Whose locks end with it.
    pub owner: LockOwner,
}

/// FUSE_RELEASE: the last descriptor was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// The open file.
    pub file: FileId,
    /// Of `open`, as they are now.
    pub flags: i32,
}

/// FUSE_FSYNC and FUSE_FSYNCDIR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fsync {
    /// The open file or directory.
    pub file: FileId,
    /// `fdatasync`.
    pub data_only: bool,
}

/// FUSE_READDIR and FUSE_READDIRPLUS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readdir {
    /// The open directory.
    pub file: FileId,
    /// Behind the entry that came with this offset; zero from the start.
    pub offset: u64,
    /// The most bytes of the answer.
    pub size: u32,
}

/// FUSE_SETXATTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setxattr<'a> {
    /// With its prefix.
    pub name: &'a OsStr,
    /// What it shall be.
    pub value: &'a [u8],
    /// Of `setxattr`.
    pub flags: i32,
    /// The setgid bit goes with this access control list (`FUSE_SETXATTR_ACL_KILL_SGID`).
    pub kill_setgid: bool,
}

/// FUSE_FALLOCATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fallocate {
    /// The open file.
    pub file: FileId,
    /// From where.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// Of `fallocate`.
    pub mode: i32,
}

/// FUSE_LSEEK; only for `SEEK_DATA` and `SEEK_HOLE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lseek {
    /// The open file.
    pub file: FileId,
    /// From where.
    pub offset: u64,
    /// For what.
    pub whence: i32,
}

/// FUSE_COPY_FILE_RANGE. (Its successor of 64 bits is [`Operation::Other`]: the kernel then asks
/// with this one.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyFileRange {
    /// The open file to read.
    pub from: FileId,
    /// From where.
    pub from_offset: u64,
    /// The file to write; the header names the one to read.
    pub to_node: NodeId,
    /// The open file to write.
    pub to: FileId,
    /// To where.
    pub to_offset: u64,
    /// How many bytes; the answer cannot tell of more than `u32::MAX`.
    pub length: u64,
    /// None are known.
    pub flags: u64,
}
