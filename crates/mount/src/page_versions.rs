//! Of which version the pages are that the kernel has of files and listings under leases.
//!
//! The kernel checks its pages against size and change time of the bytes, which a program may set
//! back. While a lease lasts, each change by others is told and drops them. Between two leases
//! nothing is told. So the time of the last change of anything (ctime), under which a file was last
//! opened with pages, stays known: if it is the same under the next lease, so are the pages.
//!
//! A file that is not open has no reader, and the next open compares. So it may be forgotten here,
//! with its version; then the kernel drops the pages itself when it opens the file.

use std::collections::hash_map::Entry;

use pelago_wire::{InodeId, Time};

use crate::striped::{Stripe, StripedMap};

/// Files and directories of one stripe. If so many are open, more are opened without pages.
const NODES: usize = 4096;

/// The versions of pages, of files and directories.
#[derive(Default)]
pub(crate) struct PageVersions(StripedMap<Version>);

#[derive(Debug)]
struct Version {
    /// Opens with pages that are not released.
    opens: u32,
    /// The change time under which the pages hold; `None` if they hold under none.
    changed: Option<Time>,
    is_dir: bool,
    /// The kernel may have pages. It has none of a directory that was not listed since they were
    /// dropped.
    has_pages: bool,
}

/// What is known of the pages of a file that is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pages {
    /// They are of the present version.
    Same,
    /// They may be of another version, and are to be dropped before the open is answered.
    Other,
    /// The kernel has none, or the file is not known here: the kernel drops them.
    Unknown,
}

impl PageVersions {
    /// Counts an open with pages of the version of this change time. Returns `None` if there are
    /// too many: then it must be without pages.
    pub(crate) fn open(&self, ino: InodeId, is_dir: bool, changed: Time) -> Option<Pages> {
        let mut stripe = self.0.lock(ino.raw());
        if stripe.len() >= NODES && !stripe.contains_key(&ino.raw()) {
            stripe.retain(|_, version| version.opens > 0);
            if stripe.len() >= NODES {
                return None;
            }
        }
        let (version, pages) = match stripe.entry(ino.raw()) {
            Entry::Vacant(place) => {
                let (opens, changed, has_pages) = (0, None, !is_dir);
                (place.insert(Version { opens, changed, is_dir, has_pages }), Pages::Unknown)
            }
            Entry::Occupied(version) => {
                let version = version.into_mut();
                let is_same = version.changed == Some(changed) || !version.has_pages;
                (version, if is_same { Pages::Same } else { Pages::Other })
            }
        };
        version.opens = version.opens.saturating_add(1);
        version.changed = Some(changed);
        Some(pages)
    }

    /// Counts the end of an open with pages.
    pub(crate) fn close(&self, ino: InodeId) {
        if let Some(version) = self.0.lock(ino.raw()).get_mut(&ino.raw()) {
            version.opens = version.opens.saturating_sub(1);
        }
    }

    /// Compares the pages of an open file with the change time under which they would hold, if they
    /// would. Returns whether they must be dropped before that is told.
    pub(crate) fn compare(&self, ino: InodeId, changed: Option<Time>) -> bool {
        let mut stripe = self.0.lock(ino.raw());
        let Some(version) = open_version(&mut stripe, ino) else { return false };
        let is_same = changed.is_some() && version.changed == changed;
        let drops = version.has_pages && !is_same;
        version.changed = changed;
        version.has_pages = !version.is_dir || is_same && version.has_pages;
        drops
    }

    /// Notes that a directory is listed: the kernel may have pages of it from now on.
    pub(crate) fn listed(&self, dir: InodeId) {
        if let Some(version) = self.0.lock(dir.raw()).get_mut(&dir.raw()) {
            version.has_pages = true;
        }
    }

    /// Notes that a file is opened past its pages, or that others change it: what is read into
    /// pages from now on may be of any version.
    pub(crate) fn bypass(&self, ino: InodeId) {
        if let Some(version) = self.0.lock(ino.raw()).get_mut(&ino.raw()) {
            version.changed = None;
        }
    }

    /// Returns whether a file is open with pages.
    pub(crate) fn are_used(&self, ino: InodeId) -> bool {
        open_version(&mut self.0.lock(ino.raw()), ino).is_some()
    }

