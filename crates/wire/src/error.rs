//! Errors as numbers: one code for each cause that a caller can distinguish.

use std::fmt;

/// The kind of an error, by what the caller of the request can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The name or the inode does not exist; look elsewhere.
    NotFound,
    /// The name exists; choose another.
    Exists,
    /// The caller has no permission; ask a user who has it.
    Denied,
    /// The request is wrong for its subject; change it.
    Invalid,
    /// The handle is out of date; look the file up again.
    Stale,
    /// Another server owns the shard now; connect to that server.
    Fenced,
    /// A limit is reached or a resource is in use; retry later, or with a smaller request.
    Busy,
    /// The server cannot be reached; retry.
    Unavailable,
    /// Stored data is damaged; run `pelago check`.
    Corrupt,
    /// A bug in Pelago; report it.
    Bug,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal, $kind:ident, $says:literal;)+) => {
        /// The cause of a failure. Numbers are never reused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Code {
            $($(#[doc = $doc])+ $name = $number,)+
        }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the code with this number.
            #[must_use]
            pub const fn from_number(number: u16) -> Option<Self> {
                match number { $($number => Some(Self::$name),)+ _ => None }
            }

            /// Returns the number, as on the wire.
            #[must_use]
            pub const fn number(self) -> u16 {
                self as u16
            }

            /// Returns what the caller has to do.
            #[must_use]
            pub const fn kind(self) -> Kind {
                match self { $(Self::$name => Kind::$kind,)+ }
            }

            /// Returns a message for people: lower case, without a full stop.
            #[must_use]
            pub const fn says(self) -> &'static str {
                match self { $(Self::$name => $says,)+ }
            }
        }
    };
}

codes! {
    /// The name or the inode does not exist.
    NotFound = 1, NotFound, "no such file or directory";
    /// The name exists already.
    Exists = 2, Exists, "the name exists already";
    /// A directory is required, and the file is none.
    NotDirectory = 3, Invalid, "not a directory";
    /// The file is a directory, and none is allowed here.
    IsDirectory = 4, Invalid, "is a directory";
    /// The directory has entries.
    NotEmpty = 5, Invalid, "the directory is not empty";
    /// The mode bits or the caller's identity forbid the operation.
    AccessDenied = 6, Denied, "access denied";
    /// Only the owner or a privileged user may do this.
    NotPermitted = 7, Denied, "operation not permitted";
    /// A name or a link's target is too long.
    NameTooLong = 8, Invalid, "the name is too long";
    /// An argument is out of range or has no meaning for this file.
    Invalid = 9, Invalid, "invalid argument";
    /// The rename would make a directory its own ancestor.
    WouldLoop = 10, Invalid, "a directory cannot move below itself";
    /// The file has [`crate::limits::LINKS`] names.
    TooManyLinks = 11, Busy, "the file has too many names";
    /// The file would exceed [`crate::limits::FILE_BYTES`].
    FileTooLarge = 12, Invalid, "the file would be too large";
    /// The disk is full.
    NoSpace = 13, Busy, "no space left";
    /// The volume or the mount refuses changes.
    ReadOnly = 14, Denied, "read-only file system";
    /// The file of the handle no longer exists.
    Stale = 15, Stale, "the file is gone";
    /// The open id is unknown, or not open for this operation.
    BadOpen = 16, Invalid, "not open, or not open for that";
    /// The extended attribute does not exist.
    NoXattr = 17, NotFound, "no such extended attribute";
    /// The value is larger than its destination allows.
    TooBig = 18, Invalid, "the value is too big";
    /// The result is larger than the caller's buffer.
    Range = 19, Invalid, "the result does not fit the buffer";
    /// The operation is not implemented, or not for this type of file.
    NotSupported = 20, Invalid, "not supported";
    /// Source and target belong to different volumes or homes.
    CrossHome = 21, Invalid, "source and target have different homes";
    /// The limit of open files or of descriptors is reached.
    TooManyOpen = 22, Busy, "too many open files";
    /// A limit of memory or of a queue is reached.
    Busy = 23, Busy, "busy, try again";
    /// The server is stopping or does not run.
    Unavailable = 24, Unavailable, "the server is not available";
    /// The disk returned an error.
    Io = 25, Corrupt, "input/output error";
    /// Stored data fails its checksum or contradicts itself.
    Corrupt = 26, Corrupt, "stored data is damaged";
    /// A seek found no data at or after the offset.
    NoData = 27, NotFound, "no data behind the offset";
    /// The caller cancelled the request.
    Interrupted = 28, Busy, "interrupted";
    /// The deadline passed.
    TimedOut = 29, Unavailable, "timed out";
    /// The file is being executed and cannot be written.
    TextBusy = 30, Busy, "the file is being executed";
    /// A bug in Pelago.
    Bug = 31, Bug, "internal error";
    /// The session has [`crate::limits::LOCKS`] locks, or [`crate::limits::LOCK_WAITERS`] requests
    /// that wait for one.
    NoLocks = 32, Busy, "too many locks";
    /// The lock would wait for a process that waits for the caller.
    Deadlock = 33, Busy, "waiting for the lock would be a deadlock";
    /// Another owner has the lock, and the caller does not wait.
    LockHeld = 34, Busy, "another process has the lock";
    /// Bytes that a program has written were not sent before the lease on them was lost.
    LeaseLost = 35, Stale, "the lease on the bytes was lost";
    /// The home of the file is at another site, which cannot be reached.
    HostDown = 36, Unavailable, "the site of the file cannot be reached";
    /// What the name leads to has its home at another site, and the request would change both.
    Elsewhere = 37, Invalid, "not supported for a directory with its home at another site";
    /// Another server of the shared store owns the volume now. No program gets it: its client asks
    /// that server.
    NotOwner = 39, Fenced, "another server owns the volume now";
}

/// The result of a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error {
    /// The cause.
    pub code: Code,
}

impl Error {
    /// Returns an error with this code.
    #[must_use]
    pub const fn new(code: Code) -> Self {
        Self { code }
    }

    /// Returns what the caller has to do.
    #[must_use]
    pub const fn kind(self) -> Kind {
        self.code.kind()
    }
}

impl From<Code> for Error {
    fn from(code: Code) -> Self {
        Self { code }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code.says())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_comes_back_from_its_number() {
        for code in Code::ALL {
            assert_eq!(Code::from_number(code.number()), Some(*code));
        }
        assert_eq!(Code::from_number(0), None);
    }
}
