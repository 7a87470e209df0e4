//! The second layer of the encoder: the XOR of every i-th data packet (Maelstrom, NSDI 2008).
//!
//! Sequence numbers that are equal modulo the step form a *lane*, and each
//! [`limits::LAYER_PACKETS`] of a lane make a sum. The lanes are staggered, so that a sum is ready
//! each `LAYER_PACKETS` data packets and not all of them at once. A sum is sent a step after its
//! last packet: a burst of losses that is no longer than the step never takes both.

use std::collections::VecDeque;

use pelago_wire::datagram::LayerPacket;
use pelago_wire::limits;

use super::symbol;

/// Sums that wait to be sent; the oldest is dropped beyond that.
const READY: usize = 2 * limits::LAYER_STEP;

/// The lanes, and the sums that are ready.
#[derive(Debug)]
pub(super) struct Layer {
    /// One for each remainder.
    lanes: Vec<Lane>,
    /// The sequence number from which on the step may change.
    changes_from: u64,
    /// Each with the sequence number from which on it is sent.
    ready: VecDeque<(u64, LayerPacket)>,
}

#[derive(Debug, Clone, Default)]
struct Lane {
    /// Data packets of the sum.
    packets: usize,
    /// As many are in the sum once it is ready.
    most: usize,
    /// The sequence number of the first one.
    first: u64,
    sum: Vec<u8>,
}

impl Layer {
    /// Returns a layer of this step.
    pub(super) fn new(step: usize) -> Self {
        Self { lanes: lanes(step), changes_from: 0, ready: VecDeque::new() }
    }

    /// Adds a data packet. A new step counts from the end of a round of all lanes on.
    pub(super) fn add(&mut self, sequence: u64, symbol: &[u8], step: usize) {
        if step != self.lanes.len() && sequence >= self.changes_from {
            for lane in 0..self.lanes.len() {
                self.finish(lane, sequence);
            }
            self.lanes = lanes(step);
            self.changes_from = sequence + (step * limits::LAYER_PACKETS) as u64;
        }
        let index = (sequence % self.lanes.len() as u64) as usize;
        let Some(lane) = self.lanes.get_mut(index) else { return };
        if lane.packets == 0 {
            lane.first = sequence;
        }
        lane.packets += 1;
        symbol::add(&mut lane.sum, symbol);
        if lane.packets >= lane.most {
            self.finish(index, sequence);
        }
    }

    /// Returns the next sum that may be sent once the data packets before `sequence` are.
    pub(super) fn poll(&mut self, sequence: u64) -> Option<LayerPacket> {
        let (from, _) = self.ready.front()?;
        if *from > sequence {
            return None;
        }
        self.ready.pop_front().map(|(_, packet)| packet)
    }

    /// Returns the bytes of the symbol that [`Layer::poll`] returns next.
    pub(super) fn next_bytes(&self, sequence: u64) -> Option<usize> {
        let (from, packet) = self.ready.front()?;
        (*from <= sequence).then_some(packet.symbol.len())
    }

    /// Ends the sum of a lane, whose last packet is before `sequence` or it.
    fn finish(&mut self, index: usize, sequence: u64) {
        let step = self.lanes.len();
        let Some(lane) = self.lanes.get_mut(index) else { return };
        let next = Lane { most: limits::LAYER_PACKETS, ..Lane::default() };
        let lane = std::mem::replace(lane, next);
        // The sum of one packet would be its copy.
        if lane.packets < 2 {
            return;
        }
        if self.ready.len() == READY {
            self.ready.pop_front();
        }
        // Step and packets are at most their limits.
        let packet = LayerPacket {
            first: lane.first,
            step: step as u8,
            packets: lane.packets as u8,
            symbol: lane.sum,
        };
        self.ready.push_back((sequence + 1 + step as u64, packet));
    }
}

/// Returns empty lanes, whose first sums are of different lengths.
fn lanes(step: usize) -> Vec<Lane> {
    let step = step.clamp(1, limits::LAYER_STEP);
    let most = |lane: usize| (limits::LAYER_PACKETS * (lane + 1)).div_ceil(step).max(2);
    (0..step).map(|lane| Lane { most: most(lane), ..Lane::default() }).collect()
}
