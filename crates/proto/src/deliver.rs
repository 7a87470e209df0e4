//! Delivery of files to many readers: which extents are read from the disk, how long they stay in
//! memory, and which block each client gets next.
//!
//! A file is cut into *blocks*, the unit of sending, and *extents* of up to 64 blocks, the unit of
//! reading and of memory. A client takes the blocks of a file in any order, so that the machine
//! decides when each extent is read, or a range of bytes in order. There are three policies:
//!
//! - [`Policy::Relevance`] reads the extent that most clients lack, and keeps such extents.
//! - [`Policy::Circus`] moves a region through the file, and keeps what was used last
//!   (Anastasiadis, Wickremesinghe and Chase, Circus, FAST 2004; the region slides).
//! - [`Policy::Sequential`] sends every file from its beginning, for comparison.
//!
//! # The contract
//!
//! [`Deliver`] has no clock and does no I/O. Its driver calls it under one lock. Times are counted
//! from any origin and must not go backwards. There are five kinds of methods:
//!
//! - *Files and clients*: [`Deliver::open_file`], [`Deliver::close_file`], [`Deliver::join`] and
//!   [`Deliver::leave`]. The ids are the driver's; a file's id is not used again, because a read of
//!   the closed file may still be under way.
//! - *Blocks for a client*: [`Deliver::next_block`] if its socket takes bytes, and
//!   [`Deliver::sent`] for each block in turn once the socket has taken it.
//! - *Reads of the disk*: [`Deliver::next_read`], and for each read one of [`Deliver::read_done`],
//!   [`Deliver::read_failed`] and [`Deliver::read_skipped`].
//! - *Blocks without a read*: before it takes the next block of a client that takes them in order,
//!   a driver may check whether it has that block elsewhere ([`Deliver::next_absent`],
//!   [`Deliver::take_absent`]).
//! - *Clients that continue*: [`Deliver::poll_woken`] names the clients that do not have to wait
//!   any longer.
//!
//! After `join`, `leave`, `next_block`, `sent` and the end of a read the driver calls `next_read`
//! until it returns `None`; after the end of a read it calls `poll_woken` until that returns
//! `None`, and `next_block` for each client named.
//!
//! # Memory
//!
//! The machine counts extents; the driver has their bytes. There are never more than
//! [`Options::extents`], those that are being read included: an [`ExtentRead`] names the extent
//! whose bytes the driver drops first. The driver allocates each block by itself and gives it to
//! the socket by reference count, so an extent may be dropped while blocks of it are *lent* to
//! sockets. A client has at most [`Options::lent`] of them, so a client that stalls holds these and
//! nothing else. All in all a driver needs `extents` × [`Options::extent_bytes`] and for each
//! client `lent` × [`Options::block_bytes`].
//!
//! The machine's own memory depends on how scattered the missing blocks of a client are:
//! [`limits::DELIVERY_CLIENT_CHUNKS`] bounds it.
//!
//! [`limits::DELIVERY_CLIENT_CHUNKS`]: pelago_wire::limits::DELIVERY_CLIENT_CHUNKS

pub use block_set::{BlockSet, Run};
pub use machine::Deliver;

mod block_set;
mod cache;
mod circus;
mod client;
mod elsewhere;
mod file;
mod geometry;
mod machine;
mod ordered;
mod policy;
mod rate;
mod reads;
mod relevance;
mod scores;
#[cfg(test)]
mod tests;

/// The id of a pinned version of a file, which is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionId(pub u64);

/// The id of a client: one download of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// Settings of a [`Deliver`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// The policy.
    pub policy: Policy,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Bytes of an extent: 1, 2, 4, … or 64 blocks.
    pub extent_bytes: u32,
    /// Extents in memory.
    pub extents: usize,
    /// Reads under way at the same time; fewer than `extents`.
    pub reads: usize,
    /// Blocks that a client may have taken and not sent.
    pub lent: usize,
    /// Blocks that should be in memory for a client beyond what it takes during a read; with
    /// [`Policy::Circus`] the length of a client's queue.
    pub queue: u32,
}

