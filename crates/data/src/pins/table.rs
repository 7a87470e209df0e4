//! The table of pinned content files, with their number of pins and the place of the pinned bytes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use pelago_store::content::{Error, ExtentBlock, ExtentFile};
use pelago_store::sync::Mutex;
use pelago_wire::id_map::IdMap;
use pelago_wire::{Caching, InodeId, PinError};

use crate::content_file::OpenContent;
use crate::fd_budget::FdPermit;
use crate::pins::budget::{Budget, PinLimits, Share};

/// The content files whose present version is pinned.
///
/// Entries are added and removed under the lock of their inode, so that a change finds each earlier
/// pin.
#[derive(Debug, Default)]
pub(crate) struct PinTable {
    /// A leaf lock.
    entries: Mutex<IdMap<InodeId, Entry>>,
    /// The number of entries. Spares the lock if nothing is pinned.
    count: AtomicUsize,
    pub(crate) budget: Budget,
}

#[derive(Debug)]
struct Entry {
    content: Arc<PinnedContent>,
    pins: usize,
}

/// The bytes of one version of a content file, which all its pins share.
#[derive(Debug)]
pub(crate) struct PinnedContent {
    /// The file that has the bytes: the content file, or after a change of that a copy, or none. A
    /// leaf lock.
    content: Mutex<Option<Arc<VersionContent>>>,
}

/// A file that has the bytes of a pinned version.
#[derive(Debug)]
pub(crate) struct VersionContent {
    pub(crate) content: Arc<OpenContent>,
    extents: OnceLock<Extents>,
    /// The bytes of a copy, unless it shares the blocks of the content file.
    _share: Option<Share>,
}

/// The reader of extents of the file.
#[derive(Debug)]
struct Extents {
    by: ExtentFile,
    /// For a second descriptor.
    _permit: Option<FdPermit>,
}

impl PinTable {
    /// Returns an empty table with these limits.
    pub(crate) fn new(limits: PinLimits) -> Self {
        Self { budget: Budget::new(limits), ..Self::default() }
    }

    /// Returns whether the present version of a content file is pinned. If nothing is pinned, this
    /// only checks a counter.
    pub(crate) fn contains(&self, ino: InodeId) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.entries.lock().contains_key(&ino)
    }

    /// Adds a pin to the present version, if that is pinned already.
    pub(crate) fn join(&self, ino: InodeId) -> Option<Arc<PinnedContent>> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(&ino)?;
        entry.pins += 1;
        Some(Arc::clone(&entry.content))
    }

    /// Adds the first pin of the present version, whose bytes are in `content`.
    pub(crate) fn insert(&self, ino: InodeId, content: Arc<OpenContent>) -> Arc<PinnedContent> {
        let content = Arc::new(VersionContent::new(content, None));
        let content = Arc::new(PinnedContent { content: Mutex::new(Some(content)) });
        let entry = Entry { content: Arc::clone(&content), pins: 1 };
        let mut entries = self.entries.lock();
        let before = entries.insert(ino, entry);
        assert!(before.is_none(), "the caller has the lock of the inode, and found no entry");
        self.count.store(entries.len(), Ordering::Release);
        content
    }

    /// Removes a pin.
    pub(crate) fn leave(&self, ino: InodeId, pinned: &Arc<PinnedContent>) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&ino) else { return };
        if !Arc::ptr_eq(&entry.content, pinned) {
            // The file has changed since, and has pins of another version.
            return;
        }
        entry.pins -= 1;
        if entry.pins == 0 {
            let gone = entries.remove(&ino);
            self.count.store(entries.len(), Ordering::Release);
            drop(entries);
            // Closing a file may take long: not under the lock.
            drop(gone);
        }
    }

    /// Removes the pinned version of a content file that is about to change: a later pin is of
    /// another version. The caller calls [`PinnedContent::set_kept`], unless the bytes stay in this
    /// file.
    pub(crate) fn take(&self, ino: InodeId) -> Option<Arc<PinnedContent>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut entries = self.entries.lock();
        let taken = entries.remove(&ino)?;
        self.count.store(entries.len(), Ordering::Release);
        Some(taken.content)
    }
}

impl PinnedContent {
    /// Sets the file that has the bytes, before the content file changes: a copy, or none.
    pub(crate) fn set_kept(&self, kept: Option<VersionContent>) {
        let before = std::mem::replace(&mut *self.content.lock(), kept.map(Arc::new));
        // Closing a file may take long: not under the lock.
        drop(before);
    }

    /// Returns the file that has the bytes now.
    pub(crate) fn content(&self) -> Option<Arc<VersionContent>> {
        self.content.lock().clone()
    }

    /// Reads from the file that has the bytes, and once more if the bytes have moved to a copy
    /// meanwhile. Only the last read counts.
    pub(crate) fn read<T>(
        &self,
        mut read: impl FnMut(&VersionContent) -> Result<T, PinError>,
    ) -> Result<T, PinError> {
        loop {
            let content = self.content().ok_or(PinError::Changed)?;
            let result = read(&content);
            match self.content() {
                Some(now) if Arc::ptr_eq(&now, &content) => return result,
                // The bytes move once.
                _ => {}
            }
        }
    }
}

impl VersionContent {
    /// Returns a file with the bytes of a version. `share` is the share of a copy in the limit.
    pub(crate) const fn new(content: Arc<OpenContent>, share: Option<Share>) -> Self {
        Self { content, extents: OnceLock::new(), _share: share }
    }

    /// Reads part of an extent ([`pelago_store::content::ContentFile::read_extent`]).
    pub(crate) fn read_extent(
        &self,
        offset: u64,
        len: usize,
        caching: Caching,
    ) -> Result<Vec<ExtentBlock>, Error> {
        self.content.read_extent(&self.extents().by, offset, len, caching)
    }

    /// Returns whether `len` bytes are in the page cache
    /// ([`pelago_store::content::ContentFile::is_cached`]).
    pub(crate) fn is_cached(&self, offset: u64, len: u64) -> bool {
        self.content.is_cached(offset, len)
    }

    fn extents(&self) -> &Extents {
        self.extents.get_or_init(|| {
            let backing = self.content.backing();
            let permit = self.content.another_permit();
            let by = match permit {
                Some(_) => ExtentFile::new(backing),
                None => ExtentFile::through_cache(backing),
            };
            Extents { by, _permit: permit }
        })
    }
}
