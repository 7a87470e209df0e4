//! The body of an answer with blocks: they are written as they come, and verified by extents.

use pelago_wire::Code;
use pelago_wire::blocks::{BlockEvent, BlockReader, EXTENT_BLOCKS, ExtentHash, Extents};

use crate::fetch::connect::Incomplete;
use crate::fetch::error::FetchError;
use crate::fetch::event::FetchEvent;
use crate::fetch::lie::Lie;
use crate::fetch::received::Received;
use crate::fetch::state::Record;
use crate::fetch::workspace::Workspace;

/// Extents of one body that may fail their hash.
const MISMATCHES: usize = 64;

/// How a body has ended. What came before its end is written.
#[derive(Debug)]
pub(super) enum BodyEnd {
    /// Everything was sent, and the server may know the root.
    Whole(Option<ExtentHash>),
    /// The file was changed, and the bytes of this version are gone.
    Changed,
    /// The connection has ended, or the server cannot go on: it may later.
    Cut(String),
    /// The server sends what cannot be.
    Wrong(FetchError),
}

/// Blocks that are being received.
pub(super) struct BlocksDownload<'a> {
    pub(super) work: &'a mut Workspace,
    pub(super) received: Received,
    pub(super) observe: &'a mut dyn FnMut(FetchEvent),
    /// Bytes of blocks that came.
    pub(super) gained: u64,
    /// Extents that did not match and are to come again.
    pub(super) mismatched: Vec<u64>,
    /// The first extent that the server cannot read, with its reason, and how many there are.
    pub(super) unreadable: Option<(u64, Option<Code>)>,
    pub(super) unreadable_count: usize,
    /// Memory for an extent.
    pub(super) buffer: Vec<u8>,
}

/// What a body says first.
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
    /// Receives what follows the head.
    ///
    /// # Errors
    /// Returns the error of the disk, and that of an extent that has not matched for the second
    /// time.
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
                    Err(FetchError::Lie(lie)) => return Ok(BodyEnd::Wrong(lie.into())),
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
                self.unreadable.get_or_insert((extent, code));
                self.unreadable_count += 1;
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
                    return Err(Lie::LeftOut { offset }.into());
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
