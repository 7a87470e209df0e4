//! Packets on their way.

use std::collections::VecDeque;
use std::time::Duration;

/// Most bytes under way in a direction; a sender with more waits at its device.
const MOST_BYTES: usize = 128 << 20;
/// Buffers of packets that are kept for later ones.
const SPARE: usize = 4096;

/// The packets of a direction that have a time of arrival, in its order.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    packets: VecDeque<(Duration, Vec<u8>)>,
    bytes: usize,
    spare: Vec<Vec<u8>>,
}

impl Pipe {
    /// Returns whether another packet may be taken.
    pub(crate) const fn has_room(&self) -> bool {
        self.bytes < MOST_BYTES
    }

    /// Takes a packet that arrives at `at`, not before those that it has.
    pub(crate) fn put(&mut self, at: Duration, packet: &[u8]) {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(packet);
        self.bytes += copy.len();
        self.packets.push_back((at, copy));
    }

    /// Returns when the first packet arrives.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        self.packets.front().map(|(at, _)| *at)
    }

    /// Hands over the packets that have arrived by now.
    pub(crate) fn hand_over(&mut self, now: Duration, mut to: impl FnMut(&[u8])) {
        while self.next_at().is_some_and(|at| at <= now) {
            let Some((_, packet)) = self.packets.pop_front() else { return };
            to(&packet);
            self.bytes -= packet.len();
            if self.spare.len() < SPARE {
                self.spare.push(packet);
            }
        }
    }

    /// Drops the packets that are under way.
    pub(crate) fn sever(&mut self, mut each: impl FnMut(&[u8])) {
        self.hand_over(Duration::MAX, &mut each);
    }

    /// Returns how many packets are under way.
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_handed_over_once_in_their_order() {
        let mut pipe = Pipe::default();
        for number in 1..=5_u8 {
            pipe.put(Duration::from_secs(number.into()), &[number; 3]);
        }
        let mut handed = Vec::new();
        for now in [0, 2, 2, 9] {
            pipe.hand_over(Duration::from_secs(now), |packet| handed.push((now, packet[0])));
        }
        assert_eq!(handed, [(2, 1), (2, 2), (9, 3), (9, 4), (9, 5)]);
        assert_eq!((pipe.len(), pipe.bytes, pipe.next_at()), (0, 0, None));
    }
}
