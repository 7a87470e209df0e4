//! The machine: its files, its clients, and the extents in memory.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use pelago_wire::limits;

use super::block_set::BlockSet;
use super::cache::Cache;
use super::client::Client;
use super::file::File;
use super::geometry::Geometry;
use super::rate::Rate;
use super::{ClientId, DeliverError, Next, Options, Order, VersionId, policy};

/// The machine that chooses the reads of the disk, and the next block of each client. The module's
/// head has the contract.
#[derive(Debug)]
pub struct Deliver {
    pub(super) options: Options,
    pub(super) files: BTreeMap<VersionId, File>,
    pub(super) clients: BTreeMap<ClientId, Client>,
    pub(super) cache: Cache,
    /// Files of which a client requests a read.
    pub(super) turns: VecDeque<VersionId>,
    /// Reads under way.
    pub(super) reading: usize,
    /// The rate of the reads.
    pub(super) reads: Rate,
    pub(super) woken: VecDeque<ClientId>,
    /// The last client that was checked for a stall; `None` if the next one is the first.
    pub(super) looked_at: Option<ClientId>,
}

impl Deliver {
    /// Returns a machine without files.
    ///
    /// # Panics
    /// If an extent has not 1, 2, 4, … or 64 blocks, or if not fewer reads can be under way than
    /// extents in memory.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let Options { block_bytes, extent_bytes, extents, reads, lent, .. } = options;
        assert!(block_bytes > 0 && extent_bytes.is_multiple_of(block_bytes), "whole blocks");
        let extent_blocks = extent_bytes / block_bytes;
        assert!(extent_blocks.is_power_of_two() && extent_blocks <= 64, "up to 64 blocks");
        assert!(reads >= 1 && reads < extents && lent >= 1, "room for a read beside an extent");
        Self {
            options,
            files: BTreeMap::new(),
            clients: BTreeMap::new(),
            cache: Cache::default(),
            turns: VecDeque::new(),
            reading: 0,
            reads: Rate::default(),
            woken: VecDeque::new(),
            looked_at: None,
        }
    }

    /// Adds a file of `length` bytes.
    ///
    /// # Errors
    /// [`DeliverError::TooLong`], [`DeliverError::TooManyFiles`] and [`DeliverError::Exists`].
    pub fn open_file(&mut self, file: VersionId, length: u64) -> Result<(), DeliverError> {
        let Options { block_bytes, extent_bytes, .. } = self.options;
        let geometry = Geometry { length, block_bytes, extent_blocks: extent_bytes / block_bytes };
        geometry.checked_blocks().ok_or(DeliverError::TooLong { length })?;
        if self.files.contains_key(&file) {
            return Err(DeliverError::Exists);
        }
        if self.files.len() >= limits::DELIVERY_FILES {
            return Err(DeliverError::TooManyFiles);
        }
        self.files.insert(file, File::new(geometry));
        Ok(())
    }

    /// Removes a file, its clients, and its extents in memory. The driver drops its bytes. Reads
    /// that are under way still end with [`Deliver::read_done`] or one of the others.
    pub fn close_file(&mut self, file: VersionId) {
        let Some(File { clients, resident, .. }) = self.files.remove(&file) else { return };
        self.clients.retain(|id, _| !clients.contains(id));
        for extent in resident.values() {
            self.cache.remove(file, *extent);
        }
        self.turns.retain(|other| *other != file);
    }

    /// Adds a client that has these blocks of a file, and wants the others: all, or those in its
    /// range.
    ///
    /// # Errors
    /// [`DeliverError`], each but [`DeliverError::TooLong`] and [`DeliverError::TooManyFiles`].
    pub fn join(
        &mut self,
        file: VersionId,
        id: ClientId,
        order: Order,
        have: Option<&BlockSet>,
    ) -> Result<(), DeliverError> {
        let found = self.files.get_mut(&file).ok_or(DeliverError::NoFile)?;
        if self.clients.contains_key(&id) {
            return Err(DeliverError::Exists);
        }
        if self.clients.len() >= limits::DELIVERY_CLIENTS
            || found.clients.len() >= limits::DELIVERY_FILE_CLIENTS
        {
            return Err(DeliverError::TooManyClients);
        }
        let missing = missing(&found.geometry, order, have)?;
        let mut client = Client::new(file, order, missing);
        client.is_ordered = policy::is_ordered(&self.options, order);
        policy::join(&self.options, &mut client, found);
        found.add(id, &mut client);
        self.clients.insert(id, client);
        Ok(())
    }

    /// Removes a client. Extents that were read for it stay in memory for others.
    pub fn leave(&mut self, id: ClientId) {
        let Some(client) = self.clients.remove(&id) else { return };
        if let Some(file) = self.files.get_mut(&client.file) {
            file.remove(id, &client);
        }
    }

    /// Gives a client its next block, which is in memory.
    pub fn next_block(&mut self, id: ClientId, now: Duration) -> Next {
        let Some(client) = self.clients.get_mut(&id) else { return Next::Finished };
        let Some(file) = self.files.get_mut(&client.file) else { return Next::Finished };
        client.waits = false;
        client.reads = 0;
        if client.lent.len() >= self.options.lent {
            return Next::Full;
        }
        let taken = policy::take(&self.options, id, client, file, &self.cache);
        let next = match taken {
            Some(block) => {
                let (from, to) = client.range();
                let block = file.geometry.block(client.file, block, from, to);
                self.cache.touch(client.file, block.extent, id);
                client.lend(block.len, now);
                Next::Block(block)
            }
            None if client.is_finished() => return Next::Finished,
            None => {
                client.waits = true;
                // The driver does not have it elsewhere any more.
                if client.is_ordered
                    && let Some(extent) = client.next_in_order(&file.geometry)
                {
                    file.elsewhere.remove(extent);
                }
                Next::Wait
            }
        };
        self.ask(id);
        next
    }

    /// Records that the socket of a client has taken its first lent block, whose bytes the driver
    /// has dropped.
    pub fn sent(&mut self, id: ClientId, now: Duration) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if let Some(bytes) = client.lent.pop_front() {
            client.rate.add(f64::from(bytes), now.saturating_sub(client.sending_since));
            client.sending_since = now;
        }
        if client.is_stalled {
            client.is_stalled = false;
            if let Some(file) = self.files.get_mut(&client.file) {
                file.reweigh(client);
            }
        }
    }

    /// Returns a client that does not have to wait any longer.
    pub fn poll_woken(&mut self) -> Option<ClientId> {
        loop {
            let id = self.woken.pop_front()?;
            if self.clients.contains_key(&id) {
                return Some(id);
            }
        }
    }

    /// Returns whether a client will get a further block of an extent, unless it fails.
    #[must_use]
    pub fn lacks_part(&self, id: ClientId, extent: u32) -> bool {
        let Some(client) = self.clients.get(&id) else { return false };
        let Some(file) = self.files.get(&client.file) else { return false };
        let is_chosen = |block: &u32| file.geometry.extent_of(*block) == extent;
        file.geometry.part(&client.missing, extent) != 0 || client.queue.iter().any(is_chosen)
    }

    /// Returns the number of extents in memory, with those that are being read.
    #[must_use]
    pub fn extents(&self) -> usize {
        self.cache.len()
    }

    /// Returns how many clients there are.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Returns how many files there are.
    #[must_use]
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Returns the number of clients that request a read.
    #[must_use]
    pub fn askers(&self) -> usize {
        self.turns.iter().filter_map(|id| self.files.get(id)).map(|file| file.askers.len()).sum()
    }

    /// Has a client request a read, if it has too few blocks in memory.
    pub(super) fn ask(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(file) = self.files.get_mut(&client.file) else { return };
        if client.asks || !policy::is_short(&self.options, client, file, self.reads.seconds_each())
        {
            return;
        }
        client.asks = true;
        file.askers.push_back(id);
        if !file.is_in_turn {
            file.is_in_turn = true;
            self.turns.push_back(client.file);
        }
    }
}

