//! A path with a bottleneck, its queue, a delay and losses, without a clock.

use std::collections::VecDeque;
use std::time::Duration;

/// Numbers that a seed determines (splitmix64, Steele et al., OOPSLA 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in 0..1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn happens(&mut self, chance: f64) -> bool {
        self.unit() < chance
    }
}

/// One direction of a path.
pub(crate) struct Path<T> {
    /// Bytes per second of the bottleneck.
    pub(crate) rate: f64,
    /// From the bottleneck to the other end.
    pub(crate) delay: Duration,
    /// What the queue holds, as the time that it takes to leave.
    pub(crate) queue: Duration,
    /// The chance that a burst of losses begins at a datagram.
    pub(crate) loss: f64,
    /// Datagrams of a burst.
    pub(crate) burst: u32,
    pub(crate) random: Random,
    pub(crate) dropped_by_queue: u64,
    pub(crate) dropped_by_loss: u64,
    burst_left: u32,
    busy_until: Duration,
    under_way: VecDeque<(Duration, T)>,
}

impl<T> Path<T> {
    /// Returns a path of so many Mbit/s, with a queue of as long as its delay.
    pub(crate) fn new(megabits: f64, delay: Duration, loss: f64, seed: u64) -> Self {
        Self {
            rate: megabits * 125_000.0,
            delay,
            queue: delay,
            loss,
            burst: 1,
            random: Random(seed),
            dropped_by_queue: 0,
            dropped_by_loss: 0,
            burst_left: 0,
            busy_until: Duration::ZERO,
            under_way: VecDeque::new(),
        }
    }

    /// Sends a datagram.
    pub(crate) fn send(&mut self, now: Duration, bytes: usize, datagram: T) {
        if !self.occupy(now, bytes) {
            self.dropped_by_queue += 1;
            return;
        }
        if self.burst_left == 0 && self.random.happens(self.loss) {
            self.burst_left = self.burst;
        }
        if self.burst_left > 0 {
            self.burst_left -= 1;
            self.dropped_by_loss += 1;
            return;
        }
        self.under_way.push_back((self.busy_until + self.delay, datagram));
    }

    /// Returns when the last one has left the bottleneck.
    pub(crate) fn leaves(&self) -> Duration {
        self.busy_until
    }

    /// Takes the bottleneck for so many bytes. Returns whether there was room in the queue.
    pub(crate) fn occupy(&mut self, now: Duration, bytes: usize) -> bool {
        let begin = self.busy_until.max(now);
        if begin - now > self.queue {
            return false;
        }
        self.busy_until = begin + Duration::from_secs_f64(bytes as f64 / self.rate);
        true
    }

    /// Returns the next datagram that has arrived.
    pub(crate) fn poll(&mut self, now: Duration) -> Option<T> {
        if self.next()? > now {
            return None;
        }
        self.under_way.pop_front().map(|(_, datagram)| datagram)
    }

    /// Returns when the next one arrives.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.under_way.front().map(|(at, _)| *at)
    }
}
