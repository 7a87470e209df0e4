//! The properties of a direction of the link, and the words that set them.

use std::time::Duration;

/// The least queue, unless one is set.
const LEAST_QUEUE_BYTES: u64 = 64 << 10;
/// Loss is given in parts of this number.
pub(crate) const MILLION: u64 = 1_000_000;
/// The longest run of lost packets that can be set.
const LONGEST_RUN: u64 = MILLION;
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
    /// Packets that are lost, of a million, however they are grouped.
    pub loss: u64,
    /// How many packets one loss takes.
    pub runs: Runs,
    /// Whether the link is cut.
    pub cut: Cut,
}

/// How many packets in a row one loss takes. The share of lost packets is that of [`Shape::loss`]
/// in each case: longer runs are rarer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Runs {
    /// One packet: losses are independent of each other.
    #[default]
    One,
    /// Exactly this number of packets, at least 1: now and then a burst.
    Fixed(u64),
    /// A random number with this mean, at least 1: the model of Gilbert, whose bad state loses each
    /// packet, and ends with a chance of one in the mean after each.
    Geometric(u64),
}

/// Whether a link is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cut {
    /// It is whole.
    #[default]
    Whole,
    /// It takes no packets, and those under way still arrive: a cable that is pulled out in front
    /// of it.
    Closed,
    /// It takes no packets, and those under way are lost: a cable that breaks in the middle.
    Severed,
}

/// Both directions: from the first namespace to the second, and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shapes {
    /// The directions: from the first to the second, and from the second to the first.
    pub each: [Shape; 2],
}

/// The reason for which a word sets nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not [ab.|ba.]KEY=NUMBER with delay (µs), rate (bytes/s), queue, loss (ppm), burst, \
     gilbert (packets), cut, sever"
)]
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
            "burst" => self.runs = Runs::of(number, Runs::Fixed)?,
            "gilbert" => self.runs = Runs::of(number, Runs::Geometric)?,
            "cut" => self.cut = if number == 0 { Cut::Whole } else { Cut::Closed },
            "sever" => self.cut = if number == 0 { Cut::Whole } else { Cut::Severed },
            _ => return None,
        }
        Some(())
    }
}

impl Runs {
    /// Returns the kind with this length; [`Self::One`] for 0 and 1, `None` if it is too long.
    fn of(length: u64, kind: fn(u64) -> Self) -> Option<Self> {
        match length {
            0 | 1 => Some(Self::One),
            2..=LONGEST_RUN => Some(kind(length)),
            _ => None,
        }
    }

    /// Returns the length of a run on average.
    pub(crate) const fn mean(self) -> u64 {
        match self {
            Self::One => 1,
            Self::Fixed(length) | Self::Geometric(length) => length,
        }
    }
}

impl Shapes {
    /// Sets the property that a word names, as `loss=10000` for both directions or
    /// `ab.rate=1000000` for one. The last of `burst` and `gilbert` counts, and the last of `cut`
    /// and `sever`; 0 ends each of them.
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
        let back = Shape { delay, cut: Cut::Closed, ..Shape::default() };
        assert_eq!(shapes.each, [there, back]);
    }

    #[test]
    fn the_last_word_says_how_losses_are_grouped_and_how_the_link_is_cut() {
        let after = |words: &[&str]| {
            let mut shapes = Shapes::default();
            words.iter().for_each(|word| shapes.set(word).unwrap());
            (shapes.each[0].runs, shapes.each[0].cut)
        };
        assert_eq!(after(&["burst=4"]), (Runs::Fixed(4), Cut::Whole));
        assert_eq!(after(&["burst=4", "gilbert=6"]), (Runs::Geometric(6), Cut::Whole));
        assert_eq!(after(&["gilbert=6", "burst=1", "cut=1"]), (Runs::One, Cut::Closed));
        assert_eq!(after(&["cut=1", "sever=1"]), (Runs::One, Cut::Severed));
        assert_eq!(after(&["sever=1", "cut=0"]), (Runs::One, Cut::Whole));
    }

    #[test]
    fn a_word_that_means_nothing_changes_nothing() {
        let mut shapes = Shapes::default();
        for word in [
            "",
            "loss",
            "loss=",
            "loss=1000001",
            "burst=1000001",
            "aa.loss=1",
            "width=3",
            "delay=-1",
        ] {
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