/// The policy that chooses the next block of a client, and the next extent to read or to drop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Policy {
    /// Each client takes its blocks in order; the least recently used extent is dropped.
    Sequential,
    /// Clients follow a region of the file; the least recently used extent is dropped.
    Circus(Circus),
    /// The extent that most clients lack is read, and one that few of them lack is dropped.
    Relevance,
}

/// Settings of [`Policy::Circus`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Circus {
    /// Bytes of the active region.
    pub region_bytes: u64,
    /// The distance from the region's beginning at which a client moves the region, in regions.
    pub leapfront: f64,
    /// The share of a file at which a client becomes independent of the region.
    pub threshold: f64,
}

/// The order in which a client takes blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Any: all blocks of the file that it does not have.
    Any,
    /// The bytes from `from` on, before `to`, in order.
    Ascending {
        /// The first byte.
        from: u64,
        /// The end, at most the length of the file.
        to: u64,
    },
}

/// A block, or the part of one that a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The file.
    pub file: VersionId,
    /// The extent that has it. It is in memory, except for [`Deliver::next_absent`].
    pub extent: u32,
    /// The offset in the file at which it begins.
    pub offset: u64,
    /// Its bytes.
    pub len: u32,
}

/// The next action of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It sends this block.
    Block(Block),
    /// It waits until [`Deliver::poll_woken`] names it.
    Wait,
    /// It has as many blocks that are not sent as it may have.
    Full,
    /// It has taken everything, or is not known.
    Finished,
}

/// A read of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentRead {
    /// The file.
    pub file: VersionId,
    /// The extent that is read.
    pub extent: u32,
    /// The offset in the file at which it begins.
    pub offset: u64,
    /// Its bytes.
    pub len: u32,
    /// The client that requested it waits for it. Otherwise the driver may skip it
    /// ([`Deliver::read_skipped`]).
    pub is_awaited: bool,
    /// The extent that was dropped for it.
    pub evicted: Option<(VersionId, u32)>,
}

/// The reason for which a file or a client is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeliverError {
    /// The file is longer than [`limits::DELIVERY_FILE_BLOCKS`].
    ///
    /// [`limits::DELIVERY_FILE_BLOCKS`]: pelago_wire::limits::DELIVERY_FILE_BLOCKS
    #[error("a file of {length} bytes cannot be delivered")]
    TooLong {
        /// Its bytes.
        length: u64,
    },
    /// There are as many files as there may be; more can be opened once one is closed.
    #[error("too many files are delivered")]
    TooManyFiles,
    /// There are as many clients, in all or of this file, as there may be.
    #[error("too many clients")]
    TooManyClients,
    /// The blocks that the client has are scattered over too many chunks: it must forget some of
    /// them, or all.
    #[error("the blocks that the client has are too scattered")]
    TooScattered,
    /// The blocks that the client has are those of a file of another length.
    #[error("the client has blocks of a file of {blocks} blocks")]
    OtherLength {
        /// The number of blocks of that file.
        blocks: u32,
    },
    /// The range is not within the file.
    #[error("the range from {from} to {to} is not in the file")]
    BadRange {
        /// The first byte.
        from: u64,
        /// The end.
        to: u64,
    },
    /// The id is in use.
    #[error("the id is in use")]
    Exists,
    /// There is no such file.
    #[error("no such file")]
    NoFile,
}

impl Options {
    /// Returns the defaults of a policy, with this many bytes of memory.
    #[must_use]
    pub fn new(policy: Policy, memory_bytes: u64) -> Self {
        let extent_bytes = 1 << 20;
        let extents = usize::try_from(memory_bytes / u64::from(extent_bytes)).unwrap_or(usize::MAX);
        let block_bytes = 64 << 10;
        let extents = extents.max(2);
        let reads = (extents / 4).clamp(1, 2);
        Self { policy, block_bytes, extent_bytes, extents, reads, lent: 2, queue: 5 }
    }
}

impl Default for Circus {
    fn default() -> Self {
        Self { region_bytes: 16 << 20, leapfront: 1.0, threshold: 0.75 }
    }
}
