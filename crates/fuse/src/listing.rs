//! Replies to FUSE_READDIR and FUSE_READDIRPLUS.

use crate::attr::FileType;
use crate::bytes::Layout;
use crate::encode::{self, ENTRY_BYTES};
use crate::reply::{Encode, Entry};

/// Limit of the bytes of one reply, whatever size was requested.
pub const LISTING_BYTES: usize = 1 << 20;
/// Limit of the bytes of a name, which is the kernel's: it refuses the whole reply for a longer
/// one.
pub const NAME_BYTES: usize = 255;

/// Initial capacity of a reply in bytes.
const FIRST_BYTES: usize = 16 << 10;
/// Bytes of `fuse_dirent` before the name.
const DIRENT_BYTES: usize = 24;

/// Directory entries, as many as fit into the size that the kernel requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    bytes: Vec<u8>,
    most: usize,
    with_attributes: bool,
}

/// One directory entry (`fuse_dirent`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dirent<'a> {
    /// `d_ino` for programs; zero hides the name from them.
    pub ino: u64,
    /// The offset at which a listing continues after this name (`d_off`).
    pub offset: u64,
    /// Type of the file (`d_type`).
    pub file_type: FileType,
    /// 1 to [`NAME_BYTES`] bytes without NUL.
    pub name: &'a [u8],
}

impl Listing {
    /// Returns an empty reply to FUSE_READDIR of at most `size` bytes.
    #[must_use]
    pub fn of_names(size: u32) -> Self {
        Self::new(size, false)
    }

    /// Returns an empty reply to FUSE_READDIRPLUS of at most `size` bytes.
    #[must_use]
    pub fn of_entries(size: u32) -> Self {
        Self::new(size, true)
    }

    /// Adds a name and returns whether it fitted; if not, nothing was added.
    ///
    /// A reply to FUSE_READDIRPLUS also has `entry`, for which the kernel counts one lookup. `None`
    /// leaves the attributes out and counts no lookup, as `.` and `..` require.
    ///
    /// A name of no bytes or more than [`NAME_BYTES`] is left out as if it had fitted.
    #[must_use]
    pub fn add(&mut self, listed: Dirent<'_>, entry: Option<&Entry>) -> bool {
        let name = listed.name;
        if name.is_empty() || name.len() > NAME_BYTES {
            return true;
        }
        let end = self.end_with(name);
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

    /// Returns whether [`Listing::add`] will add an entry of this name.
    #[must_use]
    pub const fn has_room_for(&self, name: &[u8]) -> bool {
        self.end_with(name) <= self.most
    }

    /// Returns whether the reply is empty, which to the kernel is the end of the directory.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns whether entries have attributes (FUSE_READDIRPLUS).
    #[must_use]
    pub const fn with_attributes(&self) -> bool {
        self.with_attributes
    }

    /// Returns the bytes of the reply with one more entry of this name.
    const fn end_with(&self, name: &[u8]) -> usize {
        let before = if self.with_attributes { ENTRY_BYTES } else { 0 };
        self.bytes.len() + (before + DIRENT_BYTES + name.len()).next_multiple_of(8)
    }

    fn new(size: u32, with_attributes: bool) -> Self {
        let most = LISTING_BYTES.min(size as usize);
        Self { bytes: Vec::with_capacity(most.min(FIRST_BYTES)), most, with_attributes }
    }

    /// Reserves room up to `end` bytes, and returns whether the reply may have as many.
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

/// Encodes `fuse_dirent` without its name, which has at most [`NAME_BYTES`].
fn dirent(listed: &Dirent<'_>) -> [u8; DIRENT_BYTES] {
    *Layout::new()
        .u64(listed.ino)
        .u64(listed.offset)
        .u32(listed.name.len() as u32)
        .u32(listed.file_type.in_listing())
        .done()
}
