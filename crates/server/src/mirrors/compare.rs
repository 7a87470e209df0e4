//! The answers of a mirror to the questions of its primary: what differs here.

use std::ops::ControlFlow;

use pelago_store::content::FileAccess;
use pelago_store::key;
use pelago_wire::mirror::{ComparedBlocks, ComparedRange};
use pelago_wire::{Generation, InodeId};

use super::error::MirrorError;
use super::image::Image;
use crate::digests::{RowDigest, block_range, of_content};

/// Returns for each range whether its rows are others here.
pub(super) fn ranges(image: &Image, ranges: &[ComparedRange]) -> Result<Vec<bool>, MirrorError> {
    let differs = |range: &ComparedRange| {
        let mut hash = RowDigest::default();
        image.scan(&range.from, &range.until, &mut |row_key, value| {
            if key::is_mirrored(row_key) {
                hash.add(row_key, value);
            }
            ControlFlow::Continue(())
        })?;
        Ok(hash.value() != range.hash)
    };
    ranges.iter().map(differs).collect()
}

/// Returns for each content file whether it is missing here.
pub(super) fn contents(
    image: &Image,
    contents: &[(InodeId, Generation)],
) -> Result<Vec<bool>, MirrorError> {
    let is_missing = |&(ino, generation): &(InodeId, Generation)| {
        Ok(image.content.open_file(ino, generation, FileAccess::Read)?.is_none())
    };
    contents.iter().map(is_missing).collect()
}

/// Returns for each block of a content file whether it is another one here.
pub(super) fn blocks(image: &Image, blocks: &ComparedBlocks) -> Result<Vec<bool>, MirrorError> {
    let ComparedBlocks { ino, generation, first, hashes } = blocks;
    let Some(file) = image.content.open_file(*ino, *generation, FileAccess::Read)? else {
        return Ok(vec![true; hashes.len()]);
    };
    let size = file.stat()?.size;
    let mut differ = Vec::new();
    for (block, hash) in (*first..).zip(hashes) {
        let own = of_content(&file, block_range(block, size))?;
        differ.push(own != *hash);
    }
    Ok(differ)
}
