//! Files whose bytes the kernel reaches by a descriptor of ours (passthrough).
//!
//! The kernel knows such a descriptor by a number, and takes no other number for a file as long as
//! one open of it lasts (it answers `EIO`). So a descriptor is registered with the first open,
//! counted before each reply, and given back after the last release; by then the kernel has let go
//! of it.
//!
//! Pages that the kernel holds of such a file from before do not follow what is written past them.
//! A later open that uses pages must begin without them, so that a file stays known here until the
//! kernel forgets it. The size follows the kernel's own cache of inodes.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use pelago_fuse::device::Backing;
use pelago_wire::InodeId;

/// Registered descriptors by file. Its locks are leaves; a descriptor is registered under one, so
/// that two opens at the same time get the same number.
pub(crate) struct Backings<B = Backing> {
    shards: [Mutex<HashMap<u64, Registration<B>>>; SHARDS],
    files: AtomicUsize,
}

struct Registration<B> {
    backing: Option<Arc<B>>,
    opens: u32,
}

const SHARDS: usize = 16;

impl<B> Backings<B> {
    /// One more open of a file, which is registered if it is the first.
    pub(crate) fn take(
        &self,
        ino: InodeId,
        register: impl FnOnce() -> io::Result<B>,
    ) -> io::Result<Arc<B>> {
        let mut shard = self.shard(ino).lock();
        let registration = shard.entry(ino.raw()).or_insert_with(|| {
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

    /// One open less.
    pub(crate) fn give_back(&self, ino: InodeId) {
        let mut shard = self.shard(ino).lock();
        let Some(registration) = shard.get_mut(&ino.raw()) else { return };
        registration.opens = registration.opens.saturating_sub(1);
        if registration.opens == 0 {
            registration.backing = None;
        }
    }

    /// Whether pages of a file may be older than its bytes.
    pub(crate) fn has_bypassed(&self, ino: InodeId) -> bool {
        self.files.load(Ordering::Acquire) > 0 && self.shard(ino).lock().contains_key(&ino.raw())
    }

    /// The kernel has no pages of a file any more, unless it has got to know it afresh in between
    /// and has it open.
    pub(crate) fn forget(&self, ino: InodeId) {
        if self.files.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut shard = self.shard(ino).lock();
        if shard.get(&ino.raw()).is_some_and(|registration| registration.opens == 0) {
            shard.remove(&ino.raw());
            self.files.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn shard(&self, ino: InodeId) -> &Mutex<HashMap<u64, Registration<B>>> {
        &self.shards[usize::try_from(ino.raw()).unwrap_or(0) % SHARDS]
    }
}

impl<B> Default for Backings<B> {
    fn default() -> Self {
        Self { shards: Default::default(), files: AtomicUsize::new(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeId = InodeId::from_raw(9);

    #[test]
    fn all_opens_of_a_file_share_one_until_the_last_is_released() {
        let backings = Backings::default();
        let first = backings.take(FILE, || Ok(1)).unwrap();
        let second = backings.take(FILE, || panic!("it is registered already")).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        let kept = Arc::downgrade(&first);
        drop((first, second));
        backings.give_back(FILE);
        assert!(kept.upgrade().is_some());
        backings.give_back(FILE);
        assert!(kept.upgrade().is_none());
        assert_eq!(*backings.take(FILE, || Ok(2)).unwrap(), 2);
    }

    #[test]
    fn one_that_cannot_be_registered_is_not_open() {
        let backings = Backings::default();
        let refused = backings.take(FILE, || Err(io::Error::from_raw_os_error(1)));
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(1));
        assert_eq!(*backings.take(FILE, || Ok(3)).unwrap(), 3);
        backings.give_back(FILE);
        backings.give_back(FILE);
        assert_eq!(*backings.take(FILE, || Ok(4)).unwrap(), 4);
    }

    #[test]
    fn a_file_is_known_until_the_kernel_forgets_it_closed() {
        let backings = Backings::default();
        assert!(!backings.has_bypassed(FILE));
        backings.take(FILE, || Ok(1)).unwrap();
        backings.forget(FILE);
        assert!(backings.has_bypassed(FILE));
        backings.give_back(FILE);
        assert!(backings.has_bypassed(FILE));
        assert!(!backings.has_bypassed(InodeId::from_raw(10)));
        backings.forget(FILE);
        assert!(!backings.has_bypassed(FILE));
        assert_eq!(backings.files.load(Ordering::Acquire), 0);
    }
}
