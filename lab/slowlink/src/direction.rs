//! The fate of each packet of one direction, decided without I/O.

use std::time::Duration;

use pelago_random::Random;

use crate::shape::{Cut, MILLION, Runs, Shape};

/// The fate of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The packet arrives.
    Arrives {
        /// The time of arrival, by the clock of the caller.
        at: Duration,
    },
    /// The packet is lost on the way.
    Lost,
    /// The queue in front of the link has no room for it.
    Overflowed,
    /// The link is cut.
    Cut,
}

/// Packets and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Packets.
    pub packets: u64,
    /// Bytes of IP packets.
    pub bytes: u64,
}

/// The packets of a direction, by their fates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketCounts {
    /// All packets that came.
    pub came: Tally,
    /// Packets that were handed over.
    pub forwarded: Tally,
    /// Packets with [`Fate::Lost`].
    pub lost: Tally,
    /// Packets with [`Fate::Overflowed`].
    pub overflowed: Tally,
    /// Packets with [`Fate::Cut`].
    pub cut: Tally,
    /// Packets that were under way as the link was severed.
    pub severed: Tally,
    /// Packets that the device at the other end refused.
    pub refused: Tally,
}

/// One direction of a link. The fate of a packet depends on the seed and its number only, except
/// for queue and cut.
#[derive(Debug)]
pub struct Direction {
    /// The settings for packets from now on.
    pub shape: Shape,
    /// The fates of all packets up to now.
    pub counts: PacketCounts,
    random: Random,
    /// Packets that the last loss still takes.
    losing: u64,
    /// The time at which the last packet has left the queue.
    free_at: Duration,
    /// The time at which the last packet arrives: packets stay in order, also if the delay becomes
    /// shorter.
    last_at: Duration,
}

impl Direction {
    /// Returns a direction that nothing has passed.
    #[must_use]
    pub fn new(shape: Shape, seed: u64) -> Self {
        let random = Random::new(seed);
        let zero = Duration::ZERO;
        let counts = PacketCounts::default();
        Self { shape, counts, random, losing: 0, free_at: zero, last_at: zero }
    }

    /// Decides the fate of a packet of `length` bytes that comes now. Times do not go back.
    pub fn admit(&mut self, length: usize, now: Duration) -> Fate {
        let length = length as u64;
        let is_lost = self.is_lost();
        self.counts.came.add(length);
        if self.shape.cut != Cut::Whole {
            self.counts.cut.add(length);
            return Fate::Cut;
        }
        if is_lost {
            self.counts.lost.add(length);
            return Fate::Lost;
        }
        let begins = self.free_at.max(now);
        self.free_at = begins;
        if let Some(rate) = self.shape.rate {
            if waiting_bytes(begins - now, rate) + length > self.shape.queue_bytes() {
                self.counts.overflowed.add(length);
                return Fate::Overflowed;
            }
            self.free_at += Duration::from_nanos(length.saturating_mul(1_000_000_000) / rate);
        }
        self.last_at = self.last_at.max(self.free_at + self.shape.delay);
        Fate::Arrives { at: self.last_at }
    }

    /// Decides whether the next packet is lost. A run begins with the chance by which, at its mean
    /// length, the share of lost packets is the one that was set.
    fn is_lost(&mut self) -> bool {
        let Shape { loss, runs, .. } = self.shape;
        if self.losing == 0 {
            let whole = loss + runs.mean() * (MILLION - loss);
            if self.random.below(whole) >= loss {
                return false;
            }
            self.losing = match runs {
                Runs::One => 1,
                Runs::Fixed(length) => length,
                Runs::Geometric(mean) => self.geometric(mean),
            };
        }
        self.losing -= 1;
        true
    }

    /// Returns a random length of a run with this mean.
    fn geometric(&mut self, mean: u64) -> u64 {
        let mut length = 1;
        while self.random.below(mean) != 0 {
            length += 1;
        }
        length
    }
}

impl Tally {
    /// Counts a packet.
    pub(crate) const fn add(&mut self, length: u64) {
        self.packets += 1;
        self.bytes += length;
    }
}

