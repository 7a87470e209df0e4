//! Messages that carry the time at which they are due, by a clock that all processes have.

use rustix::time::{ClockId, clock_gettime};

/// The first bytes of each message or of each datagram of one, which say that it is one.
const MARK: u64 = 0x6d65_7373_6167_6531;
const HEAD_BYTES: usize = 24;

/// The head of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message {
    /// When it was due, in nanoseconds; 0 of one that does not count.
    pub(super) sent: u64,
    /// Bytes of all of it.
    pub(super) bytes: usize,
}

impl Message {
    /// Returns the head of bytes that are a message, or a datagram of one.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| {
            let eight = bytes.get(at..at + 8)?;
            Some(u64::from_le_bytes(eight.try_into().ok()?))
        };
        let [mark, sent, length] = [number(0)?, number(8)?, number(16)?];
        (mark == MARK).then_some(Self { sent, bytes: usize::try_from(length).ok()? })
    }

    /// Writes the head into the first bytes.
    pub(super) fn put(self, bytes: &mut [u8]) {
        let head = [MARK, self.sent, self.bytes as u64].map(u64::to_le_bytes).concat();
        bytes[..HEAD_BYTES].copy_from_slice(&head);
    }

    /// Returns the milliseconds from the time at which it was due.
    pub(super) fn millis(self, now: u64) -> f64 {
        now.saturating_sub(self.sent) as f64 / 1e6
    }
}

/// Returns the time of the clock, in nanoseconds.
pub(super) fn now_nanos() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_known_by_its_head() {
        let message = Message { sent: 7_000_000, bytes: 4_000 };
        let mut bytes = [9; 100];
        message.put(&mut bytes);
        assert_eq!(Message::of(&bytes), Some(message));
        assert_eq!(message.millis(9_500_000), 2.5);
        assert_eq!(Message::of(&bytes[..20]), None);
        assert_eq!(Message::of(&[9; 100]), None);
    }
}
