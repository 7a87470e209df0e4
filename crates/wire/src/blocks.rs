//! The encoding of a file whose blocks travel in any order over HTTP, as `docs/protocol.md`
//! specifies it in "Blocks over HTTP".
//!
//! [`BlocksHead`] and [`BlockFrame`] encode and [`BlockReader`] decodes the body of an answer;
//! [`HaveMap`] names the blocks of the file that a client has. Nothing here does I/O or knows a
//! hash function.

use std::ops::Range;

use crate::limits::{BLOCK_BYTES, BLOCKS_FILE_BYTES, EXTENT_BYTES};

pub use decode::{BlockEvent, BlockReader, BlocksError};
pub use have::{BlockRun, HaveError, HaveMap};

mod decode;
mod have;

/// The media type of the body with the blocks.
pub const BLOCKS_TYPE: &str = "application/vnd.pelago.blocks";
/// The media type of a have-map.
pub const HAVE_TYPE: &str = "application/vnd.pelago.have";
/// The version of both.
pub const VERSION: u16 = 1;
/// The context from which the root of a file derives its key.
pub const ROOT_CONTEXT: &str = "pelago 1 root of a file's extents";
/// Bytes of the head of a body.
pub const HEAD_BYTES: usize = 24;
/// Bytes in front of the payload of a frame.
pub const FRAME_HEAD_BYTES: usize = 16;
/// Bytes of the hash of an extent, and of a root.
pub const HASH_BYTES: usize = 32;
/// Blocks of a whole extent.
pub const EXTENT_BLOCKS: u64 = (EXTENT_BYTES / BLOCK_BYTES) as u64;

const MAGIC: [u8; 8] = *b"PELBLKS\n";

/// The hash of an extent, or a root.
pub type ExtentHash = [u8; HASH_BYTES];

/// The size of a file, and how it is divided into blocks and extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extents {
    size: u64,
}

/// The head of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlocksHead {
    /// The division of the file.
    pub extents: Extents,
}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal, $most:expr;)+) => {
        /// The kind of a frame of a body. Numbers are never reused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u16)]
        pub enum BlockFrameKind {
            $($(#[doc = $doc])+ $name = $number,)+
        }

        impl BlockFrameKind {
            /// Every kind, in the order of the numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the kind with this number.
            #[must_use]
            pub const fn from_number(number: u16) -> Option<Self> {
                match number { $($number => Some(Self::$name),)+ _ => None }
            }

            /// Returns the most bytes of the payload.
            #[must_use]
            pub const fn payload_limit(self) -> usize {
                match self { $(Self::$name => $most,)+ }
            }
        }
    };
}

kinds! {
    /// The bytes of a block.
    Block = 1, BLOCK_BYTES;
    /// The hash of an extent.
    Hash = 2, HASH_BYTES;
    /// The server cannot read an extent.
    Unreadable = 3, 2;
    /// The file was changed, and the bytes of this version are gone.
    Changed = 4, 0;
    /// The server cannot continue.
    Failed = 5, 2;
    /// Everything was sent.
    End = 6, HASH_BYTES;
}

/// The head of a frame, which precedes its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockFrame {
    /// The offset in the file at which the block or extent begins; 0 for other kinds.
    pub offset: u64,
    /// Bytes of the payload, which the sender writes after the head.
    pub length: u32,
    /// The kind of the frame.
    pub kind: BlockFrameKind,
}

impl Extents {
    /// Returns the division of a file of this size, or `None` if it is too large to be sent so.
    #[must_use]
    pub const fn of(size: u64) -> Option<Self> {
        if size > BLOCKS_FILE_BYTES { None } else { Some(Self { size }) }
    }

    /// Returns the size of the file in bytes.
    #[must_use]
    pub const fn size(self) -> u64 {
        self.size
    }

    /// Returns how many extents there are.
    #[must_use]
    pub const fn count(self) -> u64 {
        self.size.div_ceil(EXTENT_BYTES as u64)
    }

    /// Returns how many blocks there are.
    #[must_use]
    pub const fn blocks(self) -> u64 {
        self.size.div_ceil(BLOCK_BYTES as u64)
    }

    /// Returns the bytes of a block; they are empty beyond the end.
    #[must_use]
    pub fn block(self, number: u64) -> Range<u64> {
        self.piece(number, BLOCK_BYTES as u64)
    }

