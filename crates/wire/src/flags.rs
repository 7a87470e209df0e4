//! Arguments of requests: how a file is opened, renamed, allocated or searched.

use crate::write_era::WriteEra;

/// The flags of an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenFlags {
    /// The open may read bytes.
    pub read: bool,
    /// The open may write bytes.
    pub write: bool,
    /// The open may not be the target of a copy (`O_APPEND`). Each write says for itself whether it
    /// goes to the end of the file.
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

/// The flags of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteFlags {
    /// At the end of the file at that moment, whatever the offset (`O_APPEND`, which can change
    /// after the open).
    pub append: bool,
    /// The program was answered before, under a lease of this era: the bytes are written only as
    /// long as the session has the lease on the bytes of the file, and none of that era was lost.
    /// Else the request fails with [`crate::Code::LeaseLost`].
    pub behind: Option<WriteEra>,
    /// Do afterwards what [`crate::Request::Flush`] without an owner does.
    pub commit: bool,
    /// Clear the setuid and setgid bits, as for an unprivileged user (`FUSE_WRITE_KILL_SUIDGID`).
    pub kill_privileges: bool,
}

impl WriteFlags {
    /// None of them.
    pub const NONE: Self =
        Self { append: false, behind: None, commit: false, kill_privileges: false };
}

/// What a site says of the bytes of a file that it has ([`crate::Request::SetBytes`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlaceFlags {
    /// Nothing is said: it is asked whether the file has these bytes still.
    pub asks: bool,
    /// Nothing is written there any more: it counts only if the file has these bytes still.
    pub given: bool,
    /// Clear the setuid and setgid bits of the file, as for an unprivileged user: one has written.
    pub kill_privileges: bool,
}

/// The treatment of an existing target by a rename, and the rest at the old name.
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

/// The condition of a request to set an extended attribute.
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

/// The operation of `fallocate` on a range.
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

/// The goal of a seek.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// The next stored byte (`SEEK_DATA`).
    Data,
    /// The next hole; the end of the file counts as one (`SEEK_HOLE`).
    Hole,
}

/// The start of a seek, and its goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeekFrom {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Data or a hole.
    pub whence: Whence,
}
