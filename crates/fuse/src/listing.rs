//! The answers to FUSE_READDIR and FUSE_READDIRPLUS.

use crate::attr::FileType;
use crate::bytes::Layout;
use crate::encode::{self, ENTRY_BYTES};
use crate::reply::{Encode, Entry};

/// The most bytes of one answer, whatever was asked for.
pub const LISTING_BYTES: usize = 1 << 20;
/// The most bytes of a name; the kernel refuses the whole answer for one that is longer than its
/// own limit.
pub const NAME_BYTES: usize = 255;

/// What an answer has room for when it begins.
const FIRST_BYTES: usize = 16 << 10;
/// Bytes of `fuse_dirent` before the name.
const DIRENT_BYTES: usize = 24;

/// Entries of a directory, as many as fit into what the kernel asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    bytes: Vec<u8>,
    most: usize,
    with_attributes: bool,
}

/// One name of a directory (`fuse_dirent`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed<'a> {
    /// What programs see as `d_ino`; zero hides the name from them.
    pub ino: u64,
    /// Where a listing goes on behind this name.
    pub offset: u64,
    /// Of what kind.
    pub file_type: FileType,
    /// The name.
    pub name: &'a [u8],
}

impl Listing {
    /// An answer to FUSE_READDIR of at most `size` bytes.
    #[must_use]
    pub fn of_names(size: u32) -> Self {
        Self::new(size, false)
    }

    /// An answer to FUSE_READDIRPLUS of at most `size` bytes.
    #[must_use]
    pub fn of_entries(size: u32) -> Self {
        Self::new(size, true)
    }

    /// Adds a name, with what it leads to where the answer has attributes: `None` leaves them out
    /// (the kernel then learns nothing of it, and counts no lookup), as has to be done with `.` and
    /// `..`, of which it counts none either. Answers whether it fitted; where it did not, nothing
    /// was added.
    ///
    /// A name of no bytes or more than [`NAME_BYTES`] is passed over as if it had fitted.
    #[must_use]
    pub fn add(&mut self, listed: Listed<'_>, entry: Option<&Entry>) -> bool {
        let name = listed.name;
        if name.is_empty() || name.len() > NAME_BYTES {
            return true;
        }
        let before = if self.with_attributes { ENTRY_BYTES } else { 0 };
        let end = self.bytes.len() + (before + DIRENT_BYTES + name.len()).next_multiple_of(8);
        if !self.make_room(end) {
            return false;
        }
        if self.with_attributes {
            self.bytes.extend_from_slice(&entry.map_or([0; ENTRY_BYTES], encode::entry));
        }
        self.bytes.extend_from_slice(&dirent(&listed));
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        true
    }

    /// Whether nothing was added: to the kernel, the end of the directory.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether entries bring attributes: the kernel asked with FUSE_READDIRPLUS.
    #[must_use]
    pub const fn with_attributes(&self) -> bool {
        self.with_attributes
    }

    fn new(size: u32, with_attributes: bool) -> Self {
        let most = LISTING_BYTES.min(size as usize);
        Self { bytes: Vec::with_capacity(most.min(FIRST_BYTES)), most, with_attributes }
    }

    /// Whether the answer may have `end` bytes; then there is room for them.
    fn make_room(&mut self, end: usize) -> bool {
        if end > self.most {
            return false;
        }
        if end > self.bytes.capacity() {
            let room = self.most.min(end.saturating_mul(2));
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        true
    }
}

impl Encode for Listing {
    fn with_bytes(&self, send: &mut dyn FnMut(&[u8])) {
        send(&self.bytes);
    }
}

/// `fuse_dirent` without its name, which has at most [`NAME_BYTES`].
fn dirent(listed: &Listed<'_>) -> [u8; DIRENT_BYTES] {
    *Layout::new()
        .u64(listed.ino)
        .u64(listed.offset)
        .u32(listed.name.len() as u32)
        .u32(listed.file_type.in_listing())
        .done()
}
