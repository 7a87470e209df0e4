//! Writeback errors of a file, kept until each descriptor has reported them.
//!
//! This is Linux's `errseq_t` (`lib/errseq.c`): a file counts its errors; each descriptor records
//! the last count that it reported, and reports a newer error once. A descriptor that is opened
//! after an error reports it too, unless another descriptor did before.

use std::sync::atomic::{AtomicBool, Ordering};

use pelago_store::sync::Mutex;
use pelago_wire::Error;

/// The writeback errors of one file.
#[derive(Debug, Default)]
pub(crate) struct ErrorSequence {
    /// True if there ever was an error. Spares the lock on every fsync of a healthy file.
    any: AtomicBool,
    /// A leaf lock.
    last: Mutex<Option<Last>>,
}

/// The newest error.
#[derive(Debug, Clone, Copy)]
struct Last {
    error: Error,
    /// Counted from 1.
    number: u64,
    /// True if a descriptor has reported it.
    seen: bool,
}

impl ErrorSequence {
    /// Returns the errors of a file that is opened after an `unseen` error, which no descriptor has
    /// reported.
    pub(crate) fn after(unseen: Option<Error>) -> Self {
        let errors = Self::default();
        if let Some(error) = unseen {
            errors.record(error);
        }
        errors
    }

    /// Records an error: every descriptor that is open now reports it once.
    pub(crate) fn record(&self, error: Error) {
        let mut last = self.last.lock();
        let number = last.map_or(0, |last| last.number) + 1;
        *last = Some(Last { error, number, seen: false });
        self.any.store(true, Ordering::Release);
    }

    /// Returns the count from which a new descriptor starts: it reports an earlier error only if
    /// no other descriptor did.
    pub(crate) fn sample(&self) -> u64 {
        if !self.has_any() {
            return 0;
        }
        self.last.lock().filter(|last| last.seen).map_or(0, |last| last.number)
    }

    /// Returns the newest error if it is newer than `since`, and sets `since` to its count.
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

    /// Returns whether there ever was an error.
    pub(crate) fn has_any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Returns the newest error if no descriptor has reported it.
    pub(crate) fn unseen(&self) -> Option<Error> {
        if !self.has_any() {
            return None;
        }
        self.last.lock().filter(|last| !last.seen).map(|last| last.error)
    }

    /// Returns the newest error if no descriptor has reported it; it counts as reported now.
    pub(crate) fn take_unseen(&self) -> Option<Error> {
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
    fn every_descriptor_that_was_open_reports_an_error_once() {
        let errors = ErrorSequence::default();
        let mut one = errors.sample();
        let mut other = errors.sample();
        assert_eq!(errors.check(&mut one), None);
        errors.record(IO);
        assert_eq!([errors.check(&mut one), errors.check(&mut one)], [Some(IO), None]);
        assert_eq!([errors.check(&mut other), errors.check(&mut other)], [Some(IO), None]);
    }

    #[test]
    fn a_descriptor_opened_after_an_error_reports_it_only_if_no_other_did() {
        let errors = ErrorSequence::after(Some(IO));
        let mut first = errors.sample();
        let mut second = errors.sample();
        assert_eq!(errors.check(&mut first), Some(IO));
        let mut third = errors.sample();
        assert_eq!(errors.check(&mut third), None);
        assert_eq!(errors.check(&mut second), Some(IO), "it was open before any reported it");
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
        assert_eq!([errors.take_unseen(), errors.take_unseen()], [Some(IO), None]);
        assert_eq!(errors.check(&mut since), Some(IO));
    }
}
