//! The primary's end: blocks of data packets, and the repair packets that are owed for them.

use std::collections::VecDeque;
use std::time::Duration;

use pelago_wire::datagram::{DataPacket, DatagramBody, RepairPacket};
use pelago_wire::limits;
use reed_solomon_simd::ReedSolomonEncoder;

use super::budget::Budget;
use super::layer::Layer;
use super::residual::least_repair;
use super::{BLOCK_TIME, RepairMode, symbol};
use crate::link::LinkQuality;

/// Bytes of a datagram besides its symbol, for the budget.
const HEAD_BYTES: usize = limits::DATAGRAM_BYTES - limits::DATAGRAM_STREAM_BYTES;

/// The sender's half of the code. It numbers data packets, closes blocks of them, and says which
/// repair packet is sent next.
#[derive(Debug)]
pub struct Encoder {
    mode: RepairMode,
    quality: LinkQuality,
    budget: Budget,
    /// The sequence number of the next data packet.
    sequence: u64,
    /// The offset of the next byte.
    offset: u64,
    /// More bytes wait for the link.
    has_backlog: bool,
    open: Option<OpenBlock>,
    /// Closed blocks that have not arrived, in order.
    kept: VecDeque<KeptBlock>,
    kept_bytes: usize,
    /// Repair packets that blocks want and were not sent.
    owed: usize,
    layer: Layer,
    /// Everything before this place has arrived.
    arrived: StreamPoint,
    /// Blocks before this place were dropped for memory, which may not have arrived.
    dropped: StreamPoint,
}

/// A place in the stream, by both of its numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct StreamPoint {
    sequence: u64,
    offset: u64,
}

/// The block that takes data packets.
#[derive(Debug)]
struct OpenBlock {
    first: u64,
    symbols: Vec<Vec<u8>>,
    /// When it closes, if nothing more is there to be sent.
    closes: Option<Duration>,
    /// Somebody waits for it, and there was no room for its repair packets.
    is_awaited: bool,
}

#[derive(Debug)]
struct KeptBlock {
    first: u64,
    end: StreamPoint,
    packets: usize,
    /// All repair symbols: those of a longer code are others, so none can be made later.
    repair: Vec<Vec<u8>>,
    sent: usize,
    wanted: usize,
    is_awaited: bool,
}

impl Encoder {
    /// Returns an encoder at the beginning of a stream.
    #[must_use]
    pub fn new(mode: RepairMode) -> Self {
        let quality = LinkQuality::default();
        Self {
            mode,
            budget: Budget::new(),
            sequence: 0,
            offset: 0,
            has_backlog: false,
            open: None,
            kept: VecDeque::new(),
            kept_bytes: 0,
            owed: 0,
            layer: Layer::new(step(&quality)),
            arrived: StreamPoint::default(),
            dropped: StreamPoint::default(),
            quality,
        }
    }

    /// Makes a data packet of the next bytes of the stream: of the first
    /// [`limits::DATAGRAM_STREAM_BYTES`] if there are more. `None` if there are none.
    ///
    /// With `has_more` bytes follow that only wait for the link: the block fills as fast as the
    /// link takes them, and does not close by time.
    pub fn push(&mut self, now: Duration, bytes: &[u8], has_more: bool) -> Option<DataPacket> {
        let bytes = bytes.get(..limits::DATAGRAM_STREAM_BYTES).unwrap_or(bytes).to_vec();
        if bytes.is_empty() {
            return None;
        }
        self.has_backlog = has_more;
        let packet = DataPacket { sequence: self.sequence, offset: self.offset, bytes };
        self.sequence += 1;
        self.offset += packet.bytes.len() as u64;
        let coded = symbol::of(&packet);
        if self.mode != RepairMode::Off {
            self.layer.add(packet.sequence, &coded, step(&self.quality));
        }
        let open = self.open.get_or_insert_with(|| OpenBlock {
            first: packet.sequence,
            symbols: Vec::with_capacity(limits::BLOCK_PACKETS),
            closes: None,
            is_awaited: false,
        });
        open.symbols.push(coded);
        let closes = open.closes.unwrap_or(now + BLOCK_TIME);
        open.closes = (!has_more).then_some(closes);
        if open.symbols.len() == limits::BLOCK_PACKETS {
            self.close();
        }
        Some(packet)
    }

