//! The incremental decoder of a body with blocks.

use super::{
    BlockFrame, BlockFrameKind, ExtentHash, Extents, FRAME_HEAD_BYTES, HASH_BYTES, HEAD_BYTES,
    MAGIC, VERSION, number,
};
use crate::error::Code;
use crate::limits::{BLOCK_BYTES, BLOCKS_FILE_BYTES, EXTENT_BYTES};

/// The fault of the bytes of a body. The bytes after them have no meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlocksError {
    /// The first bytes are those of something else.
    #[error("the body does not begin as one with blocks")]
    NotBlocks,
    /// It is one of another version.
    #[error("the blocks have version {0}, this program reads version {VERSION}")]
    Version(u16),
    /// Reserved bytes are not zero.
    #[error("reserved bytes of the blocks are not zero")]
    Reserved,
    /// The file is larger than one that is sent so.
    #[error("the file has {0} bytes, the limit is {BLOCKS_FILE_BYTES}")]
    Size(u64),
    /// No frame has this kind.
    #[error("a frame has the unknown kind {0}")]
    Kind(u16),
    /// The payload is not as long as that of the kind at this offset.
    #[error("a {kind:?} frame at {offset} has {length} bytes")]
    Length {
        /// The kind of the frame.
        kind: BlockFrameKind,
        /// The offset that it names.
        offset: u64,
        /// The length that it claims.
        length: u32,
    },
    /// No block or extent begins there.
    #[error("a {kind:?} frame has the offset {offset} in a file of {size} bytes")]
    Offset {
        /// The kind of the frame.
        kind: BlockFrameKind,
        /// The offset that it names.
        offset: u64,
        /// The bytes of the file.
        size: u64,
    },
    /// Bytes follow the last frame.
    #[error("bytes follow the last frame")]
    Trailing,
    /// The body ends before its last frame.
    #[error("the body ends before its last frame")]
    Truncated,
}

/// The next part of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockEvent<'a> {
    /// The head: how the file is divided.
    Head(Extents),
    /// The bytes of a block.
    Block {
        /// The number of the block.
        block: u64,
        /// All its bytes.
        bytes: &'a [u8],
    },
    /// The hash of an extent.
    Hash {
        /// The number of the extent.
        extent: u64,
        /// Its hash.
        hash: ExtentHash,
    },
    /// The server cannot read an extent.
    Unreadable {
        /// The number of the extent.
        extent: u64,
        /// Why; `None` if only a newer program knows.
        code: Option<Code>,
    },
    /// The file was changed, and the bytes of this version are gone. Nothing follows.
    Changed,
    /// The server cannot continue, for this reason if it is known. Nothing follows.
    Failed(Option<Code>),
    /// Everything was sent. Nothing follows.
    End {
        /// The root of the file, if the server knows it.
        root: Option<ExtentHash>,
    },
}

/// A body that is being decoded. It has at most one frame in memory.
#[derive(Debug, Default)]
pub struct BlockReader {
    file: Option<Extents>,
    /// The frame whose payload is being gathered.
    frame: Option<BlockFrame>,
    /// Bytes of a head, or of a payload, that are not complete.
    gathered: Vec<u8>,
    /// The gathered bytes were returned by an event, and are dropped before the next ones.
    is_told: bool,
    has_ended: bool,
}

