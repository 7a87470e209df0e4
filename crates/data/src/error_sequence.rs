//! Errors of writing back, kept until everybody who must know has been told.
//!
//! It is Linux's `errseq_t` (`lib/errseq.c`): a file counts its errors, each descriptor remembers
//! the count that it knows, and learns of a newer one once. A descriptor that is opened behind an
//! error is told too if no other was told before.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pelago_wire::Error;

/// The errors of one file that were found when no descriptor asked.
#[derive(Debug, Default)]
pub(crate) struct ErrorSequence {
    /// Whether there was an error: spares the lock on every fsync of a healthy file.
    any: AtomicBool,
    /// A leaf.
    last: Mutex<Option<Last>>,
}

/// The newest error.
#[derive(Debug, Clone, Copy)]
struct Last {
    error: Error,
    /// Counted from 1.
    number: u64,
    /// A descriptor was told.
    seen: bool,
}

impl ErrorSequence {
    /// A file that is opened behind an error nobody was told of, if there was one.
    pub(crate) fn after(unseen: Option<Error>) -> Self {
        let errors = Self::default();
        if let Some(error) = unseen {
            errors.record(error);
        }
        errors
    }

    /// Records an error: every descriptor that is open now is told once.
    pub(crate) fn record(&self, error: Error) {
        let mut last = self.last.lock();
        let number = last.map_or(0, |last| last.number) + 1;
        *last = Some(Last { error, number, seen: false });
        self.any.store(true, Ordering::Release);
    }

    /// Returns the count that a descriptor starts from: it is told of an error before it only if no
    /// other was told.
    pub(crate) fn sample(&self) -> u64 {
        if !self.has_any() {
            return 0;
        }
        self.last.lock().filter(|last| last.seen).map_or(0, |last| last.number)
    }

    /// Returns the newest error if it is newer than `since`, which becomes its count.
    pub(crate) fn check(&self, since: &mut u64) -> Option<Error> {
        if !self.has_any() {
            return None;
        }
        let mut last = self.last.lock();
        let last = last.as_mut().filter(|last| last.number > *since)?;
        last.seen = true;
        *since = last.number;
        Some(last.error)
    }

    /// Whether there ever was an error.
    pub(crate) fn has_any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Returns the newest error if no descriptor was told of it.
    pub(crate) fn unseen(&self) -> Option<Error> {
        if !self.has_any() {
            return None;
        }
        self.last.lock().filter(|last| !last.seen).map(|last| last.error)
    }

    /// Returns the newest error if nobody was told of it; the caller is told now.
    pub(crate) fn tell_unseen(&self) -> Option<Error> {
        let unseen = self.unseen()?;
        if let Some(last) = self.last.lock().as_mut() {
            last.seen = true;
        }
        Some(unseen)
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::Code;

    use super::*;

    const IO: Error = Error { code: Code::Io };
    const FULL: Error = Error { code: Code::NoSpace };

    #[test]
    fn every_descriptor_that_was_open_is_told_once() {
        let errors = ErrorSequence::default();
        let (mut one, mut other) = (errors.sample(), errors.sample());
        assert_eq!(errors.check(&mut one), None);
        errors.record(IO);
        assert_eq!([errors.check(&mut one), errors.check(&mut one)], [Some(IO), None]);
        assert_eq!([errors.check(&mut other), errors.check(&mut other)], [Some(IO), None]);
    }

    #[test]
    fn a_descriptor_opened_behind_an_error_is_told_only_if_no_other_was() {
        let errors = ErrorSequence::after(Some(IO));
        let (mut first, mut second) = (errors.sample(), errors.sample());
        assert_eq!(errors.check(&mut first), Some(IO));
        let mut third = errors.sample();
        assert_eq!(errors.check(&mut third), None);
        assert_eq!(errors.check(&mut second), Some(IO), "it was open before any was told");
    }

    #[test]
    fn the_newest_error_counts() {
        let errors = ErrorSequence::default();
        let mut since = errors.sample();
        errors.record(IO);
        errors.record(FULL);
        assert_eq!([errors.check(&mut since), errors.check(&mut since)], [Some(FULL), None]);
        errors.record(IO);
        assert_eq!(errors.unseen(), Some(IO));
        assert_eq!([errors.tell_unseen(), errors.tell_unseen()], [Some(IO), None]);
        assert_eq!(errors.check(&mut since), Some(IO));
    }
}
