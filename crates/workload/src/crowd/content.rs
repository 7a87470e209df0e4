//! The bytes that a client gets, in both forms: each is counted once, and hashed in a sample.

use std::collections::BTreeMap;

use pelago_wire::blocks::{BlockEvent, BlockReader, EXTENT_BLOCKS, ExtentHash, Extents};
use pelago_wire::limits::BLOCK_BYTES;

use super::failure::DownloadFailure;
use super::root::{RootHasher, root};

/// The content of a download.
#[derive(Debug)]
pub(super) enum Content {
    /// Bytes in their order.
    Plain(PlainContent),
    /// Blocks in any order.
    Blocks(Box<BlocksContent>),
}

/// Bytes in their order.
#[derive(Debug)]
pub(super) struct PlainContent {
    pub(super) got: u64,
    size: Option<u64>,
    hasher: Option<Box<RootHasher>>,
}

/// Blocks in any order.
#[derive(Debug, Default)]
pub(super) struct BlocksContent {
    reader: BlockReader,
    /// True for each block that has come.
    have: Vec<bool>,
    /// Bytes of these blocks.
    got: u64,
    sample: Option<Sample>,
    root: Option<ExtentHash>,
}

/// The memory of a client that compares hashes.
#[derive(Debug, Default)]
struct Sample {
    /// Extents whose hash has not come.
    extents: BTreeMap<u64, Vec<u8>>,
    hashes: BTreeMap<u64, ExtentHash>,
}

impl Content {
    pub(super) fn plain(size: Option<u64>, is_sample: bool) -> Self {
        let hasher = is_sample.then(Box::default);
        Self::Plain(PlainContent { got: 0, size, hasher })
    }

    pub(super) fn blocks(is_sample: bool) -> Self {
        let sample = is_sample.then(Sample::default);
        Self::Blocks(Box::new(BlocksContent { sample, ..BlocksContent::default() }))
    }

    /// Returns whether only the number of bytes matters.
    pub(super) const fn is_counted_only(&self) -> bool {
        matches!(self, Self::Plain(PlainContent { hasher: None, .. }))
    }

    /// Returns the bytes of the file that came.
    pub(super) const fn got(&self) -> u64 {
        match self {
            Self::Plain(plain) => plain.got,
            Self::Blocks(blocks) => blocks.got,
        }
    }

    /// Takes the next bytes of the body.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), DownloadFailure> {
        match self {
            Self::Plain(plain) => {
                plain.got += bytes.len() as u64;
                if let Some(hasher) = &mut plain.hasher {
                    hasher.update(bytes);
                }
                Ok(())
            }
            Self::Blocks(blocks) => blocks.take(bytes),
        }
    }

    /// Counts bytes without comparing them.
    pub(super) const fn count(&mut self, bytes: u64) {
        if let Self::Plain(plain) = self {
            plain.got += bytes;
        }
    }

    /// Checks that the body was whole; returns the root if this is a sample.
    pub(super) fn finish(self) -> Result<Option<ExtentHash>, DownloadFailure> {
        match self {
            Self::Plain(PlainContent { got, size, hasher }) => match size {
                Some(size) if size != got => Err(DownloadFailure::Size { got, size }),
                _ => Ok(hasher.and_then(|hasher| hasher.finish())),
            },
            Self::Blocks(blocks) => {
                blocks.reader.finish()?;
                Ok(blocks.root)
            }
        }
    }
}