/// Returns the blocks that a client wants.
fn missing(
    geometry: &Geometry,
    order: Order,
    have: Option<&BlockSet>,
) -> Result<BlockSet, DeliverError> {
    let blocks = geometry.blocks();
    match (order, have) {
        (_, Some(have)) if have.blocks() != blocks => {
            Err(DeliverError::OtherLength { blocks: have.blocks() })
        }
        (_, Some(have)) if have.mixed() > limits::DELIVERY_CLIENT_CHUNKS => {
            Err(DeliverError::TooScattered)
        }
        (Order::Any, Some(have)) => Ok(have.complement()),
        (Order::Any, None) => Ok(BlockSet::full(blocks)),
        (Order::Ascending { from, to }, _) if from > to || to > geometry.length => {
            Err(DeliverError::BadRange { from, to })
        }
        (Order::Ascending { from, to }, have) => {
            let block = |bytes: u64| u32::try_from(bytes).expect("a block of the file");
            let block_bytes = u64::from(geometry.block_bytes);
            let mut wanted = BlockSet::empty(blocks);
            if from < to {
                wanted.insert_run(block(from / block_bytes), block(to.div_ceil(block_bytes)));
            }
            for run in have.into_iter().flat_map(BlockSet::runs) {
                wanted.remove_run(run.first, run.first + run.count);
            }
            Ok(wanted)
        }
    }
}
