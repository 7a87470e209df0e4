//! What programs run against.

use std::collections::{BTreeMap, BTreeSet};

use pelago_wire::{FileKind, Name, Time};

use crate::op::Op;

pub use files::FilesTarget;
pub use local::LocalTarget;

mod files;
mod local;

/// A file system on which a program is run. It never panics and never stops a program: what goes
/// wrong is an [`Outcome`] that the model does not expect.
pub trait Target {
    /// What this file system does in its own way.
    fn traits(&self) -> FsTraits;

    /// Carries out one operation. The caller has made sure that slots and scans are in use where
    /// they must be.
    fn apply(&mut self, op: &Op) -> Outcome;
}

/// In what file systems may differ without being wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsTraits {
    /// The size of a directory is the count of its names.
    pub counts_names: bool,
    /// A directory has 2 links and one for each directory in it.
    pub counts_dirs: bool,
    /// What must change a time makes it strictly newer, not only no older.
    pub strict_times: bool,
    /// Extended attributes are kept.
    pub xattrs: bool,
    /// There are files without a name, which can get one.
    pub unnamed: bool,
    /// A rename that shall leave a whiteout, and fails, changes nothing. (ext4 puts the old name
    /// back, which changes the times of its directory.)
    pub keeps_times_of_failures: bool,
}

/// The attributes of a file that programs compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Its number.
    pub ino: u64,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits and the sticky bit (01777).
    pub mode: u16,
    /// Names it has.
    pub links: u64,
    /// Bytes.
    pub size: u64,
    /// Last change of the bytes.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
}

/// What an operation answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It went well.
    Done,
    /// It went well and showed attributes.
    Attr(Seen),
    /// So many bytes were written; the size of the file then.
    Written {
        /// Bytes taken.
        bytes: u64,
        /// Bytes of the file.
        size: u64,
    },
    /// Bytes of a file, link or extended attribute.
    Bytes(Vec<u8>),
    /// Where data or a hole was found, if it was.
    Offset(Option<u64>),
    /// All names of a directory. A name that came twice is an error of [`Outcome::Broken`].
    Names(BTreeMap<Name, FileKind>),
    /// Names of a listing under way, and whether it is at its end.
    Page {
        /// In the order in which they came.
        names: Vec<Name>,
        /// Whether nothing comes behind them.
        end: bool,
    },
    /// Names of extended attributes in `user.`.
    XattrNames(BTreeSet<Vec<u8>>),
    /// It failed with this error number of Linux.
    Failed(i32),
    /// The answer contradicts itself; the text says how.
    Broken(String),
}
