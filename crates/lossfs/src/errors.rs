//! Failed syncs of files: each descriptor that was open gets the last error once, as by `errseq_t`
//! in Linux.

use std::collections::BTreeMap;

use rustix::io::Errno;

/// The failed syncs of all files, and the open descriptors.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    /// The count of failed syncs of each file, and the last error.
    failed: BTreeMap<u64, (u64, Errno)>,
    /// The count of its file's failed syncs when each descriptor was opened or last got an error.
    reported: BTreeMap<u64, u64>,
    /// The last descriptor that was opened.
    last_handle: u64,
}

impl Errors {
    /// Opens a descriptor. Earlier failures were reported to the descriptor that synced.
    pub(crate) fn open(&mut self, ino: u64) -> u64 {
        self.last_handle += 1;
        self.reported.insert(self.last_handle, self.count(ino));
        self.last_handle
    }

    pub(crate) fn close(&mut self, handle: u64) {
        self.reported.remove(&handle);
    }

    /// Records a failed sync.
    pub(crate) fn add(&mut self, ino: u64, error: Errno) {
        self.failed.insert(ino, (self.count(ino) + 1, error));
    }

    /// Returns the error of a sync that failed since the descriptor was opened or had its last
    /// error.
    pub(crate) fn report(&mut self, ino: u64, handle: u64) -> Result<(), Errno> {
        let Some((count, error)) = self.failed.get(&ino) else { return Ok(()) };
        match self.reported.insert(handle, *count) {
            Some(reported) if reported == *count => Ok(()),
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
        assert_eq!(errors.report(7, one), Err(Errno::IO));
        assert_eq!(errors.report(7, one), Ok(()));
        assert_eq!(errors.report(7, three), Ok(()));
        assert_eq!(errors.report(8, other), Ok(()));
        errors.add(7, Errno::NOSPC);
        assert_eq!(errors.report(7, two), Err(Errno::NOSPC));
        assert_eq!(errors.report(7, two), Ok(()));
    }
}