impl BlockReader {
    /// Takes bytes off the front of `from`, and returns the next event; `None` if it needs more.
    ///
    /// # Errors
    /// Returns [`BlocksError`] if the bytes are no such body. The reader is of no use then.
    pub fn next(&mut self, from: &mut &[u8]) -> Result<Option<BlockEvent<'_>>, BlocksError> {
        if self.is_told {
            self.gathered.clear();
            self.is_told = false;
        }
        if self.has_ended {
            return if from.is_empty() { Ok(None) } else { Err(BlocksError::Trailing) };
        }
        let Some(file) = self.file else {
            if !self.gather(from, HEAD_BYTES) {
                return Ok(None);
            }
            let file = head(&self.gathered)?;
            self.file = Some(file);
            self.is_told = true;
            return Ok(Some(BlockEvent::Head(file)));
        };
        let frame = match self.frame {
            Some(frame) => frame,
            None => {
                if !self.gather(from, FRAME_HEAD_BYTES) {
                    return Ok(None);
                }
                let frame = frame(&self.gathered, file)?;
                self.gathered.clear();
                *self.frame.insert(frame)
            }
        };
        if !self.gather(from, frame.length as usize) {
            return Ok(None);
        }
        self.frame = None;
        self.is_told = true;
        use BlockFrameKind::{Changed, End, Failed};
        self.has_ended = matches!(frame.kind, Changed | Failed | End);
        Ok(Some(event(frame, &self.gathered)))
    }

    /// Checks that the body has ended with its last frame.
    ///
    /// # Errors
    /// Returns [`BlocksError::Truncated`] if it has not.
    pub const fn finish(&self) -> Result<(), BlocksError> {
        if self.has_ended { Ok(()) } else { Err(BlocksError::Truncated) }
    }

    /// Gathers bytes up to a number. Returns whether all are there.
    fn gather(&mut self, from: &mut &[u8], length: usize) -> bool {
        let lacking = length.saturating_sub(self.gathered.len());
        let (taken, rest) = from.split_at(lacking.min(from.len()));
        self.gathered.extend_from_slice(taken);
        *from = rest;
        self.gathered.len() == length
    }
}

fn head(bytes: &[u8]) -> Result<Extents, BlocksError> {
    if bytes[..8] != MAGIC {
        return Err(BlocksError::NotBlocks);
    }
    let version = number(&bytes[8..10]) as u16;
    if version != VERSION {
        return Err(BlocksError::Version(version));
    }
    if bytes[10..16] != [0; 6] {
        return Err(BlocksError::Reserved);
    }
    let size = number(&bytes[16..]);
    Extents::of(size).ok_or(BlocksError::Size(size))
}

/// Decodes the head of a frame, and checks it.
fn frame(bytes: &[u8], file: Extents) -> Result<BlockFrame, BlocksError> {
    let offset = number(&bytes[..8]);
    let length = number(&bytes[8..12]) as u32;
    let kind = number(&bytes[12..14]) as u16;
    let kind = BlockFrameKind::from_number(kind).ok_or(BlocksError::Kind(kind))?;
    if bytes[14..] != [0; 2] {
        return Err(BlocksError::Reserved);
    }
    let found = BlockFrame { offset, length, kind };
    let at_offset = match kind {
        BlockFrameKind::Block => BlockFrame::block(file, offset / BLOCK_BYTES as u64),
        BlockFrameKind::Hash => BlockFrame::hash(file, offset / EXTENT_BYTES as u64),
        BlockFrameKind::Unreadable => BlockFrame::unreadable(file, offset / EXTENT_BYTES as u64),
        BlockFrameKind::Changed => BlockFrame::changed(),
        BlockFrameKind::Failed => BlockFrame::failed(),
        BlockFrameKind::End => BlockFrame::end(length != 0),
    };
    let is_of_file =
        matches!(kind, BlockFrameKind::Block | BlockFrameKind::Hash | BlockFrameKind::Unreadable);
    if at_offset.offset != offset || is_of_file && offset >= file.size() {
        return Err(BlocksError::Offset { kind, offset, size: file.size() });
    }
    if at_offset.length != length {
        return Err(BlocksError::Length { kind, offset, length });
    }
    Ok(found)
}

/// Returns the event of a frame with its whole payload.
fn event(frame: BlockFrame, payload: &[u8]) -> BlockEvent<'_> {
    let code = || Code::from_number(number(payload) as u16);
    let extent = frame.offset / EXTENT_BYTES as u64;
    let hash = payload.first_chunk::<HASH_BYTES>().copied();
    match frame.kind {
        BlockFrameKind::Block => {
            BlockEvent::Block { block: frame.offset / BLOCK_BYTES as u64, bytes: payload }
        }
        BlockFrameKind::Hash => BlockEvent::Hash { extent, hash: hash.unwrap_or_default() },
        BlockFrameKind::Unreadable => BlockEvent::Unreadable { extent, code: code() },
        BlockFrameKind::Changed => BlockEvent::Changed,
        BlockFrameKind::Failed => BlockEvent::Failed(code()),
        BlockFrameKind::End => BlockEvent::End { root: hash },
    }
}
