//! Versions of the pages that the kernel caches, for mounts under leases.
//!
//! The kernel compares size and modification time (mtime) of a file to know whether its pages are
//! valid (`AUTO_INVAL_DATA`), and a program may set both back. While a lease lasts, each change by
//! others is recalled, which drops the pages. Without a lease no change is reported. So this table
//! holds, for each open file, the change time (ctime) under which its pages are valid. Attributes
//! with another ctime may belong to other bytes:
//!
//! - If their size or mtime also differs from those that were last sent to the kernel, the kernel
//!   drops the pages when it takes the attributes. No notice may precede them: Linux discards
//!   attributes that it requested before an invalidation, with their size, and the read that began
//!   with this request would end at the old end of the file.
//! - If size and mtime are the same, the kernel would keep the pages. So they are dropped by a
//!   notice, and the attributes get no lifetime. The attributes that the kernel then discards are
//!   equal to those that it has.
//!
//! Attributes count as sent before they arrive. If they do not arrive, because the caller was
//! killed, it is unknown which ones the kernel has, and the next attributes drop the pages by a
//! notice.
//!
//! The kernel may have discarded the attributes that were last sent, because a notice for another
//! reason has crossed them. Then pages could stay that are of another version, if size and mtime
//! are also set back to those that were sent before; and one read could end early. The next request
//! for attributes mends both.
//!
//! A file that is not open has no reader, and the next open compares. So this table may forget it,
//! with its version; then the kernel drops the pages itself when it opens the file.

use std::collections::hash_map::Entry;

use std::sync::atomic::{AtomicUsize, Ordering};

use pelago_wire::{Attr, FileKind, InodeId, Time};

use crate::striped::{Stripe, StripedMap};

/// Limit of files and directories of one stripe. If so many are open, more are opened without
/// pages.
const NODES: usize = 4096;

/// The versions of pages, of files and directories.
#[derive(Default)]
pub(crate) struct PageVersions {
    versions: StripedMap<Version>,
    /// Opens with pages that are not released, of all files.
    opens: AtomicUsize,
}

#[derive(Debug)]
struct Version {
    /// Opens with pages that are not released.
    opens: u32,
    /// The ctime under which the pages are valid; `None` if under none.
    changed: Option<Time>,
    /// The size and mtime that were last sent to the kernel; `None` if it is unknown whether they
    /// have arrived.
    sent: Option<Sent>,
    is_dir: bool,
    /// The kernel may have pages: not of a directory that was not listed since they were dropped.
    has_pages: bool,
}

/// The attributes by which the kernel notices that bytes have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sent {
    size: u64,
    mtime: Time,
}

impl Sent {
    const fn of(attr: &Attr) -> Self {
        Self { size: attr.size, mtime: attr.mtime }
    }
}

/// The state of the pages of a file that is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pages {
    /// The pages are of the present version.
    Same,
    /// The pages may be of another version, and must be dropped before the reply to the open.
    Other,
    /// The kernel has no pages, or the file is not in the table: the kernel drops its pages at the
    /// open.
    Unknown,
}

impl PageVersions {
    /// Counts an open with pages of the version of these attributes. Returns `None` if there are
    /// too many: then it must be without pages.
    pub(crate) fn open(&self, attr: &Attr) -> Option<Pages> {
        let ino = attr.ino;
        let is_dir = attr.kind == FileKind::Directory;
        let mut stripe = self.versions.lock(ino.raw());
        if stripe.len() >= NODES && !stripe.contains_key(&ino.raw()) {
            stripe.retain(|_, version| version.opens > 0);
            if stripe.len() >= NODES {
                return None;
            }
        }
        let sent = Some(Sent::of(attr));
        let (version, pages) = match stripe.entry(ino.raw()) {
            Entry::Vacant(place) => {
                let opens = 0;
                let changed = None;
                let has_pages = !is_dir;
                let version = Version { opens, changed, sent, is_dir, has_pages };
                (place.insert(version), Pages::Unknown)
            }
            Entry::Occupied(version) => {
                let version = version.into_mut();
                let is_same = version.changed == Some(attr.ctime) || !version.has_pages;
                (version, if is_same { Pages::Same } else { Pages::Other })
            }
        };
        version.opens = version.opens.saturating_add(1);
        version.changed = Some(attr.ctime);
        version.sent = sent;
        self.opens.fetch_add(1, Ordering::AcqRel);
        Some(pages)
    }