/// Returns the bytes that leave in this time.
fn waiting_bytes(time: Duration, rate: u64) -> u64 {
    u64::try_from(time.as_nanos() * u128::from(rate) / 1_000_000_000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    fn fates(direction: &mut Direction, packets: usize) -> Vec<Fate> {
        (0..packets).map(|_| direction.admit(1000, ms(0))).collect()
    }

    #[test]
    fn a_packet_arrives_after_the_delay() {
        let mut direction = Direction::new(Shape { delay: ms(50), ..Shape::default() }, 1);
        assert_eq!(direction.admit(1500, ms(3)), Fate::Arrives { at: ms(53) });
        assert_eq!(direction.admit(40, ms(3)), Fate::Arrives { at: ms(53) });
        direction.shape.delay = ms(1);
        assert_eq!(direction.admit(40, ms(4)), Fate::Arrives { at: ms(53) }, "not before the last");
    }

    /// At 1 MB/s a packet of 1,000 bytes takes a millisecond, and a queue of 3,000 bytes has room
    /// for three.
    #[test]
    fn packets_wait_for_the_rate_and_overflow_the_queue() {
        let shape =
            Shape { rate: Some(1_000_000), queue: Some(3000), delay: ms(10), ..Shape::default() };
        let mut direction = Direction::new(shape, 1);
        let at = |number| Fate::Arrives { at: ms(number) };
        assert_eq!(fates(&mut direction, 4), [at(11), at(12), at(13), Fate::Overflowed]);
        assert_eq!(direction.admit(1000, ms(1)), at(14), "one has left");
        assert_eq!(direction.admit(1000, ms(100)), at(111), "an idle link saves nothing up");
        assert_eq!(direction.counts.overflowed, Tally { packets: 1, bytes: 1000 });
        assert_eq!(direction.counts.came, Tally { packets: 6, bytes: 6000 });
    }

    /// 100,000 packets with a loss of 1 %: five standard deviations are 157 packets.
    #[test]
    fn as_many_packets_are_lost_as_was_said() {
        let mut direction = Direction::new(Shape { loss: 10_000, ..Shape::default() }, 7);
        let lost = fates(&mut direction, 100_000);
        let lost = lost.iter().filter(|fate| **fate == Fate::Lost).count() as u64;
        assert!(lost.abs_diff(1000) < 157, "{lost}");
        assert_eq!(direction.counts.lost, Tally { packets: lost, bytes: lost * 1000 });
    }

    /// Returns the lengths of the runs of lost packets.
    fn runs(fates: &[Fate]) -> Vec<usize> {
        let runs = fates.chunk_by(|one, next| (*one == Fate::Lost) == (*next == Fate::Lost));
        runs.filter(|run| run[0] == Fate::Lost).map(<[Fate]>::len).collect()
    }

    /// 200,000 packets with a loss of 1 % in runs of 5: 400 runs. Runs can follow each other
    /// without a gap, once in 500 times.
    #[test]
    fn a_burst_takes_packets_in_a_row_and_the_share_stays() {
        let shape = Shape { loss: 10_000, runs: Runs::Fixed(5), ..Shape::default() };
        let runs = runs(&fates(&mut Direction::new(shape, 3), 200_000));
        assert!(runs.iter().all(|run| run % 5 == 0), "{runs:?}");
        assert!(runs.iter().filter(|run| **run == 5).count() * 100 > runs.len() * 97, "{runs:?}");
        let lost: usize = runs.iter().sum();
        assert!(lost.abs_diff(2000) < 500, "{lost}");
    }

    /// Of 400 geometric runs with a mean of 5 a fifth has length 1, and a third more than 5.
    #[test]
    fn runs_of_the_model_of_gilbert_have_all_lengths_and_the_share_stays() {
        let shape = Shape { loss: 10_000, runs: Runs::Geometric(5), ..Shape::default() };
        let runs = runs(&fates(&mut Direction::new(shape, 3), 200_000));
        let lost: usize = runs.iter().sum();
        assert!(lost.abs_diff(2000) < 750, "{lost}");
        let share = |count: usize| count * 100 / runs.len();
        let single = share(runs.iter().filter(|run| **run == 1).count());
        let long = share(runs.iter().filter(|run| **run > 5).count());
        assert!((10..30).contains(&single) && (23..43).contains(&long), "{single} {long}");
    }

    #[test]
    fn a_loss_of_everything_loses_everything_in_runs_too() {
        for runs in [Runs::One, Runs::Fixed(4), Runs::Geometric(4)] {
            let shape = Shape { loss: MILLION, runs, ..Shape::default() };
            assert_eq!(fates(&mut Direction::new(shape, 1), 50), [Fate::Lost; 50]);
        }
    }

    #[test]
    fn a_seed_loses_the_same_packets_and_another_seed_others() {
        let of = |seed| {
            fates(&mut Direction::new(Shape { loss: 100_000, ..Shape::default() }, seed), 500)
        };
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
    }

    #[test]
    fn nothing_passes_a_cut_link_and_the_fates_behind_it_stay_the_same() {
        let shape = Shape { loss: 500_000, ..Shape::default() };
        let mut cut = Direction::new(shape, 5);
        cut.shape.cut = Cut::Closed;
        assert_eq!(fates(&mut cut, 10), [Fate::Cut; 10]);
        assert_eq!(cut.counts.cut.packets, 10);
        cut.shape.cut = Cut::Whole;
        let mut whole = Direction::new(shape, 5);
        fates(&mut whole, 10);
        assert_eq!(fates(&mut cut, 100), fates(&mut whole, 100));
    }
}
