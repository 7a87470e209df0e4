//! Which content files are pinned, by how many, and where the bytes of each pinned version are.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use pelago_store::content::{Error, ExtentBlock, ExtentFile};
use pelago_store::sync::Mutex;
use pelago_wire::id_map::IdMap;
use pelago_wire::{Caching, InodeId, PinError};

use crate::content_file::OpenContent;
use crate::fd_budget::FdPermit;
use crate::pins::budget::{Budget, PinLimits, Share};

/// The content files that are pinned at their present version.
///
/// Entries are made and taken under the lock of their inode, so that a change finds each pin that
/// was made before.
#[derive(Debug, Default)]
pub(crate) struct PinTable {
    /// A leaf in the lock order.
    entries: Mutex<IdMap<InodeId, Entry>>,
    /// Counts the entries: spares the lock if nothing is pinned.
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
    /// The file that has the bytes: the content file, and once that has changed a copy, or none. A
    /// leaf in the lock order.
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

/// What reads extents of the file.
#[derive(Debug)]
struct Extents {
    by: ExtentFile,
    /// For a second descriptor.
    _permit: Option<FdPermit>,
}

impl PinTable {
    /// An empty table with these limits.
    pub(crate) fn new(limits: PinLimits) -> Self {
        Self { budget: Budget::new(limits), ..Self::default() }
    }

    /// Returns whether the present version of a content file is pinned. If nothing is, this is a look at a
    /// number.
    pub(crate) fn contains(&self, ino: InodeId) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.entries.lock().contains_key(&ino)
    }

    /// Adds a pin to the present version, if it has one already.
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
            // The file has changed since, and has new pins.
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

    /// Takes the pinned version of a content file that changes from now on: a later pin is of
    /// another version. The caller says what becomes of its bytes, unless they stay where they are.
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
    /// Says where the bytes are before the content file changes: in a copy, or nowhere.
    pub(crate) fn set_kept(&self, kept: Option<VersionContent>) {
        let before = std::mem::replace(&mut *self.content.lock(), kept.map(Arc::new));
        // Closing a file may take long: not under the lock.
        drop(before);
    }

    /// Returns the file that has the bytes now.
    pub(crate) fn content(&self) -> Option<Arc<VersionContent>> {
        self.content.lock().clone()
    }

    /// Reads from the file that has the bytes, once more if they have another place meanwhile. What
    /// failed and is read from another place then has not failed.
    pub(crate) fn read<T>(
        &self,
        mut read: impl FnMut(&VersionContent) -> Result<T, PinError>,
    ) -> Result<T, PinError> {
        loop {
            let content = self.content().ok_or(PinError::Changed)?;
            let result = read(&content);
            match self.content() {
                Some(now) if Arc::ptr_eq(&now, &content) => return result,
                // It changes its place once.
                _ => {}
            }
        }
    }
}

impl VersionContent {
    /// A file with the bytes of a version, and what a copy has taken of its limit.
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

    /// Returns whether so many bytes are in the page cache
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
