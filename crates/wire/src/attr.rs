//! What is known of a file besides its bytes.

use crate::id::InodeId;

/// Seconds and nanoseconds since 1970 (UTC). Seconds may be negative; nanoseconds are below 10⁹.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    /// Whole seconds, rounded down.
    pub seconds: i64,
    /// Nanoseconds behind them, 0 to 999,999,999.
    pub nanos: u32,
}

impl Time {
    /// The next instant a clock with nanoseconds can show.
    #[must_use]
    pub fn next(self) -> Self {
        if self.nanos < 999_999_999 {
            Self { nanos: self.nanos + 1, ..self }
        } else {
            Self { seconds: self.seconds.saturating_add(1), nanos: 0 }
        }
    }
}

/// What a file is. The numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// An ordinary file.
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
    /// The kind with this stored number.
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

    /// The stored number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }
}

/// The attributes of a file, as `stat` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Its number.
    pub ino: InodeId,
    /// What it is.
    pub kind: FileKind,
    /// Permission, setuid, setgid and sticky bits (07777).
    pub mode: u16,
    /// Names it has; a directory: 2 and one for each directory in it.
    pub links: u32,
    /// Owner, a number of the volume.
    pub uid: u32,
    /// Group, a number of the volume.
    pub gid: u32,
    /// Device number, in the kernel's 32-bit encoding; zero but for devices.
    pub rdev: u32,
    /// Bytes; of a directory: the count of its names.
    pub size: u64,
    /// Units of 512 bytes on the medium.
    pub blocks: u64,
    /// Last read.
    pub atime: Time,
    /// Last change of the bytes.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// When it was made.
    pub btime: Time,
    /// Somebody may change size and times without the server seeing each change: these here hold at
    /// this moment, and nobody may keep them.
    pub volatile: bool,
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
        }
    }
}

/// The mode that something new shall have. In a directory with a default access control list the
/// umask does not count: the list says what everybody may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewMode {
    /// Permission, setuid, setgid and sticky bits (07777) that are asked for.
    pub mode: u16,
    /// Permission bits (0777) that the program keeps from what it makes.
    pub umask: u16,
}

impl NewMode {
    /// This mode, whatever the umask.
    #[must_use]
    pub const fn exactly(mode: u16) -> Self {
        Self { mode, umask: 0 }
    }

    /// The mode where there is no default access control list.
    #[must_use]
    pub const fn masked(self) -> u16 {
        self.mode & !(self.umask & 0o777)
    }
}

/// A time to set: now by the server's clock, or a given one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The server's clock.
    Now,
    /// This time.
    To(Time),
}

/// Which attributes to change; `None` leaves one as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// Permission, setuid, setgid and sticky bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes: truncate or extend by a hole.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Last change of the bytes.
    pub mtime: Option<SetTime>,
    /// Last change of anything; only a client that keeps times itself says it.
    pub ctime: Option<Time>,
    /// Clear setuid and setgid bits as a write by somebody without privilege must
    /// (`FUSE_HANDLE_KILLPRIV_V2`).
    pub kill_privileges: bool,
    /// With `kill_privileges`: clear the setgid bit even where the group may not execute, for
    /// whoever asks is not in the file's group.
    pub kill_setgid: bool,
}

impl SetAttr {
    /// Whether nothing is to change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
