//! What a server answers.

use crate::attr::{Attr, FileKind};
use crate::id::{Cookie, Handle, InodeId, OpenId};
use crate::name::Name;
use crate::service::Buffer;

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// How to name it in later requests.
    pub handle: Handle,
    /// Its attributes.
    pub attr: Attr,
}

/// One entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name.
    pub name: Name,
    /// Which file it is.
    pub ino: InodeId,
    /// What it is.
    pub kind: FileKind,
    /// Where a listing that ends with this entry goes on.
    pub cookie: Cookie,
    /// Handle and attributes, where they were asked for and the row is still there.
    pub entry: Option<Entry>,
}

/// Space and counts of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeStats {
    /// Bytes of a block below.
    pub block_bytes: u32,
    /// Blocks of the medium.
    pub blocks: u64,
    /// Of those, free.
    pub free: u64,
    /// Of those, free for everybody.
    pub available: u64,
    /// Files and directories that can be.
    pub files: u64,
    /// Of those, not yet made.
    pub free_files: u64,
}

/// The answer to a [`crate::Request`] that went well.
#[derive(Debug)]
pub enum Reply {
    /// It is done.
    Done,
    /// What a name leads to now.
    Entry(Entry),
    /// The attributes now.
    Attr(Attr),
    /// A file was made and opened.
    Created {
        /// The file.
        entry: Entry,
        /// The open file.
        open: OpenId,
    },
    /// A file was opened.
    Opened {
        /// The open file.
        open: OpenId,
        /// Its attributes at that moment.
        attr: Attr,
    },
    /// A name was removed; the attributes of what it led to, whose `links` are the names it still
    /// has (a directory: 0).
    Removed(Attr),
    /// A name was moved.
    Renamed {
        /// What moved, with its new hint.
        moved: Handle,
        /// What it replaced, as [`Reply::Removed`] says it; after an exchange: the other one, with
        /// its new hint.
        replaced: Option<Entry>,
    },
    /// Bytes of a file.
    Data(Buffer),
    /// Bytes of a link's target or of an extended attribute.
    Bytes(Vec<u8>),
    /// How many bytes were written, and the attributes behind them.
    Written {
        /// Bytes taken; fewer than were sent only where the medium is full.
        bytes: u64,
        /// The file's size then.
        size: u64,
    },
    /// Entries of a directory.
    Listed {
        /// In the order of their cookies.
        entries: Vec<DirEntry>,
        /// Whether nothing comes behind them.
        end: bool,
    },
    /// Where a seek ended.
    Offset(u64),
    /// Space and counts.
    Volume(VolumeStats),
}
