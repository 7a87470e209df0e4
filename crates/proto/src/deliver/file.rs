//! The state of a file: its clients, its extents in memory, and the scores of its extents.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::ClientId;
use super::block_set::BlockSet;
use super::client::Client;
use super::geometry::Geometry;
use super::scores::Scores;

/// A file that is delivered.
#[derive(Debug)]
pub(super) struct File {
    pub(super) geometry: Geometry,
    pub(super) clients: BTreeSet<ClientId>,
    pub(super) scores: Scores,
    /// The extents that are in memory or being read.
    pub(super) present: BlockSet,
    /// Extents that are not read ahead: the driver had them elsewhere when it looked.
    pub(super) elsewhere: BlockSet,
    /// The extents in memory, by the number of their read.
    pub(super) resident: BTreeMap<u64, u32>,
    /// The positions of the clients that take blocks in order: their next extent.
    pub(super) readers: BTreeSet<(u32, ClientId)>,
    /// The clients that request a read.
    pub(super) askers: VecDeque<ClientId>,
    /// The file is among those that are served in turn.
    pub(super) is_in_turn: bool,
    /// Bytes that may be read for it before it is another file's turn.
    pub(super) deficit: u64,
    /// The extent that was read last.
    pub(super) last_read: Option<u32>,
    /// The beginning of the active region, of the policy Circus.
    pub(super) cursor: u64,
}

impl File {
    pub(super) fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            clients: BTreeSet::new(),
            scores: Scores::new(geometry),
            present: BlockSet::empty(geometry.extents()),
            elsewhere: BlockSet::empty(geometry.extents()),
            resident: BTreeMap::new(),
            readers: BTreeSet::new(),
            askers: VecDeque::new(),
            is_in_turn: false,
            deficit: 0,
            last_read: None,
            cursor: 0,
        }
    }

    /// Adds a client.
    pub(super) fn add(&mut self, id: ClientId, client: &mut Client) {
        client.weight = client.new_weight();
        self.scores.add(&client.missing, client.weight);
        let present = self.present.runs().flat_map(|run| run.first..run.first + run.count);
        client.supply = present.map(|it| self.geometry.count(&client.missing, it)).sum();
        self.clients.insert(id);
        if client.is_ordered {
            self.readers.extend(client.next_in_order(&self.geometry).map(|at| (at, id)));
        }
    }

    /// Removes a client.
    pub(super) fn remove(&mut self, id: ClientId, client: &Client) {
        self.scores.remove(&client.missing, client.weight);
        self.clients.remove(&id);
        if let Some(at) = client.next_in_order(&self.geometry) {
            self.readers.remove(&(at, id));
        }
        if client.asks {
            self.askers.retain(|other| *other != id);
        }
    }

    /// Gives a client the weight that it should have.
    pub(super) fn reweigh(&mut self, client: &mut Client) {
        let weight = client.new_weight();
        if weight != client.weight {
            self.scores.reweigh(&client.missing, client.weight, weight);
            client.weight = weight;
        }
    }

    /// Records that a client gets a block.
    pub(super) fn take(&mut self, id: ClientId, client: &mut Client, block: u32) {
        let extent = self.geometry.extent_of(block);
        let chunk = (block / pelago_wire::limits::DELIVERY_CHUNK_BLOCKS) as usize;
        let before = client.missing.share(chunk);
        client.missing.remove(block);
        self.scores.taken(&client.missing, before, block, client.weight);
        if self.present.contains(extent) {
            client.supply -= 1;
        }
        self.reweigh(client);
        // The client is not a reader of this extent if it loses blocks of another one, which could
        // not be read.
        if client.is_ordered
            && self.geometry.part(&client.missing, extent) == 0
            && self.readers.remove(&(extent, id))
        {
            self.readers.extend(client.next_in_order(&self.geometry).map(|at| (at, id)));
        }
    }
}