    /// Returns the bytes of an extent; they are empty beyond the end.
    #[must_use]
    pub fn extent(self, number: u64) -> Range<u64> {
        self.piece(number, EXTENT_BYTES as u64)
    }

    /// Returns the numbers of the blocks of an extent.
    #[must_use]
    pub fn blocks_of(self, extent: u64) -> Range<u64> {
        let first = extent.saturating_mul(EXTENT_BLOCKS).min(self.blocks());
        first..first.saturating_add(EXTENT_BLOCKS).min(self.blocks())
    }

    fn piece(self, number: u64, bytes: u64) -> Range<u64> {
        let start = number.saturating_mul(bytes).min(self.size);
        start..start.saturating_add(bytes).min(self.size)
    }
}

impl BlocksHead {
    /// Encodes the head.
    #[must_use]
    pub fn encode(self) -> [u8; HEAD_BYTES] {
        let mut out = [0; HEAD_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&VERSION.to_le_bytes());
        out[16..].copy_from_slice(&self.extents.size.to_le_bytes());
        out
    }
}

impl BlockFrame {
    /// Returns the frame of a block.
    #[must_use]
    pub fn block(extents: Extents, number: u64) -> Self {
        let bytes = extents.block(number);
        // At most BLOCK_BYTES.
        Self::new(BlockFrameKind::Block, bytes.start, (bytes.end - bytes.start) as u32)
    }

    /// Returns the frame of the hash of an extent.
    #[must_use]
    pub fn hash(extents: Extents, extent: u64) -> Self {
        Self::new(BlockFrameKind::Hash, extents.extent(extent).start, HASH_BYTES as u32)
    }

    /// Returns the frame that says that an extent cannot be read. Its payload is an error.
    #[must_use]
    pub fn unreadable(extents: Extents, extent: u64) -> Self {
        Self::new(BlockFrameKind::Unreadable, extents.extent(extent).start, 2)
    }

    /// Returns the last frame: with the root as its payload, or without one.
    #[must_use]
    pub const fn end(has_root: bool) -> Self {
        Self::new(BlockFrameKind::End, 0, if has_root { HASH_BYTES as u32 } else { 0 })
    }

    /// Returns the last frame of a file that was changed.
    #[must_use]
    pub const fn changed() -> Self {
        Self::new(BlockFrameKind::Changed, 0, 0)
    }

    /// Returns the last frame of a server that cannot continue. Its payload is an error.
    #[must_use]
    pub const fn failed() -> Self {
        Self::new(BlockFrameKind::Failed, 0, 2)
    }

    /// Encodes the head.
    #[must_use]
    pub fn encode(self) -> [u8; FRAME_HEAD_BYTES] {
        let mut out = [0; FRAME_HEAD_BYTES];
        out[..8].copy_from_slice(&self.offset.to_le_bytes());
        out[8..12].copy_from_slice(&self.length.to_le_bytes());
        out[12..14].copy_from_slice(&(self.kind as u16).to_le_bytes());
        out
    }

    const fn new(kind: BlockFrameKind, offset: u64, length: u32) -> Self {
        Self { offset, length, kind }
    }
}

/// Returns the little-endian number in at most eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_block_and_the_last_extent_are_what_is_left() {
        let extents = Extents::of(EXTENT_BYTES as u64 + BLOCK_BYTES as u64 + 5).unwrap();
        assert_eq!((extents.count(), extents.blocks()), (2, 18));
        assert_eq!(extents.block(17), 1_114_112..1_114_117);
        assert_eq!(extents.block(18), 1_114_117..1_114_117);
        assert_eq!(extents.extent(1), 1_048_576..1_114_117);
        assert_eq!((extents.blocks_of(0), extents.blocks_of(1)), (0..16, 16..18));
        assert_eq!(extents.blocks_of(u64::MAX), 18..18);
        let empty = Extents::of(0).unwrap();
        assert_eq!((empty.count(), empty.blocks(), empty.block(0)), (0, 0, 0..0));
        assert!(Extents::of(BLOCKS_FILE_BYTES).is_some());
        assert_eq!(Extents::of(BLOCKS_FILE_BYTES + 1), None);
    }
}
