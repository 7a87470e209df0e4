//! Syncs that failed, and which descriptors were told: as `errseq_t` in Linux.

use std::collections::BTreeMap;

use rustix::io::Errno;

/// The failed syncs of all files, and the open descriptors.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    /// Of each file, how many syncs have failed, and how the last one did.
    failed: BTreeMap<u64, (u64, Errno)>,
    /// Of each descriptor, how many of those it knows of.
    known: BTreeMap<u64, u64>,
    next: u64,
}

impl Errors {
    /// A descriptor is opened. What failed before was told to the descriptor that synced.
    pub(crate) fn open(&mut self, ino: u64) -> u64 {
        self.next += 1;
        self.known.insert(self.next, self.count(ino));
        self.next
    }

    pub(crate) fn close(&mut self, handle: u64) {
        self.known.remove(&handle);
    }

    /// A sync fails.
    pub(crate) fn add(&mut self, ino: u64, error: Errno) {
        self.failed.insert(ino, (self.count(ino) + 1, error));
    }

    /// Tells a descriptor of what failed since it was opened or told.
    pub(crate) fn tell(&mut self, ino: u64, handle: u64) -> Result<(), Errno> {
        let Some((count, error)) = self.failed.get(&ino) else { return Ok(()) };
        match self.known.insert(handle, *count) {
            Some(known) if known == *count => Ok(()),
            _ => Err(*error),
        }
    }

    fn count(&self, ino: u64) -> u64 {
        self.failed.get(&ino).map_or(0, |(count, _)| *count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_descriptor_that_was_open_is_told_once() {
        let mut errors = Errors::default();
        let [one, two] = [errors.open(7), errors.open(7)];
        let other = errors.open(8);
        errors.add(7, Errno::IO);
        let three = errors.open(7);
        assert_eq!(errors.tell(7, one), Err(Errno::IO));
        assert_eq!(errors.tell(7, one), Ok(()));
        assert_eq!(errors.tell(7, three), Ok(()));
        assert_eq!(errors.tell(8, other), Ok(()));
        errors.add(7, Errno::NOSPC);
        assert_eq!(errors.tell(7, two), Err(Errno::NOSPC));
        assert_eq!(errors.tell(7, two), Ok(()));
    }
}
