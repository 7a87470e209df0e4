//! The properties of a direction of the link, and the words that set them.

use std::time::Duration;

/// The least queue, unless one is set.
const LEAST_QUEUE_BYTES: u64 = 64 << 10;
/// Loss is given in parts of this number.
pub(crate) const MILLION: u64 = 1_000_000;
/// The longest delay that can be set.
const MOST_DELAY: Duration = Duration::from_secs(60);

/// The properties of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shape {
    /// The time that a packet travels after the queue.
    pub delay: Duration,
    /// Bytes of IP packets in a second; `None` for no limit.
    pub rate: Option<u64>,
    /// Bytes that may wait for the rate; `None` for the product of rate and round trip, at least 64
    /// KiB. A packet that does not fit is dropped.
    pub queue: Option<u64>,
    /// Packets that are lost, of a million.
    pub loss: u64,
    /// True if nothing passes.
    pub is_cut: bool,
}

/// Both directions: from the first namespace to the second, and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shapes {
    /// The directions: from the first to the second, and from the second to the first.
    pub each: [Shape; 2],
}

/// The reason for which a word sets nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not [ab.|ba.]KEY=NUMBER with delay (µs), rate (bytes/s), queue, loss (ppm), cut")]
pub struct SettingError(pub String);

impl Shape {
    /// Returns the number of bytes that may wait for the rate.
    #[must_use]
    pub fn queue_bytes(&self) -> u64 {
        let round_trip = (self.delay * 2).as_micros();
        let product = u128::from(self.rate.unwrap_or(0)) * round_trip / u128::from(MILLION);
        let product = u64::try_from(product).unwrap_or(u64::MAX);
        self.queue.unwrap_or_else(|| product.max(LEAST_QUEUE_BYTES))
    }

    /// Changes one property; returns `None` if there is none of this name, or the number is too
    /// large.
    fn set(&mut self, key: &str, number: u64) -> Option<()> {
        match key {
            "delay" => {
                let delay = Duration::from_micros(number);
                self.delay = (delay <= MOST_DELAY).then_some(delay)?;
            }
            "rate" => self.rate = (number > 0).then_some(number),
            "queue" => self.queue = Some(number),
            "loss" => self.loss = (number <= MILLION).then_some(number)?,
            "cut" => self.is_cut = number != 0,
            _ => return None,
        }
        Some(())
    }
}

impl Shapes {
    /// Sets the property that a word names, as `loss=10000` for both directions or
    /// `ab.rate=1000000` for one.
    ///
    /// # Errors
    /// Returns [`SettingError`] if the word means nothing; nothing is changed then.
    pub fn set(&mut self, word: &str) -> Result<(), SettingError> {
        let (name, number) = word.split_once('=').unwrap_or((word, ""));
        let (chosen, key) = match name.split_once('.') {
            None => (0..2, name),
            Some(("ab", key)) => (0..1, key),
            Some(("ba", key)) => (1..2, key),
            Some(_) => return Err(SettingError(word.to_owned())),
        };
        let mut changed = *self;
        let set = number.parse().ok().and_then(|number| {
            let mut shapes = changed.each[chosen].iter_mut();
            shapes.try_for_each(|shape| shape.set(key, number))
        });
        set.ok_or_else(|| SettingError(word.to_owned()))?;
        *self = changed;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_set_both_directions_or_one() {
        let mut shapes = Shapes::default();
        for word in ["delay=37500", "rate=5625000", "ab.loss=100000", "ba.cut=1", "ba.rate=0"] {
            shapes.set(word).unwrap();
        }
        let delay = Duration::from_micros(37_500);
        let there = Shape { delay, rate: Some(5_625_000), loss: 100_000, ..Shape::default() };
        let back = Shape { delay, is_cut: true, ..Shape::default() };
        assert_eq!(shapes.each, [there, back]);
    }

    #[test]
    fn a_word_that_means_nothing_changes_nothing() {
        let mut shapes = Shapes::default();
        for word in ["", "loss", "loss=", "loss=1000001", "aa.loss=1", "width=3", "delay=-1"] {
            assert_eq!(shapes.set(word), Err(SettingError(word.to_owned())));
        }
        assert_eq!(shapes, Shapes::default());
    }

    #[test]
    fn the_queue_holds_what_is_under_way_unless_it_is_set() {
        let delay = Duration::from_millis(50);
        let shape = Shape { delay, rate: Some(12_500_000), ..Shape::default() };
        assert_eq!(shape.queue_bytes(), 1_250_000);
        assert_eq!(Shape { queue: Some(9), ..shape }.queue_bytes(), 9);
        assert_eq!(Shape { rate: Some(1), ..shape }.queue_bytes(), LEAST_QUEUE_BYTES);
    }
}