    /// Forgets an inode with the kernel, unless it has opened it again meanwhile.
    pub(crate) fn forget(&self, ino: InodeId) {
        let mut stripe = self.0.lock(ino.raw());
        if stripe.get(&ino.raw()).is_some_and(|version| version.opens == 0) {
            stripe.remove(&ino.raw());
        }
    }

    /// Forgets the versions of all pages: they hold under none.
    pub(crate) fn forget_all(&self) {
        for mut stripe in self.0.stripes() {
            stripe.values_mut().for_each(|version| version.changed = None);
        }
    }
}

fn open_version(stripe: &mut Stripe<Version>, ino: InodeId) -> Option<&mut Version> {
    stripe.get_mut(&ino.raw()).filter(|version| version.opens > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeId = InodeId::from_raw(9);

    fn at(seconds: i64) -> Time {
        Time { seconds, nanos: 0 }
    }

    #[test]
    fn pages_are_kept_only_for_the_same_change_time() {
        let versions = PageVersions::default();
        let opened = |time| versions.open(FILE, false, at(time)).unwrap();
        let order = [opened(1), opened(1), opened(2), opened(2), opened(1)];
        use Pages::{Other, Same, Unknown};
        assert_eq!(order, [Unknown, Same, Other, Same, Other]);
        versions.bypass(FILE);
        assert_eq!(opened(1), Other, "others have changed it, or an open went past them");
        versions.forget_all();
        assert_eq!(opened(1), Other, "all leases have ended");
    }

    #[test]
    fn attributes_without_a_lease_or_of_another_version_drop_the_pages_of_an_open_file() {
        let versions = PageVersions::default();
        assert!(!versions.compare(FILE, None), "it was never opened");
        versions.open(FILE, false, at(1)).unwrap();
        assert!(!versions.compare(FILE, Some(at(1))));
        assert!(versions.compare(FILE, Some(at(2))));
        assert!(!versions.compare(FILE, Some(at(2))));
        assert!(versions.compare(FILE, None) && versions.compare(FILE, None));
        assert!(versions.compare(FILE, Some(at(2))), "they were read without a lease");
        versions.close(FILE);
        assert!(!versions.compare(FILE, None) && !versions.are_used(FILE), "it has no reader");
        assert_eq!(versions.open(FILE, false, at(2)), Some(Pages::Same));
    }

    /// Each change of a name in it changes its time.
    #[test]
    fn a_directory_has_pages_once_it_is_listed() {
        let versions = PageVersions::default();
        assert_eq!(versions.open(FILE, true, at(1)), Some(Pages::Unknown));
        assert!(!versions.compare(FILE, Some(at(2))) && !versions.compare(FILE, None));
        assert_eq!(versions.open(FILE, true, at(3)), Some(Pages::Same));
        versions.listed(FILE);
        assert!(!versions.compare(FILE, Some(at(3))));
        assert!(versions.compare(FILE, Some(at(4))) && !versions.compare(FILE, Some(at(5))));
        versions.listed(FILE);
        assert_eq!(versions.open(FILE, true, at(6)), Some(Pages::Other));
    }

    #[test]
    fn an_inode_is_forgotten_with_the_kernel_unless_it_is_open() {
        let versions = PageVersions::default();
        versions.open(FILE, false, at(1)).unwrap();
        versions.forget(FILE);
        assert!(versions.are_used(FILE));
        versions.close(FILE);
        versions.forget(FILE);
        assert_eq!(versions.open(FILE, false, at(1)), Some(Pages::Unknown));
    }

    #[test]
    fn the_map_is_bounded_by_closed_files_first_and_by_opens_without_pages_then() {
        let versions = PageVersions::default();
        let count = 16 * NODES as u64;
        for ino in 0..2 * count {
            assert!(versions.open(InodeId::from_raw(ino), false, at(1)).is_some(), "{ino}");
            versions.close(InodeId::from_raw(ino));
        }
        for ino in 0..count {
            assert!(versions.open(InodeId::from_raw(ino), false, at(1)).is_some(), "{ino}");
        }
        let sizes: usize = versions.0.stripes().map(|stripe| stripe.len()).sum();
        assert_eq!(sizes as u64, count);
        assert_eq!(versions.open(InodeId::from_raw(count), false, at(1)), None);
        assert_eq!(versions.open(InodeId::from_raw(1), false, at(1)), Some(Pages::Same));
    }
}
