//! Payload pages of a queue's slots that are in memory.

/// Bytes of a payload that stay in memory: one page, in which nearly all requests fit.
const STAY: usize = 4096;

/// The pages of the payloads of a queue.
#[derive(Debug)]
pub(super) struct Resident {
    /// Bytes of each slot beyond [`STAY`].
    slots: Vec<usize>,
    total: usize,
    limit: usize,
}

impl Resident {
    /// Returns the state of a queue without slots. If its payloads have more than `limit` bytes in
    /// memory, a slot's pages are given back as soon as they are not needed.
    pub(super) const fn new(limit: usize) -> Self {
        Self { slots: Vec::new(), total: 0, limit }
    }

    pub(super) fn add_slot(&mut self) {
        self.slots.push(0);
    }

    /// Records that the first `bytes` of a slot's payload were written.
    pub(super) fn used(&mut self, slot: usize, bytes: usize) {
        let more = bytes.saturating_sub(STAY).saturating_sub(self.slots[slot]);
        self.slots[slot] += more;
        self.total += more;
    }

    /// Returns whether any slot has pages to give back.
    pub(super) const fn is_any(&self) -> bool {
        self.total > 0
    }

    /// Returns whether pages are to be given back although requests come.
    pub(super) const fn is_too_much(&self) -> bool {
        self.total > self.limit
    }

    /// Records that a slot's pages are given back. Returns whether it had any.
    pub(super) fn take(&mut self, slot: usize) -> bool {
        let bytes = std::mem::take(&mut self.slots[slot]);
        self.total -= bytes;
        bytes > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_a_page_is_counted_once() {
        let mut resident = Resident::new(100_000);
        (0..3).for_each(|_| resident.add_slot());
        resident.used(0, STAY);
        assert!(!resident.is_any() && !resident.take(0));
        for bytes in [60_000, 50_000, 60_000] {
            resident.used(1, bytes);
        }
        resident.used(2, 40_000);
        assert_eq!(resident.total, 100_000 - 2 * STAY);
        assert!(!resident.is_too_much());
        resident.used(0, 60_000);
        assert!(resident.is_too_much());
        assert!(resident.take(1) && !resident.take(1));
        assert!(!resident.is_too_much());
        assert!(resident.take(0) && resident.take(2) && !resident.is_any());
    }
}
