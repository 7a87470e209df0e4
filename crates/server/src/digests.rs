//! The hashes by which a primary and its mirror find what differs: of ranges of rows, and of blocks
//! of content files.

use std::ops::Range;

use pelago_data::{ContentKey, ContentPiece, read_piece};
use pelago_store::content::{self, ContentFile};
use pelago_store::key::Key;
use pelago_store::rows::{NameRow, Rnode, Row as _};
use pelago_wire::limits::COMPARED_BLOCK_BYTES;

/// The hash of a range of rows or of a block.
pub(crate) type Digest = [u8; 32];

/// The hash of rows, which are added in the order of their keys.
#[derive(Default)]
pub(crate) struct RowDigest(blake3::Hasher);

impl RowDigest {
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        for bytes in [key, value] {
            // Neither is longer than the table takes.
            self.0.update(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
            self.0.update(bytes);
        }
    }

    pub(crate) fn value(&self) -> Digest {
        self.0.finalize().into()
    }
}

/// Returns the range of a block in a file of this size; empty if it is beyond the end.
pub(crate) fn block_range(block: u64, size: u64) -> Range<u64> {
    let bytes = COMPARED_BLOCK_BYTES as u64;
    let start = block.saturating_mul(bytes).min(size);
    start..start.saturating_add(bytes).min(size)
}

/// Returns the hash of a range of a content file. Holes count as zeros, and are not read.
///
/// # Errors
/// If a system call fails.
pub(crate) fn of_content(file: &ContentFile, range: Range<u64>) -> Result<Digest, content::Error> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut hasher = blake3::Hasher::new();
    let mut at = range.start;
    while at < range.end {
        let piece = read_piece(file, at..range.end)?;
        at = piece.range().end;
        match piece {
            ContentPiece::Bytes { bytes, .. } => drop(hasher.update(&bytes)),
            ContentPiece::Hole { length, .. } => {
                let mut left = length;
                while left > 0 {
                    let part = left.min(ZEROS.len() as u64);
                    hasher.update(&ZEROS[..part as usize]);
                    left -= part;
                }
            }
        }
    }
    Ok(hasher.finalize().into())
}

/// Returns the content file of the file whose rnode is in this row.
pub(crate) fn content_of(row_key: &[u8], value: &[u8]) -> Option<ContentKey> {
    let rnode = match Key::parse(row_key)? {
        Key::Name { .. } => match NameRow::decode(value).ok()?.1 {
            NameRow::Rnode(rnode) => rnode,
            NameRow::Link { .. } => return None,
        },
        Key::Inode { .. } => Rnode::decode(value).ok()?.1,
        _ => return None,
    };
    rnode.generation.filter(|_| rnode.flags.has_content).map(|generation| (rnode.ino, generation))
}
