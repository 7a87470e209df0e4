//! What a server answers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::attr::{Attr, FileKind};
use crate::buffer::Buffer;
use crate::id::{Cookie, Handle, InodeId, OpenId};
use crate::name::Name;

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

/// How whoever has opened a file reaches its bytes. All opens of a file at the same time through
/// one mount have the same one (the kernel answers `EIO` to others).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DataPath {
    /// By requests; what was read may be kept.
    #[default]
    Cached,
    /// By requests; nothing may be kept, because others change the bytes where the server does not
    /// see it.
    Direct,
    /// By a descriptor; only [`crate::OpenFlags::passthrough`] gets this. Everything but reading
    /// and writing bytes goes by requests all the same, FLUSH and RELEASE included.
    Passthrough(Backing),
}

/// A descriptor of the file that holds the bytes, open to read, whatever it is wanted for: whoever
/// writes opens it again through the kernel's backing file.
#[derive(Debug, Clone)]
pub struct Backing(Arc<OwnedFd>);

impl Backing {
    /// This descriptor.
    #[must_use]
    pub fn new(descriptor: OwnedFd) -> Self {
        Self(Arc::new(descriptor))
    }
}

impl From<Arc<OwnedFd>> for Backing {
    /// This descriptor, which others have too.
    fn from(descriptor: Arc<OwnedFd>) -> Self {
        Self(descriptor)
    }
}

impl AsFd for Backing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl PartialEq for Backing {
    /// Whether it is the same descriptor.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Backing {}

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
        /// How to reach its bytes.
        path: DataPath,
    },
    /// A file was opened.
    Opened {
        /// The open file.
        open: OpenId,
        /// Its attributes at that moment.
        attr: Attr,
        /// How to reach its bytes.
        path: DataPath,
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
