//! What is known of a time that another clock sets.

use pelago_wire::Time;

/// A time of a file: the model cannot say which it is, but which it was when it was last seen, and
/// whether something has happened since that changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// It was not seen yet.
    Unknown,
    /// It is this: seen or set, and nothing happened since.
    Exact(Time),
    /// It is this or newer: what happened since may have changed it.
    Maybe(Time),
    /// It is newer than this.
    Changed(Time),
}

impl Stamp {
    /// Something happened that must change it.
    pub(crate) const fn change(&mut self) {
        *self = match *self {
            Self::Unknown => Self::Unknown,
            Self::Exact(time) | Self::Maybe(time) | Self::Changed(time) => Self::Changed(time),
        };
    }

    /// Something happened that may change it.
    pub(crate) const fn maybe_change(&mut self) {
        if let Self::Exact(time) = *self {
            *self = Self::Maybe(time);
        }
    }

    /// It was seen to be `time`.
    ///
    /// # Errors
    /// What it should have been. `strict`: what changed must be newer and not the same.
    pub(crate) fn see(&mut self, time: Time, strict: bool) -> Result<(), Self> {
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
    fn a_time_that_nothing_changed_stays() {
        let mut stamp = Stamp::Unknown;
        assert_eq!(stamp.see(at(5), true), Ok(()));
        assert_eq!(stamp.see(at(6), true), Err(Stamp::Exact(at(5))));
        stamp.maybe_change();
        assert_eq!(stamp.see(at(4), true), Err(Stamp::Maybe(at(5))));
        assert_eq!(stamp.see(at(5), true), Ok(()));
    }

    #[test]
    fn a_time_that_must_change_gets_newer() {
        let mut stamp = Stamp::Exact(at(5));
        stamp.change();
        stamp.maybe_change();
        assert_eq!(stamp.see(at(5), true), Err(Stamp::Changed(at(5))));
        assert_eq!(stamp.see(at(5), false), Ok(()));
        stamp.change();
        assert_eq!(stamp.see(at(6), true), Ok(()));
    }
}