impl BlocksContent {
    fn take(&mut self, mut bytes: &[u8]) -> Result<(), DownloadFailure> {
        let Self { reader, have, got, sample, root: own_root } = self;
        while let Some(event) = reader.next(&mut bytes)? {
            match event {
                BlockEvent::Head(file) => {
                    // A limit of the decoder bounds the size; a test has small files.
                    have.resize(usize::try_from(file.blocks()).unwrap_or(0), false);
                }
                BlockEvent::Block { block, bytes } => {
                    let at = usize::try_from(block).ok().and_then(|at| have.get_mut(at));
                    match at {
                        Some(have) if !*have => *have = true,
                        _ => return Err(DownloadFailure::Repeated(block)),
                    }
                    *got += bytes.len() as u64;
                    if let Some(sample) = sample {
                        sample.put(block, bytes);
                    }
                }
                BlockEvent::Hash { extent, hash } => {
                    if let Some(sample) = sample {
                        sample.check(extent, hash)?;
                    }
                }
                BlockEvent::Unreadable { extent, .. } => {
                    return Err(DownloadFailure::Hash(extent));
                }
                BlockEvent::Changed => return Err(DownloadFailure::GaveUp("the file changed")),
                BlockEvent::Failed(_) => return Err(DownloadFailure::GaveUp("it failed")),
                BlockEvent::End { root } => {
                    let lacking = have.iter().filter(|have| !**have).count();
                    if lacking > 0 {
                        return Err(DownloadFailure::Lacking(lacking as u64));
                    }
                    if let Some(sample) = sample {
                        *own_root = Some(sample.root(*got, root)?);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Sample {
    fn put(&mut self, block: u64, bytes: &[u8]) {
        let number = block / EXTENT_BLOCKS;
        let within = (block % EXTENT_BLOCKS) as usize;
        let start = within * BLOCK_BYTES;
        let extent = self.extents.entry(number).or_default();
        let end = start + bytes.len();
        if extent.len() < end {
            extent.resize(end, 0);
        }
        extent[start..end].copy_from_slice(bytes);
    }

    fn check(&mut self, number: u64, hash: ExtentHash) -> Result<(), DownloadFailure> {
        let extent = self.extents.remove(&number).ok_or(DownloadFailure::Hash(number))?;
        if *blake3::hash(&extent).as_bytes() != hash {
            return Err(DownloadFailure::Hash(number));
        }
        self.hashes.insert(number, hash);
        Ok(())
    }

    /// Returns the root, and compares it with that of the server if it knows one.
    fn root(
        &self,
        size: u64,
        of_server: Option<ExtentHash>,
    ) -> Result<ExtentHash, DownloadFailure> {
        if let Some(number) = self.extents.keys().next() {
            return Err(DownloadFailure::Hash(*number));
        }
        let hashes: Vec<ExtentHash> = self.hashes.values().copied().collect();
        let file = Extents::of(size).ok_or(DownloadFailure::Root)?;
        let own = root(file, &hashes);
        if of_server.is_some_and(|root| root != own) {
            return Err(DownloadFailure::Root);
        }
        Ok(own)
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::blocks::{BlockFrame, BlocksHead};
    use pelago_wire::limits::EXTENT_BYTES;

    use super::*;

    /// A body with the blocks of a file, the last extent first.
    fn body(file: &[u8], root: ExtentHash) -> Vec<u8> {
        let extents = Extents::of(file.len() as u64).unwrap();
        let mut body = BlocksHead { extents }.encode().to_vec();
        let part = |range: std::ops::Range<u64>| &file[range.start as usize..range.end as usize];
        for extent in (0..extents.count()).rev() {
            for block in extents.blocks_of(extent) {
                body.extend(BlockFrame::block(extents, block).encode());
                body.extend(part(extents.block(block)));
            }
            body.extend(BlockFrame::hash(extents, extent).encode());
            body.extend(blake3::hash(part(extents.extent(extent))).as_bytes());
        }
        body.extend(BlockFrame::end(true).encode());
        body.extend(root);
        body
    }

    fn outcome(mut content: Content, body: &[u8]) -> Result<Option<ExtentHash>, DownloadFailure> {
        for part in body.chunks(1000) {
            content.take(part)?;
        }
        content.finish()
    }

    #[test]
    fn both_forms_of_a_file_have_the_same_root() {
        let file = pelago_random::bytes_of(1, 2 * EXTENT_BYTES + 70_000);
        let plain = Content::plain(Some(file.len() as u64), true);
        let root = outcome(plain, &file).unwrap().unwrap();
        let body = body(&file, root);
        assert_eq!(outcome(Content::blocks(true), &body).unwrap(), Some(root));
        assert_eq!(outcome(Content::blocks(false), &body).unwrap(), None);
    }

    #[test]
    fn what_is_wrong_with_a_body_is_found() {
        let file = pelago_random::bytes_of(1, 70_000);
        let root = outcome(Content::plain(None, true), &file).unwrap().unwrap();
        let whole = body(&file, root);
        let cut = &whole[..whole.len() - 1];
        assert!(matches!(outcome(Content::blocks(false), cut), Err(DownloadFailure::Blocks(_))));
        let mut wrong = whole.clone();
        wrong[100] ^= 1;
        assert!(matches!(outcome(Content::blocks(true), &wrong), Err(DownloadFailure::Hash(0))));
        let other = body(&file, [7; 32]);
        assert!(matches!(outcome(Content::blocks(true), &other), Err(DownloadFailure::Root)));
        let first = &whole[24..24 + 16 + 65_536];
        let twice = [&whole[..24], first, first].concat();
        let twice = outcome(Content::blocks(false), &twice);
        assert!(matches!(twice, Err(DownloadFailure::Repeated(0))));
        let short = outcome(Content::plain(Some(70_001), false), &file);
        assert!(matches!(short, Err(DownloadFailure::Size { got: 70_000, size: 70_001 })));
    }
}
