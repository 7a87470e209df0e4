//! Backings: descriptors of content files that are registered with the kernel (passthrough).
//!
//! The kernel names such a descriptor by a backing id. It refuses an open with a second id for the
//! same inode (`EIO`, Linux 6.9 and later) as long as one open of the inode lasts. So a descriptor
//! is registered with the first open, counted before each reply, and unregistered after the last
//! RELEASE; by then the kernel has closed its own reference.
//!
//! Pages that the kernel cached before passthrough do not change when a program writes by the
//! descriptor. A later open that uses pages must drop them first, so the file stays in this table
//! until the kernel forgets it. The size of the table follows the kernel's own inode cache.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pelago_fuse::device::Backing;
use pelago_wire::InodeId;

use crate::striped::StripedMap;

/// Registered descriptors by file. A descriptor is registered under the file's lock, so that two
/// opens at the same time share one backing id.
pub(crate) struct Backings<B = Backing> {
    registrations: StripedMap<Registration<B>>,
    files: AtomicUsize,
}

struct Registration<B> {
    /// `None` before the first open and after the last release.
    backing: Option<Arc<B>>,
    opens: u32,
}

impl<B> Backings<B> {
    /// Counts one more open of a file, after registering its descriptor if this is the first.
    ///
    /// # Errors
    /// The error of `register`; then the open is not counted.
    pub(crate) fn acquire(
        &self,
        ino: InodeId,
        register: impl FnOnce() -> io::Result<B>,
    ) -> io::Result<Arc<B>> {
        let mut stripe = self.registrations.lock(ino.raw());
        let registration = stripe.entry(ino.raw()).or_insert_with(|| {
            self.files.fetch_add(1, Ordering::AcqRel);
            Registration { backing: None, opens: 0 }
        });
        let backing = match &registration.backing {
            Some(backing) => Arc::clone(backing),
            None => Arc::clone(registration.backing.insert(Arc::new(register()?))),
        };
        registration.opens = registration.opens.saturating_add(1);
        Ok(backing)
    }

    /// Counts one open less, and drops the backing after the last.
    pub(crate) fn release(&self, ino: InodeId) {
        let mut stripe = self.registrations.lock(ino.raw());
        let Some(registration) = stripe.get_mut(&ino.raw()) else { return };
        registration.opens = registration.opens.saturating_sub(1);
        if registration.opens == 0 {
            registration.backing = None;
        }
    }

    /// Returns whether cached pages of a file may be older than its bytes.
    pub(crate) fn has_bypassed(&self, ino: InodeId) -> bool {
        self.files.load(Ordering::Acquire) > 0 && self.registrations.contains(ino.raw())
    }

    /// Forgets a file with the kernel, which has dropped its pages. A file that the kernel has
    /// looked up again and opened meanwhile stays.
    pub(crate) fn forget(&self, ino: InodeId) {
        if self.files.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut stripe = self.registrations.lock(ino.raw());
        if stripe.get(&ino.raw()).is_some_and(|registration| registration.opens == 0) {
            stripe.remove(&ino.raw());
            self.files.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl<B> Default for Backings<B> {
    fn default() -> Self {
        Self { registrations: StripedMap::default(), files: AtomicUsize::new(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeId = InodeId::from_raw(9);

    #[test]
    fn all_opens_of_a_file_share_one_backing_until_the_last_is_released() {
        let backings = Backings::default();
        let first = backings.acquire(FILE, || Ok(1)).unwrap();
        let second = backings.acquire(FILE, || panic!("it is registered already")).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        let registered = Arc::downgrade(&first);
        drop((first, second));
        backings.release(FILE);
        assert!(registered.upgrade().is_some());
        backings.release(FILE);
        assert!(registered.upgrade().is_none());
        assert_eq!(*backings.acquire(FILE, || Ok(2)).unwrap(), 2);
    }

    #[test]
    fn an_open_whose_registration_fails_is_not_counted() {
        let backings = Backings::default();
        let refused = backings.acquire(FILE, || Err(io::Error::from_raw_os_error(1)));
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(1));
        assert_eq!(*backings.acquire(FILE, || Ok(3)).unwrap(), 3);
        backings.release(FILE);
        backings.release(FILE);
        assert_eq!(*backings.acquire(FILE, || Ok(4)).unwrap(), 4);
    }

    #[test]
    fn a_file_is_known_until_the_kernel_forgets_it_closed() {
        let backings = Backings::default();
        assert!(!backings.has_bypassed(FILE));
        backings.acquire(FILE, || Ok(1)).unwrap();
        backings.forget(FILE);
        assert!(backings.has_bypassed(FILE));
        backings.release(FILE);
        assert!(backings.has_bypassed(FILE));
        assert!(!backings.has_bypassed(InodeId::from_raw(10)));
        backings.forget(FILE);
        assert!(!backings.has_bypassed(FILE));
        assert_eq!(backings.files.load(Ordering::Acquire), 0);
    }
}
