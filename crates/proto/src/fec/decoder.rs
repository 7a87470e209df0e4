//! The mirror's end: data packets in any order, and those that are rebuilt from others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use pelago_wire::datagram::{DataPacket, LayerPacket, RepairPacket};
use pelago_wire::limits;

use super::damaged::{BlockKey, Damaged, Rebuilt};
use super::gaps::Gaps;
use super::symbol;

/// Bytes that a kept repair symbol takes besides its own.
const KEPT_BYTES: usize = 64;
/// Sums of the second layer that are kept, because they lack more than one packet.
const LAYERS: usize = 256;

/// The receiver's half of the code.
///
/// It keeps the symbols of the newest data packets, and the repair symbols of blocks and layers
/// that lack some. Whenever a data packet arrives or is rebuilt, those that it belongs to are
/// looked at again.
#[derive(Debug, Default)]
pub struct Decoder {
    /// By sequence number.
    symbols: BTreeMap<u64, Arc<[u8]>>,
    gaps: Gaps,
    /// Blocks that lack data packets.
    blocks: BTreeMap<BlockKey, Block>,
    /// Those that can be rebuilt and are not being rebuilt.
    decodable: BTreeSet<BlockKey>,
    /// Sums of which more than one data packet is missing, by the first and the step.
    layers: BTreeMap<(u64, u8), LayerSum>,
    repair_bytes: usize,
    /// Data packets that nobody has taken.
    ready: VecDeque<DataPacket>,
    counts: DecoderCounts,
}

/// Numbers for `status` and for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DecoderCounts {
    /// Data packets that arrived, each counted once.
    pub arrived: u64,
    /// Data packets that were rebuilt from the repair packets of their block.
    pub by_block: u64,
    /// Data packets that were rebuilt from the XOR of a layer.
    pub by_layer: u64,
    /// Rebuilt packets that contradicted others or themselves.
    pub refused: u64,
    /// Blocks and sums that were dropped for memory.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct Block {
    /// By index.
    repair: BTreeMap<u8, Arc<[u8]>>,
    is_under_way: bool,
}

#[derive(Debug)]
struct LayerSum {
    packets: u8,
    sum: Arc<[u8]>,
}

impl Decoder {
    /// Returns a decoder at the beginning of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a data packet that has arrived.
    pub fn handle_data(&mut self, packet: DataPacket) {
        if !self.gaps.take(packet.sequence) {
            return;
        }
        self.counts.arrived += 1;
        let sequence = packet.sequence;
        self.keep(sequence, symbol::of(&packet));
        self.ready.push_back(packet);
        self.look_again(sequence);
    }

    /// Takes a repair packet of a block.
    pub fn handle_repair(&mut self, packet: RepairPacket) {
        let RepairPacket { first, packets, index, symbol } = packet;
        if !self.lacks(members(first, 1, packets)) {
            return;
        }
        let key = BlockKey { first, packets, length: symbol.len() };
        let block = self.blocks.entry(key).or_default();
        if block.repair.contains_key(&index) {
            return;
        }
        block.repair.insert(index, symbol.into());
        self.repair_bytes += KEPT_BYTES + key.length;
        self.look_at_block(key);
        self.bound();
    }

    /// Takes the XOR of data packets.
    pub fn handle_layer(&mut self, packet: LayerPacket) {
        let LayerPacket { first, step, packets, symbol } = packet;
        let key = (first, step);
        if !self.lacks(members(first, step, packets)) || self.layers.contains_key(&key) {
            return;
        }
        self.repair_bytes += KEPT_BYTES + symbol.len();
        self.layers.insert(key, LayerSum { packets, sum: symbol.into() });
        if let Some(sequence) = self.look_at_layer(key) {
            self.look_again(sequence);
        }
        self.bound();
    }

    /// Returns a block that can be rebuilt, if there is one. [`Damaged::rebuild`] may run anywhere;
    /// its result goes to [`Decoder::handle_rebuilt`].
    pub fn take(&mut self) -> Option<Damaged> {
        loop {
            let key = self.decodable.pop_first()?;
            let Some(block) = self.blocks.get_mut(&key) else { continue };
            let symbols = members(key.first, 1, key.packets);
            let symbols = symbols.map(|sequence| self.symbols.get(&sequence).cloned()).collect();
            let repair = block.repair.iter().map(|(index, symbol)| (*index, symbol.clone()));
            block.is_under_way = true;
            return Some(Damaged { key, symbols, repair: repair.collect() });
        }
    }

