//! The limits of all pins together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pelago_wire::limits;

/// Limits of all pins.
#[derive(Debug, Clone, Copy)]
pub struct PinLimits {
    /// The number of pins.
    pub pins: u64,
    /// Bytes of small files in memory.
    pub memory: u64,
    /// The size of the largest file that is copied before it changes.
    pub copy: u64,
    /// Bytes of all copies.
    pub copies: u64,
}

impl Default for PinLimits {
    fn default() -> Self {
        Self {
            pins: limits::PINS as u64,
            memory: limits::PINNED_MEMORY_BYTES,
            copy: limits::PIN_COPY_BYTES,
            copies: limits::PIN_COPIES_BYTES,
        }
    }
}

/// The amounts that pins have taken of their limits.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    limits: PinLimits,
    pins: Arc<AtomicU64>,
    memory: Arc<AtomicU64>,
    copies: Arc<AtomicU64>,
}

/// A part of a limit, given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    of: Arc<AtomicU64>,
    amount: u64,
}

impl Budget {
    /// Returns a budget of which nothing is taken.
    pub(crate) fn new(limits: PinLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Takes `count` pins.
    pub(crate) fn pins(&self, count: u64) -> Option<Share> {
        Share::take(&self.pins, count, self.limits.pins)
    }

    /// Takes `bytes` bytes of memory.
    pub(crate) fn memory(&self, bytes: u64) -> Option<Share> {
        Share::take(&self.memory, bytes, self.limits.memory)
    }

    /// Takes the bytes of one copy.
    pub(crate) fn copy(&self, bytes: u64) -> Option<Share> {
        let fits = bytes <= self.limits.copy;
        fits.then(|| Share::take(&self.copies, bytes, self.limits.copies)).flatten()
    }

    /// Counts the bytes of all copies.
    #[cfg(test)]
    pub(crate) fn copied(&self) -> u64 {
        self.copies.load(Ordering::Relaxed)
    }

    /// Counts the pins.
    #[cfg(test)]
    pub(crate) fn pinned(&self) -> u64 {
        self.pins.load(Ordering::Relaxed)
    }
}

impl Share {
    fn take(of: &Arc<AtomicU64>, amount: u64, limit: u64) -> Option<Self> {
        let more = |taken: u64| taken.checked_add(amount).filter(|taken| *taken <= limit);
        let taken = of.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Self { of: Arc::clone(of), amount })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.fetch_sub(self.amount, Ordering::Relaxed);
    }
}
