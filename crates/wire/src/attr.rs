//! Attributes of files: kind, mode, owner, size, times.

use crate::id::InodeId;

/// A time since 1970-01-01 (UTC). Times before it have negative seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    /// Whole seconds, rounded towards the past.
    pub seconds: i64,
    /// Nanoseconds after `seconds`, 0 to 999,999,999.
    pub nanos: u32,
}

impl Time {
    /// Returns the time one nanosecond later. The last nanosecond of the largest second returns to
    /// the start of that second.
    #[must_use]
    pub fn next(self) -> Self {
        if self.nanos < 999_999_999 {
            Self { nanos: self.nanos + 1, ..self }
        } else {
            Self { seconds: self.seconds.saturating_add(1), nanos: 0 }
        }
    }
}

/// The type of a file. The numbers are stored on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// A regular file.
    Regular = 1,
    /// A directory.
    Directory = 2,
    /// A symbolic link.
    Symlink = 3,
    /// A named pipe.
    Fifo = 4,
    /// A Unix socket.
    Socket = 5,
    /// A character device.
    CharDevice = 6,
    /// A block device.
    BlockDevice = 7,
}

impl FileKind {
    /// Returns the kind with this stored number, 1 to 7.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::Symlink,
            4 => Self::Fifo,
            5 => Self::Socket,
            6 => Self::CharDevice,
            7 => Self::BlockDevice,
            _ => return None,
        })
    }

    /// Returns the stored number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }
}

/// The attributes of a file, as `stat` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// The inode number.
    pub ino: InodeId,
    /// The file's type.
    pub kind: FileKind,
    /// Permission, setuid, setgid and sticky bits (07777).
    pub mode: u16,
    /// Number of names; of a directory 2, and 1 more for each directory in it.
    pub links: u32,
    /// User id of the owner, as the volume numbers users.
    pub uid: u32,
    /// Group id, as the volume numbers groups.
    pub gid: u32,
    /// Device number in the kernel's 32-bit encoding; 0 for other files.
    pub rdev: u32,
    /// Bytes of the content; of a directory the number of its names.
    pub size: u64,
    /// Units of 512 bytes that the file takes on disk.
    pub blocks: u64,
    /// Time of the last read.
    pub atime: Time,
    /// Time of the last change of the bytes.
    pub mtime: Time,
    /// Time of the last change of bytes or attributes.
    pub ctime: Time,
    /// Time of creation.
    pub btime: Time,
    /// The size and the times may change without a request. They were right when the server read
    /// them, and no cache may keep them.
    pub volatile: bool,
    /// The node may have extended attributes or access control lists. Without this it has none.
    pub has_xattrs: bool,
}

impl Attr {
    /// Returns the attributes of an empty node with one link, no permissions, owner 0 and all times
    /// at 1970-01-01.
    #[must_use]
    pub const fn empty(ino: InodeId, kind: FileKind) -> Self {
        let time = Time { seconds: 0, nanos: 0 };
        Self {
            ino,
            kind,
            mode: 0,
            links: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            volatile: false,
            has_xattrs: false,
        }
    }
}

/// The mode of a new file, before the umask. In a directory with a default access control list the
/// list replaces the umask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewMode {
    /// Permission, setuid, setgid and sticky bits (07777) that the program requested.
    pub mode: u16,
    /// The program's umask (0777).
    pub umask: u16,
}

impl NewMode {
    /// Returns this mode with an empty umask.
    #[must_use]
    pub const fn exactly(mode: u16) -> Self {
        Self { mode, umask: 0 }
    }

    /// Returns the mode for a directory without a default access control list.
    #[must_use]
    pub const fn masked(self) -> u16 {
        self.mode & !(self.umask & 0o777)
    }
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the server's clock when it carries the request out.
    Now,
    /// A given time.
    To(Time),
}

/// Attributes to change. `None` leaves an attribute as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// Permission, setuid, setgid and sticky bits (07777).
    pub mode: Option<u16>,
    /// User id of the owner.
    pub uid: Option<u32>,
    /// Group id.
    pub gid: Option<u32>,
    /// Bytes; a smaller size truncates, a larger one extends the file by a hole.
    pub size: Option<u64>,
    /// Time of the last read.
    pub atime: Option<SetTime>,
    /// Time of the last change of the bytes.
    pub mtime: Option<SetTime>,
    /// Time of the last change of anything; set only by a client that keeps times itself.
    pub ctime: Option<Time>,
    /// Clear the setuid and setgid bits, as a write by an unprivileged user does
    /// (`FUSE_HANDLE_KILLPRIV_V2`).
    pub kill_privileges: bool,
    /// With `kill_privileges`: clear the setgid bit even if the group may not execute, because the
    /// caller is not in the file's group.
    pub kill_setgid: bool,
}

impl SetAttr {
    /// Returns whether no attribute changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
