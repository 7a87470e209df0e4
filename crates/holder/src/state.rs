//! The state of a holder, behind one lock.

use std::collections::HashMap;
use std::time::Duration;

use pelago_wire::{Context, Done, InodeId, Reply, Request, Touched, WriteEra};

use crate::changes::Changes;
use crate::dirty::Dirty;
use crate::fetched::{Fetch, Fetched, Range};
use crate::hashes::Hashes;
use crate::leased_cache::LeasedCache;
use crate::open_files::OpenFiles;
use crate::read_ahead::ReadAhead;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) cached: LeasedCache,
    /// The facts that were cached when the leases ended last; see [`crate::stale`].
    pub(crate) stale: LeasedCache,
    pub(crate) changes: Changes,
    pub(crate) opens: OpenFiles,
    pub(crate) dirty: Dirty,
    /// Files whose size a request of this session is setting, with the eras of the leases on their
    /// bytes: these go on with the new size.
    pub(crate) cut: HashMap<InodeId, WriteEra>,
    pub(crate) read_ahead: ReadAhead,
    /// Bytes of files, for opens that only read.
    pub(crate) fetched: Fetched<WaitingRead>,
    /// Hashes of blocks of which there are copies of other versions.
    pub(crate) hashes: Hashes<NeededBlock>,
    /// No cache below keeps anything: files are fetched, and listings have attributes.
    pub(crate) is_only_cache: bool,
    /// Writes are buffered under leases. False until something sends them.
    pub(crate) buffers_writes: bool,
    /// A call of [`Holder::send_dirty`] is sending.
    ///
    /// [`Holder::send_dirty`]: crate::Holder::send_dirty
    pub(crate) is_sending: bool,
    /// The latest time at which dirty bytes may be due that are to be sent.
    pub(crate) send_due: Option<Duration>,
    /// Writes that wait for room.
    pub(crate) full: Vec<FullWrite>,
    /// Files of which written bytes were lost.
    pub(crate) lost_files: Vec<InodeId>,
    /// Changes by requests that have failed here and may still be carried out, which
    /// [`Holder::settle`] is to take.
    ///
    /// [`Holder::settle`]: crate::Holder
    pub(crate) unsettled: Vec<Touched>,
    /// Own requests under way that remove a name whose target is unknown: each of them may remove
    /// the last name of any file.
    pub(crate) unknown_removals: usize,
}

/// A write that waits until others were sent.
pub(crate) struct FullWrite {
    pub(crate) context: Context,
    pub(crate) request: Request,
    pub(crate) bytes: Vec<u8>,
    pub(crate) done: Done,
}

/// A read of a program.
#[derive(Clone, Copy)]
pub(crate) struct FetchableRead {
    pub(crate) context: Context,
    pub(crate) range: Range,
    /// There are copies of all its blocks.
    pub(crate) is_copied: bool,
}

/// A block that a read needs, or will need.
pub(crate) struct NeededBlock {
    pub(crate) read: FetchableRead,
    pub(crate) fetch: Fetch,
}

/// A read of a program that waits for its answer.
pub(crate) struct WaitingRead {
    pub(crate) read: FetchableRead,
    /// When it came, by `CLOCK_MONOTONIC`.
    pub(crate) since: Duration,
    /// Number of blocks that it has waited for.
    pub(crate) waits: usize,
    pub(crate) done: Done,
}

/// The way of a write.
pub(crate) enum WritePath {
    /// It is buffered, and answered.
    Answered(Reply),
    /// It waits for room.
    WaitsForRoom,
    /// It goes to the server.
    ToServer,
}