    /// Records that a caller waits for everything that was pushed: the block closes, and each block
    /// that has not arrived is owed as many repair packets as make its residual loss small enough.
    ///
    /// If the share of the link for repair is used up, the block closes later, and takes what is
    /// pushed until then: [`Encoder::poll_timeout`] says when. With the packets of more waiters in
    /// it, it needs a smaller share.
    pub fn wait(&mut self, now: Duration) {
        for block in &mut self.kept {
            let wanted = wanted(self.mode, block.packets, true, &self.quality);
            self.owed += wanted.saturating_sub(block.wanted);
            block.wanted = block.wanted.max(wanted);
            block.is_awaited = true;
        }
        if let Some(open) = &mut self.open {
            open.is_awaited = true;
            self.close_if_due(now);
        }
    }

    /// Closes the open block, if its time has come.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.close_if_due(now);
    }

    /// Takes what was learnt of the link.
    pub fn handle_quality(&mut self, now: Duration, quality: LinkQuality) {
        self.budget.set_rate(now, quality.rate);
        self.quality = quality;
    }

    /// Forgets the blocks whose data packets have all arrived: those before this sequence number
    /// ([`LinkReport::complete`]). Numbers that were not sent count as nothing.
    ///
    /// [`LinkReport::complete`]: pelago_wire::datagram::LinkReport::complete
    pub fn handle_complete(&mut self, complete: u64) {
        if complete > self.sequence {
            return;
        }
        if self.dropped.sequence <= complete && self.arrived.sequence < self.dropped.sequence {
            self.arrived = self.dropped;
        }
        while let Some(block) = self.kept.front()
            && block.end.sequence <= complete
        {
            self.arrived = block.end;
            self.forget_oldest();
        }
    }

    /// Returns the next repair packet that is to be sent, if the link's share for repair permits.
    pub fn poll_repair(&mut self, now: Duration) -> Option<DatagramBody> {
        if self.owed > 0 {
            return self.next_owed(now).map(DatagramBody::Repair);
        }
        let bytes = HEAD_BYTES + self.layer.next_bytes(self.sequence)?;
        let packet = self.layer.poll(self.sequence)?;
        // A sum is of use soon or not at all: without room it is dropped.
        if !self.has_budget(now, bytes) {
            return None;
        }
        self.budget.take(bytes);
        Some(DatagramBody::Layer(packet))
    }

    /// Returns when [`Encoder::handle_timeout`] closes a block, or [`Encoder::poll_repair`] has a
    /// packet that it did not have; never if something else has to happen first.
    pub fn poll_timeout(&mut self, now: Duration) -> Option<Duration> {
        let owed = self.oldest_owed();
        let owed = owed.map(|block| (HEAD_BYTES + symbol_bytes(block), block.is_awaited));
        let owed = owed.map(|(bytes, is_awaited)| match is_awaited && !self.has_backlog {
            true => now,
            false => self.budget.when(now, bytes),
        });
        let closes = match &self.open {
            Some(open) if open.is_awaited => Some(now),
            Some(open) => open.closes,
            None => None,
        };
        let bytes = self.closing_bytes();
        let closes = closes.map(|at| match self.has_budget(at.max(now), bytes) {
            true => at,
            false => self.budget.when(now, bytes),
        });
        [owed, closes].into_iter().flatten().min()
    }

    /// Returns the offset before which a loss of the primary loses nothing that its repair packets
    /// can rebuild: all blocks are closed, and every repair packet that they want for a waiter was
    /// returned by [`Encoder::poll_repair`], or has arrived.
    #[must_use]
    pub fn covered(&self) -> u64 {
        if self.arrived.sequence < self.dropped.sequence {
            return self.arrived.offset;
        }
        let is_covered = |block: &&KeptBlock| block.is_awaited && block.sent >= block.wanted;
        let covered = self.kept.iter().take_while(is_covered).last();
        covered.map_or(self.arrived.offset, |block| block.end.offset)
    }

    /// Returns the offset of the next byte.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the bytes of repair symbols that are kept.
    #[must_use]
    pub const fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Returns the chance that a block which has not arrived cannot be rebuilt from what was sent:
    /// the sum for all closed ones, at the upper bound of the loss seen.
    #[must_use]
    pub fn residual(&self) -> f64 {
        let loss = self.quality.loss;
        let of = |block: &KeptBlock| super::residual(block.packets, block.sent, loss);
        self.kept.iter().map(of).sum::<f64>().min(1.0)
    }

    fn close_if_due(&mut self, now: Duration) {
        let Some(open) = &self.open else { return };
        let is_due = open.is_awaited || open.closes.is_some_and(|closes| closes <= now);
        let bytes = self.closing_bytes();
        if is_due && self.has_budget(now, bytes) {
            self.close();
        }
    }

    /// Returns the bytes of all repair packets that are owed if the open block closes now; none if
    /// it is exempt from the budget.
    fn closing_bytes(&self) -> usize {
        let Some(open) = &self.open else { return 0 };
        if open.is_awaited && !self.has_backlog {
            return 0;
        }
        let wanted = wanted(self.mode, open.symbols.len(), open.is_awaited, &self.quality);
        let longest = open.symbols.iter().map(Vec::len).max().unwrap_or_default();
        wanted * (HEAD_BYTES + longest) + self.owed * limits::DATAGRAM_BYTES
    }

    fn has_budget(&mut self, now: Duration, bytes: usize) -> bool {
        self.mode != RepairMode::Auto || self.budget.has(now, bytes)
    }

    /// Closes the open block.
    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let packets = open.symbols.len();
        let repair = match self.mode {
            RepairMode::Auto | RepairMode::Full => repair_symbols(&open.symbols),
            RepairMode::Off => Vec::new(),
        };
        let wanted = wanted(self.mode, packets, open.is_awaited, &self.quality);
        let block = KeptBlock {
            first: open.first,
            end: StreamPoint { sequence: self.sequence, offset: self.offset },
            packets,
            sent: 0,
            wanted,
            repair,
            is_awaited: open.is_awaited,
        };
        self.owed += block.wanted;
        self.kept_bytes += kept_bytes(&block);
        self.kept.push_back(block);
        while self.kept_bytes > limits::ENCODED_BYTES {
            self.dropped = self.kept.front().map_or(self.dropped, |block| block.end);
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(block) = self.kept.pop_front() {
            self.owed -= block.wanted.saturating_sub(block.sent);
            self.kept_bytes -= kept_bytes(&block);
        }
    }

    fn oldest_owed(&self) -> Option<&KeptBlock> {
        self.kept.iter().find(|block| block.sent < block.wanted).filter(|_| self.owed > 0)
    }

    fn next_owed(&mut self, now: Duration) -> Option<RepairPacket> {
        let bytes = HEAD_BYTES + symbol_bytes(self.oldest_owed()?);
        let is_allowed = self.has_budget(now, bytes);
        let block = self.kept.iter_mut().find(|block| block.sent < block.wanted)?;
        // Without a backlog it takes the place of no other bytes.
        if !is_allowed && (self.has_backlog || !block.is_awaited) {
            return None;
        }
        let symbol = block.repair.get(block.sent)?.clone();
        // Both are at most their limits.
        let packets = block.packets as u8;
        let index = block.sent as u8;
        block.sent += 1;
        self.owed -= 1;
        self.budget.take(bytes);
        Some(RepairPacket { first: block.first, packets, index, symbol })
    }
}

