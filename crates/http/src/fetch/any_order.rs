//! The body of a response with blocks: each is written when it arrives, and verified by extents.

use pelago_wire::Code;
use pelago_wire::blocks::{BlockEvent, BlockReader, EXTENT_BLOCKS, ExtentHash, Extents};

use crate::fetch::connect::Incomplete;
use crate::fetch::error::FetchError;
use crate::fetch::event::FetchEvent;
use crate::fetch::received::Received;
use crate::fetch::state::Record;
use crate::fetch::violation::ServerViolation;
use crate::fetch::workspace::Workspace;

/// The number of extents of one body that may not match their hash.
const MISMATCHES: usize = 64;

/// The end of a body. The blocks before it are written.
#[derive(Debug)]
pub(super) enum BodyEnd {
    /// Everything was sent; with the root, if the server knows it.
    Whole(Option<ExtentHash>),
    /// The file was changed, and the bytes of this version are gone.
    Changed,
    /// The connection has ended, or the server cannot go on now. A later request may succeed.
    Cut(String),
    /// The server breaks the protocol.
    Wrong(FetchError),
}

/// Blocks that are being received.
pub(super) struct BlocksDownload<'a> {
    pub(super) work: &'a mut Workspace,
    pub(super) received: Received,
    pub(super) observe: &'a mut dyn FnMut(FetchEvent),
    /// Bytes of the blocks that were received.
    pub(super) gained: u64,
    /// Extents that did not match their hash and are requested again.
    pub(super) mismatched: Vec<u64>,
    pub(super) unreadable: Option<UnreadableExtents>,
    /// Memory for an extent.
    pub(super) buffer: Vec<u8>,
}

/// The extents that the server cannot read.
pub(super) struct UnreadableExtents {
    /// The number of the first one.
    pub(super) first: u64,
    /// The reason for the first one; `None` if only a newer version knows it.
    pub(super) code: Option<Code>,
    pub(super) count: usize,
}

/// Reads the head of a body. Returns how the file is divided, and the bytes after the head.
pub(super) async fn read_head(
    answer: &mut Incomplete,
    reader: &mut BlockReader,
) -> Result<(Extents, bytes::Bytes), BodyEnd> {
    loop {
        let bytes = match answer.next().await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Err(BodyEnd::Cut("the answer was cut".to_owned())),
            Err(why) => return Err(BodyEnd::Cut(why)),
        };
        let mut rest = &bytes[..];
        match reader.next(&mut rest) {
            Ok(Some(BlockEvent::Head(file))) => {
                let used = bytes.len() - rest.len();
                return Ok((file, bytes.slice(used..)));
            }
            Ok(_) => {}
            Err(error) => return Err(BodyEnd::Wrong(error.into())),
        }
    }
}

impl BlocksDownload<'_> {
    /// Receives the rest of a body after its head.
    ///
    /// # Errors
    /// Returns the error of the disk, and [`FetchError::Mismatch`] if an extent does not match its
    /// hash a second time.
    pub(super) async fn receive(
        &mut self,
        answer: &mut Incomplete,
        reader: &mut BlockReader,
        first: bytes::Bytes,
    ) -> Result<BodyEnd, FetchError> {
        let mut bytes = first;
        loop {
            let mut rest = &bytes[..];
            loop {
                let event = match reader.next(&mut rest) {
                    Ok(Some(event)) => event,
                    Ok(None) => break,
                    Err(error) => return Ok(BodyEnd::Wrong(error.into())),
                };
                match self.take(event) {
                    Ok(None) => {}
                    Ok(Some(end)) => return Ok(end),
                    Err(FetchError::Violation(violation)) => {
                        return Ok(BodyEnd::Wrong(violation.into()));
                    }
                    Err(error) => return Err(error),
                }
            }
            bytes = match answer.next().await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return Ok(BodyEnd::Cut("the answer was cut".to_owned())),
                Err(why) => return Ok(BodyEnd::Cut(why)),
            };
        }
    }

    fn take(&mut self, event: BlockEvent<'_>) -> Result<Option<BodyEnd>, FetchError> {
        match event {
            BlockEvent::Head(_) => {}
            BlockEvent::Block { block, bytes } => self.block(block, bytes)?,
            BlockEvent::Hash { extent, hash } => self.hash(extent, hash)?,
            BlockEvent::Unreadable { extent, code } => {
                let first = UnreadableExtents { first: extent, code, count: 0 };
                self.unreadable.get_or_insert(first).count += 1;
                let offset = self.received.file().extent(extent).start;
                (self.observe)(FetchEvent::Unreadable { extent, offset });
            }
            BlockEvent::Changed => return Ok(Some(BodyEnd::Changed)),
            BlockEvent::Failed(code) => {
                let why = code.map_or("a reason that only a newer pelago knows", Code::says);
                return Ok(Some(BodyEnd::Cut(format!("the server cannot go on: {why}"))));
            }
            BlockEvent::End { root } => {
                if self.unreadable.is_none()
                    && let Some(extent) = self.received.left_out(&self.mismatched)
                {
                    let offset = self.received.file().extent(extent).start;
                    return Err(ServerViolation::LeftOut { offset }.into());
                }
                return Ok(Some(BodyEnd::Whole(root)));
            }
        }
        Ok(None)
    }

    fn block(&mut self, block: u64, bytes: &[u8]) -> Result<(), FetchError> {
        self.received.add(block)?;
        self.work.write(self.received.file().block(block).start, bytes)?;
        let extent = block / EXTENT_BLOCKS;
        let have = self.received.blocks_of(extent);
        self.work.record(extent, Record { have, hash: None })?;
        self.gained += bytes.len() as u64;
        (self.observe)(FetchEvent::Gained { have: self.received.bytes() });
        Ok(())
    }

    fn hash(&mut self, extent: u64, hash: ExtentHash) -> Result<(), FetchError> {
        self.received.check_hash(extent)?;
        let range = self.received.file().extent(extent);
        let offset = range.start;
        if self.work.hash_of(range, &mut self.buffer)? == hash {
            let have = self.received.blocks_of(extent);
            self.received.verify(extent);
            return self.work.record(extent, Record { have, hash: Some(hash) });
        }
        self.work.record(extent, Record::default())?;
        if self.received.mismatch(extent) {
            return Err(FetchError::Mismatch { extent, offset });
        }
        self.mismatched.push(extent);
        (self.observe)(FetchEvent::Mismatch { extent, offset });
        if self.mismatched.len() > MISMATCHES {
            return Err(FetchError::Mismatches { count: self.mismatched.len() });
        }
        Ok(())
    }
}
