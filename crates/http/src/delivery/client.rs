//! A client of a delivery, and the pieces that it receives.

use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use pelago_proto::deliver::{BlockSet, ClientId, DeliverError, Order};
use pelago_wire::Error;
use pelago_wire::blocks::{ExtentHash, Extents, HaveMap};

use super::driver::Delivery;
use super::source::ExtentSource;
use super::state::{End, Given, Joined};
use crate::pinned::PinnedFile;

/// A client. Its drop leaves the delivery.
pub(crate) struct Client {
    id: ClientId,
    tag: String,
    file: Extents,
    source: Arc<dyn ExtentSource>,
    delivery: Arc<Delivery>,
    is_in_order: bool,
}

/// The next part of a delivery to one client.
pub(crate) enum Piece {
    /// Bytes of one block, from an offset in the file. `ended` is the extent, if the client gets
    /// no further block of it and wants hashes.
    Block { offset: u64, bytes: Bytes, ended: Option<EndedExtent> },
    /// An extent cannot be read. A client that takes blocks in any order gets the others.
    Unreadable { extent: u64, error: Error },
    /// The bytes of this version are gone; nothing follows.
    Changed,
    /// Nothing can be read; nothing follows.
    Failed(Error),
    /// The client has received everything.
    Finished,
}

/// An extent of which a client has received the last block.
pub(crate) struct EndedExtent {
    pub(crate) number: u64,
    pub(crate) hash: ExtentHash,
}

/// A block that a socket has not taken yet.
struct LentBlock {
    bytes: Bytes,
    id: ClientId,
    delivery: Arc<Delivery>,
}

impl Client {
    /// Adds a client that wants these blocks of a file.
    ///
    /// # Errors
    /// [`DeliverError`]: there are too many clients or files, or the blocks are too scattered.
    pub(crate) fn join(
        delivery: &Arc<Delivery>,
        file: PinnedFile,
        extents: Extents,
        order: Order,
        have: Option<&HaveMap>,
    ) -> Result<Self, DeliverError> {
        let tag = file.version.tag.clone();
        Self::join_source(delivery, &tag, Arc::new(file), extents, order, have)
    }

    /// Adds a client that wants these blocks of the version with this tag. If it has other clients,
    /// their source is used.
    pub(super) fn join_source(
        delivery: &Arc<Delivery>,
        tag: &str,
        source: Arc<dyn ExtentSource>,
        file: Extents,
        order: Order,
        have: Option<&HaveMap>,
    ) -> Result<Self, DeliverError> {
        let have = have.map(|have| block_set(have, file)).transpose()?;
        let mut source = Some(source);
        let Joined { id, source } = delivery
            .with(|state, _now| state.join(tag, file, &mut source, order, have.as_ref()))?;
        let tag = tag.to_owned();
        let delivery = Arc::clone(delivery);
        Ok(Self { id, tag, file, source, delivery, is_in_order: order != Order::Any })
    }

    /// Returns how the file is divided.
    pub(crate) const fn file(&self) -> Extents {
        self.file
    }

    /// Returns the root of the file, if the hashes of all its extents are known.
    pub(crate) fn root(&self) -> Option<ExtentHash> {
        self.delivery.hashes.root(&self.tag, self.file)
    }

    /// Returns whether the bytes of the version that was sent are gone.
    pub(crate) fn is_changed(&self) -> bool {
        self.source.is_changed()
    }

    /// Returns the next piece once it is ready. Clients that take blocks in any order also get the
    /// hashes of extents.
    pub(crate) fn poll_next(&mut self, context: &Context<'_>) -> Poll<Piece> {
        let id = self.id;
        let waker = context.waker();
        if self.is_in_order
            && let Some(piece) = ready!(self.poll_cached(waker))
        {
            return Poll::Ready(piece);
        }
        let given = self.delivery.with(|state, now| state.give(id, waker, now));
        Poll::Ready(match given {
            Given::Block { block, bytes, ended } => {
                let number = u64::from(block.extent);
                let ended = ended.map(|extent| {
                    let hash = extent.hash();
                    if self.delivery.hashes.get(&self.tag, number).is_none() {
                        self.delivery.hashes.put(&self.tag, self.file, number, hash);
                    }
                    EndedExtent { number, hash }
                });
                Piece::Block { offset: block.offset, bytes: self.lent(bytes), ended }
            }
            Given::Unreadable { extent, error } => {
                Piece::Unreadable { extent: extent.into(), error }
            }
            Given::Ended(End::Changed) => Piece::Changed,
            Given::Ended(End::Failed(error)) => Piece::Failed(error),
            Given::Finished => Piece::Finished,
            Given::Waits => return Poll::Pending,
        })
    }

    /// Returns the next block of a client that takes a file in order, if the block is in the page
    /// cache and not in memory.
    fn poll_cached(&self, waker: &Waker) -> Poll<Option<Piece>> {
        let id = self.id;
        let delivery = &self.delivery;
        let is_scarce = delivery.buffers.are_scarce();
        let absent = ready!(delivery.look(|state| state.absent(id, is_scarce, waker)));
        Poll::Ready(absent.and_then(|block| {
            let mut buffer = delivery.buffers.take(block.len as usize)?;
            if !self.source.read_cached(buffer.as_mut(), block.offset) {
                return None;
            }
            delivery.with(|state, now| state.machine.take_absent(id, &block, now));
            let bytes = self.lent(Bytes::from_owner(buffer));
            Some(Piece::Block { offset: block.offset, bytes, ended: None })
        }))
    }

    /// Wraps the bytes of a block so that their drop tells the state that the block was sent.
    fn lent(&self, bytes: Bytes) -> Bytes {
        self.delivery.count_served(bytes.len() as u64);
        let id = self.id;
        let delivery = Arc::clone(&self.delivery);
        Bytes::from_owner(LentBlock { bytes, id, delivery })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.delivery.with(|state, _now| state.leave(self.id));
    }
}

impl AsRef<[u8]> for LentBlock {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for LentBlock {
    fn drop(&mut self) {
        self.delivery.with(|state, now| state.sent(self.id, now));
    }
}

/// Returns the blocks that a client has. The map was checked against the file.
fn block_set(have: &HaveMap, file: Extents) -> Result<BlockSet, DeliverError> {
    let too_long = DeliverError::TooLong { length: file.size() };
    let number = |block: u64| u32::try_from(block).map_err(|_beyond| too_long);
    let mut set = BlockSet::empty(number(file.blocks())?);
    for run in have.runs() {
        set.insert_run(number(run.first)?, number(run.first + run.blocks)?);
    }
    Ok(set)
}