/// Returns how many repair packets a block wants.
fn wanted(mode: RepairMode, packets: usize, is_awaited: bool, quality: &LinkQuality) -> usize {
    match mode {
        RepairMode::Auto if is_awaited => least_repair(packets, quality.loss),
        RepairMode::Auto => 1,
        RepairMode::Full => limits::BLOCK_REPAIR_PACKETS,
        RepairMode::Off => 0,
    }
}

/// Returns the step of the second layer: twice the length of a burst.
fn step(quality: &LinkQuality) -> usize {
    usize::try_from(quality.burst.saturating_mul(2))
        .unwrap_or(usize::MAX)
        .clamp(2, limits::LAYER_STEP)
}

/// Returns the repair symbols of a block.
fn repair_symbols(symbols: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let longest = symbols.iter().map(Vec::len).max().unwrap_or_default();
    let mut code = ReedSolomonEncoder::new(symbols.len(), limits::BLOCK_REPAIR_PACKETS, longest)
        .expect("a block has 1 to 64 symbols, of an even length");
    let mut padded = Vec::with_capacity(longest);
    for symbol in symbols {
        padded.clear();
        padded.extend(symbol);
        padded.resize(longest, 0);
        code.add_original_shard(&padded).expect("all are padded to one length");
    }
    let coded = code.encode().expect("all symbols were added");
    coded.recovery_iter().map(<[u8]>::to_vec).collect()
}

fn symbol_bytes(block: &KeptBlock) -> usize {
    block.repair.first().map_or(0, Vec::len)
}

/// Returns the memory of a block.
fn kept_bytes(block: &KeptBlock) -> usize {
    size_of::<KeptBlock>() + block.repair.len() * (size_of::<Vec<u8>>() + symbol_bytes(block))
}