    /// Takes a block that was rebuilt.
    pub fn handle_rebuilt(&mut self, rebuilt: Rebuilt) {
        self.drop_block(rebuilt.key);
        let is_rebuilt = !rebuilt.symbols.is_empty();
        // All or none: they come of one sum, and join each other too.
        let symbols = rebuilt.symbols.into_iter();
        let missing = symbols.filter(|(sequence, _)| self.gaps.is_missing(*sequence));
        let packets = missing.map(|(sequence, symbol)| self.packet(sequence, &symbol));
        let packets = packets.collect::<Option<Vec<_>>>().filter(|all| all.is_sorted_by(joins));
        let Some(packets) = packets.filter(|_| is_rebuilt) else {
            self.counts.refused += 1;
            return;
        };
        for packet in packets {
            if let Some(sequence) = self.accept(packet) {
                self.counts.by_block += 1;
                self.look_again(sequence);
            }
        }
    }

    /// Records that everything before this offset of the stream is here, also by another way.
    pub fn handle_filled(&mut self, offset: u64) {
        while let Some(gap) = self.gaps.first() {
            let after = self.symbols.range(gap.end..).next();
            let Some((begin, _)) = after.and_then(|(_, symbol)| symbol::range(symbol)) else {
                return;
            };
            if begin > offset {
                return;
            }
            self.gaps.fill_first();
        }
    }

    /// Returns a data packet that has arrived or was rebuilt, each once, in any order.
    pub fn poll_packet(&mut self) -> Option<DataPacket> {
        self.ready.pop_front()
    }

    /// Returns the first sequence number that has neither arrived nor been rebuilt nor filled.
    #[must_use]
    pub fn complete(&self) -> u64 {
        self.gaps.complete()
    }

    /// Returns what has happened so far.
    #[must_use]
    pub const fn counts(&self) -> DecoderCounts {
        self.counts
    }

