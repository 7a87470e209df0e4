//! Errors as numbers: one code for each cause a caller can tell apart, never text to be parsed.

use std::fmt;

/// What a caller must do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It is not there; look elsewhere.
    NotFound,
    /// It is there already; choose another name.
    Exists,
    /// Not allowed; ask somebody who may.
    Denied,
    /// The request makes no sense as it stands; change it.
    Invalid,
    /// What was known is old; look it up again.
    Stale,
    /// Another owner took over; connect to it.
    Fenced,
    /// A limit is reached or something is in use; try again later or with less.
    Busy,
    /// Not reachable now; try again.
    Unavailable,
    /// What is stored is damaged; run `pelago check`.
    Corrupt,
    /// Our mistake; report it.
    Bug,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal, $kind:ident, $says:literal;)+) => {
        /// Why a request failed. Numbers are never reused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Code {
            $($(#[doc = $doc])+ $name = $number,)+
        }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The code with this number.
            #[must_use]
            pub const fn from_number(number: u16) -> Option<Self> {
                match number { $($number => Some(Self::$name),)+ _ => None }
            }

            /// Its number.
            #[must_use]
            pub const fn number(self) -> u16 {
                self as u16
            }

            /// What a caller must do about it.
            #[must_use]
            pub const fn kind(self) -> Kind {
                match self { $(Self::$name => Kind::$kind,)+ }
            }

            /// What happened, for a person.
            #[must_use]
            pub const fn says(self) -> &'static str {
                match self { $(Self::$name => $says,)+ }
            }
        }
    };
}

codes! {
    /// No such name or inode.
    NotFound = 1, NotFound, "no such file or directory";
    /// The name is taken.
    Exists = 2, Exists, "the name exists already";
    /// A part of the path that must be a directory is none.
    NotDirectory = 3, Invalid, "not a directory";
    /// A directory where none may be.
    IsDirectory = 4, Invalid, "is a directory";
    /// The directory has names in it.
    NotEmpty = 5, Invalid, "the directory is not empty";
    /// The mode bits or the caller's identity forbid it.
    AccessDenied = 6, Denied, "access denied";
    /// Only the owner or a privileged user may.
    NotPermitted = 7, Denied, "operation not permitted";
    /// A name or target is too long.
    NameTooLong = 8, Invalid, "the name is too long";
    /// An argument has no meaning here.
    Invalid = 9, Invalid, "invalid argument";
    /// A directory would become its own ancestor.
    WouldLoop = 10, Invalid, "a directory cannot move below itself";
    /// The file has as many names as a file can have.
    TooManyLinks = 11, Busy, "the file has too many names";
    /// The file would be larger than a file can be.
    FileTooLarge = 12, Invalid, "the file would be too large";
    /// The medium is full.
    NoSpace = 13, Busy, "no space left";
    /// The volume or mount does not take changes.
    ReadOnly = 14, Denied, "read-only file system";
    /// The handle names nothing any more.
    Stale = 15, Stale, "the file is gone";
    /// The open file is not known, or not open for that.
    BadOpen = 16, Invalid, "not open, or not open for that";
    /// The extended attribute does not exist.
    NoXattr = 17, NotFound, "no such extended attribute";
    /// The value does not fit where it shall go.
    TooBig = 18, Invalid, "the value is too big";
    /// A result does not fit the buffer the caller has for it.
    Range = 19, Invalid, "the result does not fit the buffer";
    /// Not built, or not for this kind of file.
    NotSupported = 20, Invalid, "not supported";
    /// Names on different volumes or homes.
    CrossHome = 21, Invalid, "source and target have different homes";
    /// As many files are open as can be.
    TooManyOpen = 22, Busy, "too many open files";
    /// A limit of memory or queues is reached.
    Busy = 23, Busy, "busy, try again";
    /// The server is stopping or not there.
    Unavailable = 24, Unavailable, "the server is not available";
    /// The medium answered an error.
    Io = 25, Corrupt, "input/output error";
    /// What is stored does not make sense.
    Corrupt = 26, Corrupt, "stored data is damaged";
    /// A seek found no data or hole behind the offset.
    NoData = 27, NotFound, "no data behind the offset";
    /// The request was given up by its caller.
    Interrupted = 28, Busy, "interrupted";
    /// The deadline passed.
    TimedOut = 29, Unavailable, "timed out";
    /// A program's text is being executed and cannot be written.
    TextBusy = 30, Busy, "the file is being executed";
    /// Our mistake.
    Bug = 31, Bug, "internal error";
}

/// The answer to a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error {
    /// Why.
    pub code: Code,
}

impl Error {
    /// An error with this code.
    #[must_use]
    pub const fn new(code: Code) -> Self {
        Self { code }
    }

    /// What a caller must do about it.
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
