//! The numbers that have arrived, so that none arrives twice (RFC 4303, 3.4.3).

use pelago_wire::limits;

/// Words of the window.
const WORDS: usize = limits::REPLAY_NUMBERS / 64;

/// The newest numbers, a bit each. Older ones count as seen.
#[derive(Debug)]
pub struct ReplayWindow {
    /// By the number modulo [`limits::REPLAY_NUMBERS`].
    words: Box<[u64; WORDS]>,
    /// The first number above all that have arrived.
    next: u64,
}

impl ReplayWindow {
    /// Returns a window that has seen no number.
    #[must_use]
    pub fn new() -> Self {
        Self { words: Box::new([0; WORDS]), next: 0 }
    }

    /// Returns whether a number has not been seen and is not too old: whether it is worth to open
    /// its seal.
    #[must_use]
    pub fn is_new(&self, number: u64) -> bool {
        let is_old = number.saturating_add(limits::REPLAY_NUMBERS as u64) < self.next;
        number >= self.next || !is_old && !self.has(number)
    }

    /// Records a number whose seal was opened. Returns whether it is new.
    pub fn insert(&mut self, number: u64) -> bool {
        if !self.is_new(number) {
            return false;
        }
        if number >= self.next {
            // What the bits between have said of older numbers is over.
            let passed = number - self.next;
            if passed >= limits::REPLAY_NUMBERS as u64 {
                self.words.fill(0);
            } else {
                (self.next..=number).for_each(|number| self.set(number, false));
            }
            self.next = number.saturating_add(1);
        }
        self.set(number, true);
        true
    }

    /// Returns the first number above all that have arrived.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Returns whether a number of the window has arrived.
    pub(super) fn has(&self, number: u64) -> bool {
        self.words.get(word(number)).is_some_and(|word| word & bit(number) != 0)
    }

    fn set(&mut self, number: u64, is_seen: bool) {
        if let Some(word) = self.words.get_mut(word(number)) {
            *word = if is_seen { *word | bit(number) } else { *word & !bit(number) };
        }
    }
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self::new()
    }
}

const fn word(number: u64) -> usize {
    (number / 64 % WORDS as u64) as usize
}

const fn bit(number: u64) -> u64 {
    1 << (number % 64)
}
