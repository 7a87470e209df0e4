//! The size up to which a new file goes home with its close: what the line takes in the time of a
//! round trip.
//!
//! A close that sends more would take as long as the line needs for the bytes, and they are on this
//! site's disk already. A line is known by what was sent over it: it is taken for fast at first.

use std::time::Duration;

use pelago_wire::limits;

/// An answer that takes so much longer than twice the fastest one is slow: the other server, or
/// this one, had other work.
const PATIENCE: Duration = Duration::from_millis(10);

/// The size, by the files that were sent.
#[derive(Debug)]
pub(super) struct CloseBytes {
    most: usize,
    /// The time of the fastest answer.
    fastest: Option<Duration>,
}

impl Default for CloseBytes {
    fn default() -> Self {
        Self { most: limits::STAY_LEAST_BYTES, fastest: None }
    }
}

impl CloseBytes {
    /// Returns the most bytes that are sent.
    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// Records that a request with so many bytes of a file, or with none, was answered after a
    /// time.
    pub(super) fn note(&mut self, bytes: usize, took: Duration) {
        let fastest = match self.fastest {
            // The line itself may be longer now.
            Some(fastest) if bytes == 0 && took > fastest => fastest + (took - fastest) / 8,
            Some(fastest) => fastest.min(took),
            None => took,
        };
        self.fastest = Some(fastest);
        let is_slow = took > 2 * fastest + PATIENCE;
        if is_slow && bytes > limits::SENT_AT_CLOSE_BYTES {
            self.most = (bytes / 2).clamp(limits::SENT_AT_CLOSE_BYTES, self.most);
        } else if !is_slow && bytes > self.most / 2 {
            self.most = (2 * self.most).min(limits::STAY_LEAST_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// Closes files of these sizes over a line with this round trip, which takes a kilobyte in
    /// `kilobyte`. Returns the bytes of the largest file that was sent in the end.
    fn after(sizes: &[usize], round_trip: Duration, kilobyte: Duration) -> usize {
        let mut close = CloseBytes::default();
        for bytes in sizes {
            // Of the request that makes the file.
            close.note(0, round_trip);
            if *bytes <= close.most() {
                close.note(*bytes, round_trip + kilobyte * (*bytes / 1024) as u32);
            }
        }
        close.most()
    }

    #[test]
    fn on_a_fast_line_all_are_sent() {
        let sizes = [10, 64 << 10, 30 << 10, 64 << 10];
        assert_eq!(after(&sizes, MILLISECOND, MILLISECOND / 100), limits::STAY_LEAST_BYTES);
        // Long, but wide: 100 ms and 100 Mbit/s.
        assert_eq!(after(&sizes, 100 * MILLISECOND, MILLISECOND / 12), limits::STAY_LEAST_BYTES);
    }

    #[test]
    fn on_a_slow_line_what_takes_longer_than_a_round_trip_stays() {
        // 30 ms and 1 Mbit/s: 8 ms for a kilobyte.
        for sizes in [&[64 << 10][..], &[100, 64 << 10, 20 << 10, 3 << 10]] {
            let sizes = sizes.repeat(10);
            let most = after(&sizes, 30 * MILLISECOND, 8 * MILLISECOND);
            assert!((limits::SENT_AT_CLOSE_BYTES..=32 << 10).contains(&most), "{most}");
        }
    }

    #[test]
    fn a_line_that_has_become_longer_is_learned() {
        let mut close = CloseBytes::default();
        close.note(0, MILLISECOND);
        close.note(60_000, 100 * MILLISECOND);
        assert_eq!(close.most(), 30_000);
        (0..50).for_each(|_| close.note(0, 100 * MILLISECOND));
        close.note(close.most(), 105 * MILLISECOND);
        assert_eq!(close.most(), 60_000);
    }

    #[test]
    fn what_was_slow_once_is_tried_again_by_smaller_files() {
        let mut close = CloseBytes::default();
        close.note(100, MILLISECOND);
        close.note(20_000, 500 * MILLISECOND);
        assert_eq!(close.most(), 10_000);
        close.note(4_000, MILLISECOND);
        assert_eq!(close.most(), 10_000, "it says little of larger ones");
        for _ in 0..4 {
            close.note(close.most(), MILLISECOND);
        }
        assert_eq!(close.most(), limits::STAY_LEAST_BYTES);
        // A small file is sent on any line.
        close.note(limits::SENT_AT_CLOSE_BYTES, 900 * MILLISECOND);
        assert_eq!(close.most(), limits::STAY_LEAST_BYTES);
    }
}
