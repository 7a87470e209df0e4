//! Replies of a server, and their parts.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::access::AccessPage;
use crate::attr::{Attr, FileKind, Time};
use crate::audit::AuditPage;
use crate::buffer::Buffer;
use crate::id::{Cookie, Handle, InodeId};
use crate::local_cache::Touched;
use crate::lock::FileLock;
use crate::name::Name;
use crate::search::{SearchPage, TagPage};
use crate::site_token::SiteToken;

/// A file, as a lookup finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Names the file in later requests.
    pub handle: Handle,
    /// The attributes at that moment.
    pub attr: Attr,
}

/// One entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name in the directory.
    pub name: Name,
    /// The inode of the file.
    pub ino: InodeId,
    /// The file's type.
    pub kind: FileKind,
    /// The position after this entry, where the next listing continues.
    pub cookie: Cookie,
    /// Handle and attributes; `None` if they were not requested, or if the row is gone.
    pub entry: Option<Entry>,
}

/// Space and inodes of a volume, as `statfs` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeStats {
    /// Bytes of a block of the disk.
    pub block_bytes: u32,
    /// Blocks of the disk.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks that every user may take.
    pub available: u64,
    /// Most files and directories that the volume can have.
    pub files: u64,
    /// Files and directories that can still be created.
    pub free_files: u64,
}

/// The data path of an open to the bytes of its file. All simultaneous opens of a file through one
/// mount have the same data path: the kernel answers `EIO` to an open with another one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DataPath {
    /// By requests; the kernel may cache what it reads.
    #[default]
    Cached,
    /// By requests, without a cache: other programs change the bytes without a request.
    Direct,
    /// By a descriptor, for an open with [`crate::OpenFlags::passthrough`]. Other operations are
    /// requests, among them FLUSH and RELEASE.
    Passthrough(Backing),
}

/// A descriptor of the content file. It is open for reading, also for an open that writes: the
/// kernel opens its backing file again for writes.
#[derive(Debug, Clone)]
pub struct Backing(Arc<OwnedFd>);

impl Backing {
    /// Returns a backing that owns the descriptor.
    #[must_use]
    pub fn new(descriptor: OwnedFd) -> Self {
        Self(Arc::new(descriptor))
    }
}