    /// Counts the end of an open with pages.
    pub(crate) fn close(&self, ino: InodeId) {
        if let Some(version) = open_version(&mut self.versions.lock(ino.raw()), ino) {
            version.opens -= 1;
            self.opens.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Compares the pages of an open file or directory with attributes that are about to be sent,
    /// and with `leased`, the ctime of these if they are under a lease. Returns whether the pages
    /// must be dropped before.
    pub(crate) fn compare(&self, attr: &Attr, leased: Option<Time>) -> bool {
        let mut stripe = self.versions.lock(attr.ino.raw());
        let Some(version) = open_version(&mut stripe, attr.ino) else { return false };
        if !version.is_dir {
            let drops = version.is_other_unseen(attr);
            version.changed = Some(attr.ctime);
            return drops;
        }
        let is_same = leased.is_some() && version.changed == leased;
        let drops = version.has_pages && !is_same;
        version.changed = leased;
        version.has_pages = is_same && version.has_pages;
        drops
    }

    /// Compares the pages with the attributes of an entry, before which no page can be dropped.
    /// Returns whether the attributes may have a lifetime.
    pub(crate) fn compare_entry(&self, attr: &Attr) -> bool {
        if attr.kind == FileKind::Directory || self.opens.load(Ordering::Acquire) == 0 {
            return true;
        }
        let mut stripe = self.versions.lock(attr.ino.raw());
        let Some(version) = open_version(&mut stripe, attr.ino) else { return true };
        let holds = !version.is_other_unseen(attr);
        if holds {
            version.changed = Some(attr.ctime);
        }
        holds
    }

    /// Records attributes that are about to be sent, and that the kernel takes without a look at
    /// its pages (SETATTR).
    pub(crate) fn sent(&self, attr: &Attr) {
        if let Some(version) = open_version(&mut self.versions.lock(attr.ino.raw()), attr.ino) {
            version.sent = Some(Sent::of(attr));
        }
    }

    /// Records that attributes which were compared did not arrive, because the caller was killed:
    /// the kernel has those that were sent before.
    pub(crate) fn not_delivered(&self, ino: InodeId) {
        if let Some(version) = open_version(&mut self.versions.lock(ino.raw()), ino) {
            version.sent = None;
        }
    }

    /// Records that a directory is listed: the kernel may have pages of it from now on.
    pub(crate) fn listed(&self, dir: InodeId) {
        if let Some(version) = self.versions.lock(dir.raw()).get_mut(&dir.raw()) {
            version.has_pages = true;
        }
    }

    /// Records that a file is opened without pages, or that others change it: bytes that are read
    /// into pages from now on may be of any version.
    pub(crate) fn bypass(&self, ino: InodeId) {
        if let Some(version) = self.versions.lock(ino.raw()).get_mut(&ino.raw()) {
            version.changed = None;
        }
    }

    /// Returns whether a file is open with pages.
    pub(crate) fn are_used(&self, ino: InodeId) -> bool {
        open_version(&mut self.versions.lock(ino.raw()), ino).is_some()
    }

    /// Forgets an inode that the kernel has forgotten, unless it is open again.
    pub(crate) fn forget(&self, ino: InodeId) {
        let mut stripe = self.versions.lock(ino.raw());
        if stripe.get(&ino.raw()).is_some_and(|version| version.opens == 0) {
            stripe.remove(&ino.raw());
        }
    }

    /// Forgets the versions of all pages: they are valid under no ctime.
    pub(crate) fn forget_all(&self) {
        for mut stripe in self.versions.stripes() {
            stripe.values_mut().for_each(|version| version.changed = None);
        }
    }
}

impl Version {
    /// Records attributes that are about to be sent. Returns whether they may belong to other bytes
    /// than the pages, without another size or mtime by which the kernel would notice it.
    fn is_other_unseen(&mut self, attr: &Attr) -> bool {
        let now = Sent::of(attr);
        let before = self.sent.replace(now);
        self.changed != Some(attr.ctime) && before.is_none_or(|before| before == now)
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

    /// Returns the attributes of an inode that was last changed at this time.
    fn inode(ino: u64, kind: FileKind, changed: i64) -> Attr {
        Attr { ctime: at(changed), ..Attr::empty(InodeId::from_raw(ino), kind) }
    }

    fn file(changed: i64) -> Attr {
        inode(FILE.raw(), FileKind::Regular, changed)
    }

    fn dir(changed: i64) -> Attr {
        inode(FILE.raw(), FileKind::Directory, changed)
    }

    #[test]
    fn pages_are_kept_only_for_the_same_change_time() {
        let versions = PageVersions::default();
        let opened = |time| versions.open(&file(time)).unwrap();
        let order = [opened(1), opened(1), opened(2), opened(2), opened(1)];
        use Pages::{Other, Same, Unknown};
        assert_eq!(order, [Unknown, Same, Other, Same, Other]);
        versions.bypass(FILE);
        assert_eq!(opened(1), Other, "others have changed it, or an open went past them");
        versions.forget_all();
        assert_eq!(opened(1), Other, "all leases have ended");
    }

    /// The kernel drops pages when size or change time of the bytes differ; a notice would make it
    /// discard them.
    #[test]
    fn only_a_change_that_the_kernel_cannot_notice_drops_the_pages_of_an_open_file() {
        let versions = PageVersions::default();
        let compare = |attr: Attr| versions.compare(&attr, None);
        assert!(!compare(file(1)), "it was never opened");
        versions.open(&file(1)).unwrap();
        assert!(!compare(file(1)));
        assert!(compare(file(2)), "the times were set back");
        assert!(!compare(file(2)), "they are dropped");
        let longer = Attr { size: 5, ..file(3) };
        assert!(!compare(longer) && !compare(longer), "the size says it");
        let later = Attr { mtime: at(4), ..Attr { ctime: at(4), ..longer } };
        assert!(!compare(later) && !compare(later), "the time says it");
        assert!(!compare(Attr { ctime: at(5), ..file(0) }), "both are set back by a writer");
        versions.bypass(FILE);
        assert!(compare(Attr { ctime: at(5), ..file(0) }), "pages of any version");
        versions.close(FILE);
        assert!(!compare(file(6)) && !versions.are_used(FILE), "it has no reader");
        assert_eq!(versions.open(&file(5)), Some(Pages::Same));
    }

    #[test]
    fn attributes_of_an_entry_hold_unless_they_hide_a_change_of_bytes() {
        let versions = PageVersions::default();
        assert!(versions.compare_entry(&file(1)), "it has no pages");
        versions.open(&file(1)).unwrap();
        assert!(versions.compare_entry(&file(1)));
        let longer = Attr { size: 5, ..file(2) };
        assert!(versions.compare_entry(&longer), "the kernel drops the pages");
        assert!(!versions.compare(&longer, None));
        let hidden = Attr { ctime: at(3), ..longer };
        assert!(!versions.compare_entry(&hidden) && !versions.compare_entry(&hidden));
        assert!(versions.compare(&hidden, None), "it asks, and the pages are dropped");
        assert!(versions.compare_entry(&hidden));
    }

    /// The program that asked was killed: the kernel has the size and the time of before, which may
    /// come back with other bytes.
    #[test]
    fn attributes_that_did_not_arrive_say_nothing_about_what_the_kernel_has() {
        let versions = PageVersions::default();
        let compare = |attr: Attr| versions.compare(&attr, None);
        versions.open(&file(1)).unwrap();
        let longer = Attr { size: 5, ..file(2) };
        assert!(!compare(longer), "the size would say it");
        versions.not_delivered(FILE);
        assert!(!compare(longer), "it says it now");
        versions.not_delivered(FILE);
        assert!(compare(file(3)), "the kernel has had this size and this time");
        assert!(!compare(file(3)));
    }

    /// The kernel takes the times that a program of this mount sets, and keeps its pages.
    #[test]
    fn times_that_this_mount_sets_hide_no_change_of_bytes() {
        let versions = PageVersions::default();
        versions.open(&file(1)).unwrap();
        let set = Attr { mtime: at(9), ..file(3) };
        versions.sent(&set);
        assert!(versions.compare(&set, None), "others may have written at 2");
        assert!(!versions.compare(&set, None));
    }

    /// Each change of a name in it changes its time.
    #[test]
    fn a_directory_has_pages_once_it_is_listed() {
        let versions = PageVersions::default();
        let compare = |time: Option<i64>| versions.compare(&dir(time.unwrap_or(0)), time.map(at));
        assert_eq!(versions.open(&dir(1)), Some(Pages::Unknown));
        assert!(!compare(Some(2)) && !compare(None));
        assert_eq!(versions.open(&dir(3)), Some(Pages::Same));
        versions.listed(FILE);
        assert!(!compare(Some(3)));
        assert!(compare(Some(4)) && !compare(Some(5)));
        versions.listed(FILE);
        assert_eq!(versions.open(&dir(6)), Some(Pages::Other));
    }

    #[test]
    fn an_inode_is_forgotten_with_the_kernel_unless_it_is_open() {
        let versions = PageVersions::default();
        versions.open(&file(1)).unwrap();
        versions.forget(FILE);
        assert!(versions.are_used(FILE));
        versions.close(FILE);
        versions.forget(FILE);
        assert_eq!(versions.open(&file(1)), Some(Pages::Unknown));
    }

    #[test]
    fn the_map_is_bounded_by_closed_files_first_and_by_opens_without_pages_then() {
        let versions = PageVersions::default();
        let count = 16 * NODES as u64;
        let open = |ino| versions.open(&inode(ino, FileKind::Regular, 1));
        for ino in 0..2 * count {
            assert!(open(ino).is_some(), "{ino}");
            versions.close(InodeId::from_raw(ino));
        }
        for ino in 0..count {
            assert!(open(ino).is_some(), "{ino}");
        }
        let sizes: usize = versions.versions.stripes().map(|stripe| stripe.len()).sum();
        assert_eq!(sizes as u64, count);
        assert_eq!(open(count), None);
        assert_eq!(open(1), Some(Pages::Same));
    }
}
