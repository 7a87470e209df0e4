//! A content file of the primary, whose blocks are compared with those of the mirror, or sent.

use std::ops::Range;

use pelago_data::{ContentKey, ContentPiece, read_piece};
use pelago_store::content::{ContentFile, FileAccess};
use pelago_store::report::content_failed;
use pelago_wire::mirror::{ComparedBlocks, GroupPart};
use pelago_wire::{Whence, limits};

use super::Mirror;
use super::group::{GroupSender, Question, SendError};
use crate::digests::{Digest, block_range, of_content};

/// Blocks of a content file in one question.
pub(super) const ASKED_BLOCKS: u64 = 16;

/// An open content file.
pub(super) struct KnownFile {
    key: ContentKey,
    file: ContentFile,
    /// Number of blocks when it was opened.
    blocks: u64,
}

impl KnownFile {
    /// Opens a content file; `None` if it was removed.
    pub(super) fn of(mirror: &Mirror, key: ContentKey) -> Result<Option<Self>, SendError> {
        let opened = mirror.parts.content.open_file(key.0, key.1, FileAccess::Read);
        let Some(file) = opened.map_err(|error| content_failed(&error))? else { return Ok(None) };
        let blocks = size_of(&file)?.div_ceil(limits::COMPARED_BLOCK_BYTES as u64);
        Ok(Some(Self { key, file, blocks }))
    }

    /// Returns the number of blocks when it was opened.
    pub(super) const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the size now.
    pub(super) fn size(&self) -> Result<u64, SendError> {
        size_of(&self.file)
    }

    /// Returns the first block from `first` on that has data, or is cut by the end of the file.
    pub(super) fn hole_from(&self, first: u64, size: u64) -> u64 {
        let start = block_range(first, size).start;
        // A file system that cannot tell has data everywhere.
        let data = self.file.seek(start, Whence::Data).unwrap_or(Some(start));
        let block_bytes = limits::COMPARED_BLOCK_BYTES as u64;
        match data {
            Some(data) => (data.min(size) / block_bytes).clamp(first, self.blocks),
            None => self.blocks,
        }
    }

    /// Returns the question which of these blocks are others at the mirror.
    pub(super) fn question(&self, blocks: Range<u64>) -> Result<Question, SendError> {
        let size = self.size()?;
        let first = blocks.start;
        let hash = |block| of_content(&self.file, block_range(block, size));
        let hashes: Result<Vec<Digest>, _> = blocks.map(hash).collect();
        let hashes = hashes.map_err(|error| content_failed(&error))?;
        let count = hashes.len();
        let (ino, generation) = self.key;
        let part = GroupPart::Blocks(ComparedBlocks { ino, generation, first, hashes });
        Ok(Question { part, count })
    }

    /// Begins the parts of the file in a group. Returns its size.
    pub(super) fn begin(&self, group: &mut GroupSender<'_>) -> Result<u64, SendError> {
        let stat = self.file.stat().map_err(|error| content_failed(&error))?;
        let (ino, generation) = self.key;
        let size = stat.size;
        group.part(&GroupPart::Content { ino, generation, size, mtime: stat.mtime })?;
        Ok(size)
    }

    /// Sends the bytes and holes of a range.
    pub(super) fn send_range(
        &self,
        group: &mut GroupSender<'_>,
        range: Range<u64>,
    ) -> Result<(), SendError> {
        let mut at = range.start;
        while at < range.end {
            let piece = read_piece(&self.file, at..range.end);
            let piece = piece.map_err(|error| content_failed(&error))?;
            at = piece.range().end;
            send_piece(group, piece)?;
        }
        Ok(())
    }

    /// Sends the whole file as it is now.
    pub(super) fn send(&self, group: &mut GroupSender<'_>) -> Result<(), SendError> {
        let size = self.begin(group)?;
        self.send_range(group, 0..size)
    }
}

/// Sends a piece of the content file whose parts have begun.
pub(super) fn send_piece(
    group: &mut GroupSender<'_>,
    piece: ContentPiece,
) -> Result<(), SendError> {
    group.part(&match piece {
        ContentPiece::Bytes { offset, bytes } => GroupPart::Bytes { offset, bytes },
        ContentPiece::Hole { offset, length } => GroupPart::Hole { offset, length },
    })
}

fn size_of(file: &ContentFile) -> Result<u64, SendError> {
    Ok(file.stat().map_err(|error| content_failed(&error))?.size)
}