impl From<Arc<OwnedFd>> for Backing {
    /// Returns a backing that shares the descriptor.
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
    /// Returns whether both are the same descriptor, by identity.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Backing {}

/// The result of a [`crate::Request`] that succeeded.
#[derive(Debug)]
pub enum Reply {
    /// Success without a value.
    Done,
    /// A file that was found, created or linked.
    Entry(Entry),
    /// The attributes after the request.
    Attr(Attr),
    /// A file was created and opened.
    Created {
        /// The new file.
        entry: Entry,
        /// The open's data path.
        path: DataPath,
    },
    /// A file was opened.
    Opened {
        /// The attributes after the open.
        attr: Attr,
        /// The open's data path.
        path: DataPath,
    },
    /// A name was removed. The attributes are those of the file afterwards: `links` counts the
    /// names that are left (0 for a directory).
    Removed(Attr),
    /// A name was moved.
    Renamed {
        /// The moved file, with its new hint.
        moved: Handle,
        /// The replaced file, with attributes as in [`Reply::Removed`]; after an exchange the other
        /// file, with its new hint.
        replaced: Option<Entry>,
    },
    /// Bytes of a file.
    Data(Buffer),
    /// A link's target, or the value or the names of extended attributes.
    Bytes(Vec<u8>),
    /// Bytes were written.
    Written {
        /// Bytes written; fewer than were sent only if the disk is full.
        bytes: u64,
        /// The file's size afterwards, in bytes.
        size: u64,
    },
    /// Entries of a directory.
    Listed {
        /// The entries, in the order of their cookies.
        entries: Vec<DirEntry>,
        /// No entries follow.
        end: bool,
    },
    /// The offset that a seek found, in bytes.
    Offset(u64),
    /// Space and inodes of the volume.
    Volume(VolumeStats),
    /// The lock that conflicts with the tested one; `None` if that could be set.
    Lock(Option<FileLock>),
    /// Files that answer a query.
    Found(SearchPage),
    /// Keys of tags, or values of one key.
    Tagged(TagPage),
    /// The credentials of a chain, from that of a root to the one that was issued.
    Issued(Vec<Vec<u8>>),
    /// The rights of guests to a node.
    Access(AccessPage),
    /// Lines of the audit log.
    Audited(AuditPage),
    /// The target of a name, or the parent directory.
    Stepped {
        /// Names it in later requests, to its home.
        node: Handle,
        /// Its attributes; `None` if its home is at another site.
        attr: Option<Attr>,
    },
    /// The charter of the volume, and what was taken back.
    Charter {
        /// The signed text; `None` if the asking site has it, or there is none.
        text: Option<Vec<u8>>,
        /// The hash of all revocations.
        revoked: [u8; 32],
    },
    /// A page of revocations.
    Revoked {
        /// At most [`crate::limits::PASSED_REVOCATIONS`].
        revocations: Vec<PassedRevocation>,
        /// A bit for each part of the revocations that differs: part 0 is bit 0 of the first byte.
        differing: [u8; 32],
        /// Further ones follow.
        more: bool,
    },
    /// The names of the sites at which something that was taken back may still be in use.
    Unreached {
        /// Those that were not reached, or had no time: they ask by themselves.
        away: Vec<String>,
        /// Those that were reached and have refused it, or get it only from one that has.
        refused: Vec<String>,
    },
    /// The clock of a site's server.
    Clock {
        /// The time there, since 1970.
        now: Time,
        /// The version of the program, for people: at most [`crate::limits::TEXT_BYTES`].
        program: String,
    },
    /// The BLAKE3 hashes of blocks of a file, in their order: at most
    /// [`crate::limits::HASHED_BLOCKS`].
    Hashes(Vec<[u8; 32]>),
    /// The token that the asking site shows from now on.
    Token(SiteToken),
    /// The servers of a shared store, each as KEY@HOST:PORT, at most
    /// [`crate::limits::STORE_SERVERS`] of [`crate::limits::SERVER_ADDRESS_BYTES`] each.
    Servers(Vec<String>),
}

/// A revocation that one site passes on to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedRevocation {
    /// The signed sentence: at most [`crate::limits::REVOCATION_BYTES`].
    pub sentence: Vec<u8>,
    /// The second, since 1970, from which the credential is void in any case; 0 if it has no end.
    pub end: u64,
}

impl Reply {
    /// Returns the nodes whose names a removal or a move has changed, by its reply.
    #[must_use]
    pub fn moved_nodes(&self) -> Vec<Touched> {
        match self {
            Self::Removed(attr) => vec![Touched::Node(attr.ino)],
            Self::Renamed { moved, replaced } => {
                let replaced = replaced.map(|replaced| replaced.attr.ino);
                [Some(moved.ino), replaced].into_iter().flatten().map(Touched::Node).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the attributes of the file that the reply says is open now.
    #[must_use]
    pub const fn opened(&self) -> Option<&Attr> {
        match self {
            Self::Created { entry, .. } => Some(&entry.attr),
            Self::Opened { attr, .. } => Some(attr),
            _ => None,
        }
    }

    /// Returns the attributes in the reply, without those of what a rename has replaced.
    pub fn attrs_mut(&mut self) -> Vec<&mut Attr> {
        match self {
            Self::Entry(entry) | Self::Created { entry, .. } => vec![&mut entry.attr],
            Self::Attr(attr) | Self::Opened { attr, .. } | Self::Removed(attr) => vec![attr],
            Self::Listed { entries, .. } => {
                let with_attrs = entries.iter_mut().filter_map(|entry| entry.entry.as_mut());
                with_attrs.map(|entry| &mut entry.attr).collect()
            }
            Self::Stepped { attr, .. } => attr.as_mut().into_iter().collect(),
            _ => Vec::new(),
        }
    }
}