    /// Returns the bytes of the symbols that are kept.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        let symbols: usize = self.symbols.values().map(|symbol| symbol.len()).sum();
        symbols + self.repair_bytes
    }

    /// Keeps a symbol, and drops the oldest one if there are too many.
    fn keep(&mut self, sequence: u64, symbol: Vec<u8>) {
        self.symbols.insert(sequence, symbol.into());
        if self.symbols.len() > limits::DECODED_PACKETS {
            self.symbols.pop_first();
        }
    }

    /// Looks at all blocks and layers of a data packet, and of those that it lets rebuild.
    fn look_again(&mut self, sequence: u64) {
        let mut changed = vec![sequence];
        while let Some(sequence) = changed.pop() {
            let from = sequence.saturating_sub(limits::BLOCK_PACKETS as u64 - 1);
            let from = BlockKey { first: from, packets: 0, length: 0 };
            let blocks = self.blocks.range(from..).map(|(key, _)| *key);
            let blocks: Vec<_> = blocks.take_while(|key| key.first <= sequence).collect();
            blocks.into_iter().for_each(|key| self.look_at_block(key));
            let has = |(key, layer): (&(u64, u8), &LayerSum)| {
                let is_member = sequence >= key.0
                    && (sequence - key.0).is_multiple_of(key.1.into())
                    && (sequence - key.0) / u64::from(key.1) < layer.packets.into();
                is_member.then_some(*key)
            };
            let layers: Vec<_> = self.layers.iter().filter_map(has).collect();
            changed.extend(layers.into_iter().filter_map(|key| self.look_at_layer(key)));
        }
    }

    /// Drops a block that lacks nothing, and notes one that can be rebuilt.
    fn look_at_block(&mut self, key: BlockKey) {
        let Some(block) = self.blocks.get(&key) else { return };
        if !self.lacks(members(key.first, 1, key.packets)) {
            self.drop_block(key);
            return;
        }
        let all = members(key.first, 1, key.packets);
        let absent = all.filter(|sequence| !self.symbols.contains_key(sequence)).count();
        if !block.is_under_way && absent <= block.repair.len() {
            self.decodable.insert(key);
        }
    }

    /// Drops a sum that lacks nothing, and rebuilds the data packet of one that lacks one. Returns
    /// its sequence number.
    fn look_at_layer(&mut self, key: (u64, u8)) -> Option<u64> {
        let layer = self.layers.get(&key)?;
        let all = || members(key.0, key.1, layer.packets);
        let mut absent = all().filter(|sequence| !self.symbols.contains_key(sequence));
        let missing = absent.next();
        if absent.next().is_some() {
            return None;
        }
        let mut sum = layer.sum.to_vec();
        for sequence in all() {
            if let Some(symbol) = self.symbols.get(&sequence) {
                symbol::add(&mut sum, symbol);
            }
        }
        self.drop_layer(key);
        let missing = missing.filter(|sequence| self.gaps.is_missing(*sequence))?;
        let Some(packet) = self.packet(missing, &sum) else {
            self.counts.refused += 1;
            return None;
        };
        let accepted = self.accept(packet)?;
        self.counts.by_layer += 1;
        Some(accepted)
    }

    /// Returns the packet of a rebuilt symbol, if its bytes join those of its neighbours.
    fn packet(&self, sequence: u64, symbol: &[u8]) -> Option<DataPacket> {
        let packet = symbol::packet(sequence, symbol)?;
        let end = packet.offset + packet.bytes.len() as u64;
        let neighbour = |at: Option<u64>| symbol::range(self.symbols.get(&at?)?);
        let joins = neighbour(sequence.checked_sub(1)).is_none_or(|(_, to)| to == packet.offset)
            && neighbour(sequence.checked_add(1)).is_none_or(|(from, _)| from == end);
        joins.then_some(packet)
    }

    /// Takes a rebuilt packet. Returns its sequence number if it was missing.
    fn accept(&mut self, packet: DataPacket) -> Option<u64> {
        let sequence = packet.sequence;
        self.gaps.take(sequence).then(|| {
            self.keep(sequence, symbol::of(&packet));
            self.ready.push_back(packet);
            sequence
        })
    }

    /// Returns whether one of these data packets is missing.
    fn lacks(&self, mut members: impl Iterator<Item = u64>) -> bool {
        members.any(|sequence| self.gaps.is_missing(sequence))
    }

    fn drop_block(&mut self, key: BlockKey) {
        self.decodable.remove(&key);
        if let Some(block) = self.blocks.remove(&key) {
            self.repair_bytes -= block.repair.len() * (KEPT_BYTES + key.length);
        }
    }

    fn drop_layer(&mut self, key: (u64, u8)) {
        if let Some(layer) = self.layers.remove(&key) {
            self.repair_bytes -= KEPT_BYTES + layer.sum.len();
        }
    }

    /// Drops the oldest repair symbols beyond the limits.
    fn bound(&mut self) {
        while self.repair_bytes > limits::DECODED_REPAIR_BYTES || self.layers.len() > LAYERS {
            let block = self.blocks.first_key_value().map(|(key, _)| *key);
            let layer = self.layers.first_key_value().map(|(key, _)| *key);
            match (block, layer) {
                (_, Some(layer)) if self.layers.len() > LAYERS => self.drop_layer(layer),
                (Some(block), Some(layer)) if layer.0 < block.first => self.drop_layer(layer),
                (Some(block), _) => self.drop_block(block),
                (None, Some(layer)) => self.drop_layer(layer),
                (None, None) => return,
            }
            self.counts.dropped += 1;
        }
    }
}

/// Returns whether the bytes of two packets join, if no other one is between them.
fn joins(one: &DataPacket, next: &DataPacket) -> bool {
    one.sequence + 1 != next.sequence || one.offset + one.bytes.len() as u64 == next.offset
}

/// Returns the sequence numbers of a block, for which the step is 1, or of a layer's sum.
fn members(first: u64, step: u8, packets: u8) -> impl Iterator<Item = u64> {
    (0..u64::from(packets)).map(move |index| first.saturating_add(index * u64::from(step)))
}
