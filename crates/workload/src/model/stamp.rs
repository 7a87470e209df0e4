//! A file time that the clock of the file system under test sets.

use pelago_wire::Time;

/// A time of a file. The model does not know its value, only the last observed one and whether an
/// operation has changed it since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// Not observed yet.
    Unknown,
    /// This time: it was observed or set, and nothing has changed it.
    Exact(Time),
    /// This time or a newer one: an operation may have changed it.
    Maybe(Time),
    /// A time newer than this one: an operation has changed it.
    Changed(Time),
}

impl Stamp {
    /// Records an operation that must change it.
    pub(crate) const fn change(&mut self) {
        *self = match *self {
            Self::Unknown => Self::Unknown,
            Self::Exact(time) | Self::Maybe(time) | Self::Changed(time) => Self::Changed(time),
        };
    }

    /// Records an operation that may change it.
    pub(crate) const fn maybe_change(&mut self) {
        if let Self::Exact(time) = *self {
            *self = Self::Maybe(time);
        }
    }

    /// Compares an observed time and stores it. With `strict` a changed time must be newer,
    /// otherwise it may be equal.
    ///
    /// # Errors
    /// The expected stamp.
    pub(crate) fn observe(&mut self, time: Time, strict: bool) -> Result<(), Self> {
        let fits = match *self {
            Self::Unknown => true,
            Self::Exact(known) => time == known,
            Self::Maybe(known) => time >= known,
            Self::Changed(known) => time > known || (!strict && time == known),
        };
        if !fits {
            return Err(*self);
        }
        *self = Self::Exact(time);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Time {
        Time { seconds, nanos: 0 }
    }

    #[test]
    fn an_unchanged_time_stays() {
        let mut stamp = Stamp::Unknown;
        assert_eq!(stamp.observe(at(5), true), Ok(()));
        assert_eq!(stamp.observe(at(6), true), Err(Stamp::Exact(at(5))));
        stamp.maybe_change();
        assert_eq!(stamp.observe(at(4), true), Err(Stamp::Maybe(at(5))));
        assert_eq!(stamp.observe(at(5), true), Ok(()));
    }

    #[test]
    fn a_changed_time_is_newer() {
        let mut stamp = Stamp::Exact(at(5));
        stamp.change();
        stamp.maybe_change();
        assert_eq!(stamp.observe(at(5), true), Err(Stamp::Changed(at(5))));
        assert_eq!(stamp.observe(at(5), false), Ok(()));
        stamp.change();
        assert_eq!(stamp.observe(at(6), true), Ok(()));
    }
}
