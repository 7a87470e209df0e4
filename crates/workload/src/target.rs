//! The file systems that programs run on.

use std::collections::{BTreeMap, BTreeSet};

use pelago_wire::{FileKind, Name, Time};

use crate::op::Op;

pub use files::FilesTarget;
pub use local::LocalTarget;

mod files;
mod local;

/// A file system that runs a program. It never panics: an error is an [`Outcome`] that the model
/// does not expect.
pub trait Target {
    /// Returns the properties in which this file system differs from others.
    fn traits(&self) -> FsTraits;

    /// Performs one operation. The slots and scans that it needs are in use.
    fn apply(&mut self, op: &Op) -> Outcome;
}

/// Properties in which correct file systems differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsTraits {
    /// Whether the size of a directory is the number of its names.
    pub counts_names: bool,
    /// Whether a directory has 2 links and one more for each subdirectory.
    pub counts_dirs: bool,
    /// Whether a changed time is always newer; otherwise it may stay equal within a clock tick.
    pub strict_times: bool,
    /// Whether it supports `user.` extended attributes.
    pub xattrs: bool,
    /// Whether it supports unnamed files that can be linked (`O_TMPFILE`).
    pub unnamed: bool,
    /// Whether a failed rename with a whiteout changes no times. (ext4 restores the old name, which
    /// changes the times of its directory.)
    pub keeps_times_of_failures: bool,
}

/// The attributes of a file that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileAttr {
    /// Inode number.
    pub ino: u64,
    /// File type.
    pub kind: FileKind,
    /// Permission bits and the sticky bit (01777).
    pub mode: u16,
    /// Hard links.
    pub links: u64,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of the bytes.
    pub mtime: Time,
    /// Time of the last change of bytes or attributes.
    pub ctime: Time,
}

/// The outcome of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Done,
    /// It succeeded and returned attributes.
    Attr(FileAttr),
    /// It wrote this many bytes.
    Written {
        /// Bytes written.
        bytes: u64,
        /// The size of the file afterwards.
        size: u64,
    },
    /// The bytes of a file, link or extended attribute.
    Bytes(Vec<u8>),
    /// The offset of data or a hole; `None` if there is none.
    Offset(Option<u64>),
    /// All names of a directory. A duplicate name is [`Outcome::Broken`].
    Names(BTreeMap<Name, FileKind>),
    /// The next names of a scan.
    Page {
        /// In the order of the listing.
        names: Vec<Name>,
        /// Whether the scan is at its end.
        end: bool,
    },
    /// The names of extended attributes in `user.`.
    XattrNames(BTreeSet<Vec<u8>>),
    /// It failed with this errno.
    Failed(i32),
    /// The result contradicts itself; the text says how.
    Broken(String),
}
