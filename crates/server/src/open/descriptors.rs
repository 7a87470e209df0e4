//! How many content files may be open at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pelago_wire::{Code, Error, limits};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are left to everything else in the process.
const OTHERS: u64 = 128;

/// The descriptors that content files may have.
#[derive(Debug)]
pub(crate) struct Descriptors {
    limit: usize,
    used: AtomicUsize,
}

/// The right to have one content file open; given back when dropped.
#[derive(Debug)]
pub(crate) struct Descriptor(Arc<Descriptors>);

impl Descriptors {
    /// As many as the process may have, but for some. Raises what it may have as far as it can.
    #[must_use]
    pub(crate) fn of_process() -> Arc<Self> {
        let now = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: now.maximum, maximum: now.maximum };
        let may = match setrlimit(Resource::Nofile, raised) {
            Ok(()) => now.maximum,
            Err(_) => now.current,
        };
        let most = limits::OPEN_FILES as u64;
        let may = may.unwrap_or(most).min(most + OTHERS).saturating_sub(OTHERS).max(1);
        Self::new(usize::try_from(may).unwrap_or(limits::OPEN_FILES))
    }

    /// So many.
    #[must_use]
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0) })
    }

    /// Takes one.
    ///
    /// # Errors
    /// `TooManyOpen`.
    pub(crate) fn take(self: &Arc<Self>) -> Result<Descriptor, Error> {
        let taken = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
            (used < self.limit).then_some(used + 1)
        });
        match taken {
            Ok(_) => Ok(Descriptor(Arc::clone(self))),
            Err(_) => Err(Code::TooManyOpen.into()),
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_and_they_come_back() {
        let descriptors = Descriptors::new(2);
        let one = descriptors.take().unwrap();
        let _other = descriptors.take().unwrap();
        assert_eq!(descriptors.take().unwrap_err().code, Code::TooManyOpen);
        drop(one);
        assert!(descriptors.take().is_ok());
    }
}
