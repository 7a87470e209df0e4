//! The bytes of content files that changed since the last cut, for the mirror of the volume.
//!
//! Each change of a content file is recorded twice: before ([`ContentChanges::announce`]), and
//! after ([`ContentChanges::note`]), because a cut may come in between. A cut takes the recorded
//! changes, under the lock of the shard and under this lock. Then a thread reads these bytes as
//! they were at the cut: a write that changes some of them before they are read first saves the old
//! bytes, in memory and beyond a limit in a file without a name; and a content file that loses its
//! name is handed over with its descriptor. If that exceeds a limit, the cut is given up, and its
//! changes are added to the next cut.
//!
//! Nothing is recorded for a volume without a mirror: a change then pays for the check of one flag.
//!
//! The lock is a leaf lock.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pelago_store::content::{self, ContentFile, ContentStore, FileAccess};
use pelago_store::sync::Mutex;
use pelago_wire::{Generation, InodeId, Time, Whence, limits};

use cut::{Cut, KeptPiece};
use ranges::Ranges;

mod cut;
mod ranges;
#[cfg(test)]
mod tests;

/// A content file: its inode and its generation.
pub type ContentKey = (InodeId, Generation);

/// The most exact ranges of one file. Beyond that its ranges are rounded to larger units.
const FILE_RANGES: usize = 4096;
/// Bytes of a larger unit.
const COARSE_BYTES: u64 = 1 << 20;
/// Bytes of memory of a range, and of a file without its ranges.
const RANGE_MEMORY: usize = 48;
const FILE_MEMORY: usize = 160;

/// The changed bytes of content files that a mirror does not have.
#[derive(Debug, Default)]
pub struct ContentChanges {
    is_collected: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The changes since the last cut.
    files: BTreeMap<ContentKey, FileChanges>,
    /// The number of ranges in `files`.
    ranges: usize,
    /// The time of the first change.
    since: Option<Instant>,
    /// The time of the first change of the cut.
    cut_since: Option<Instant>,
    /// The last cut, until all of it is read.
    cut: Option<Cut>,
    /// True if there were more changes than the limit: nothing is recorded until all is copied.
    has_more: bool,
}

/// The changes of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct FileChanges {
    ranges: Ranges,
    /// The size of the file.
    size: u64,
}

/// A piece of a content file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentPiece {
    /// At most [`limits::GROUP_BYTES`] bytes.
    Bytes {
        /// Their offset.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Zeros that take no space.
    Hole {
        /// Their offset.
        offset: u64,
        /// Their number.
        length: u64,
    },
}

/// The reason why a cut cannot be read to its end.
#[derive(Debug)]
pub enum CutError {
    /// Too many of its bytes changed before they were read.
    GivenUp,
    /// The disk failed.
    Disk(content::Error),
}

impl From<content::Error> for CutError {
    fn from(error: content::Error) -> Self {
        Self::Disk(error)
    }
}

impl ContentChanges {
    /// Begins to record changes.
    pub fn begin(&self) {
        *self.inner.lock() = Inner::default();
        self.is_collected.store(true, Ordering::Release);
    }

    /// Ends the recording.
    pub fn end(&self) {
        self.is_collected.store(false, Ordering::Release);
        *self.inner.lock() = Inner::default();
    }

    /// Returns whether there are changes since the last cut.
    #[must_use]
    pub fn any(&self) -> bool {
        let inner = self.inner.lock();
        inner.has_more || inner.since.is_some()
    }

    /// Returns whether there were more changes than the limit, so that all must be copied.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.inner.lock().has_more
    }

    /// Returns whether a content file has changed since the cut that the mirror has.
    #[must_use]
    pub fn is_changed(&self, key: ContentKey) -> bool {
        let inner = self.inner.lock();
        inner.has_more
            || inner.files.contains_key(&key)
            || inner.cut.as_ref().is_some_and(|cut| cut.size(key).is_some())
    }

    /// Returns whether a content file has changed since the last cut.
    #[must_use]
    pub fn is_uncut(&self, key: ContentKey) -> bool {
        let inner = self.inner.lock();
        inner.has_more || inner.files.contains_key(&key)
    }

    /// Returns whether a content file is in the cut that is being sent.
    #[must_use]
    pub fn is_in_cut(&self, key: ContentKey) -> bool {
        self.inner.lock().cut.as_ref().is_some_and(|cut| cut.size(key).is_some())
    }

    /// Returns the number of changed bytes that were not read, and the memory of the records.
    #[must_use]
    pub fn risk(&self) -> ContentRisk {
        let inner = self.inner.lock();
        let changed = inner.files.values().map(|file| file.ranges.bytes_below(file.size));
        let unread = inner.cut.as_ref().map_or(0, Cut::unread_bytes);
        ContentRisk {
            bytes: changed.sum::<u64>() + unread,
            since: inner.cut_since.or(inner.since),
            memory: inner.memory(),
        }
    }

    /// Makes the recorded changes the cut that is read next. The caller holds the lock of the
    /// shard.
    pub fn cut(&self) {
        let mut inner = self.inner.lock();
        inner.take_back();
        inner.cut = Some(Cut::of(std::mem::take(&mut inner.files)));
        inner.ranges = 0;
        inner.cut_since = inner.since.take();
    }

    /// Forgets the cut, which the mirror has.
    pub fn finish_cut(&self) {
        let mut inner = self.inner.lock();
        inner.cut = None;
        inner.cut_since = None;
    }

    /// Adds the changes of the cut to those of the next cut.
    pub fn take_back(&self) {
        self.inner.lock().take_back();
    }

    /// Returns the content files of the cut.
    #[must_use]
    pub fn files_of_cut(&self) -> Vec<ContentKey> {
        let inner = self.inner.lock();
        inner.cut.as_ref().map(Cut::files).unwrap_or_default()
    }

    /// Begins to read a content file of the cut. Returns `None` if it was removed before the cut.
    ///
    /// # Errors
    /// [`CutError`].
    pub fn open<'a>(
        &'a self,
        key: ContentKey,
        content: &ContentStore,
    ) -> Result<Option<CutReader<'a>>, CutError> {
        let opened = content.open_file(key.0, key.1, FileAccess::Read)?;
        // After the open: if the file lost its name since, this is still the right file.
        let inner = self.inner.lock();
        let cut = inner.cut.as_ref().filter(|cut| !cut.is_given_up()).ok_or(CutError::GivenUp)?;
        let Some(file) = cut.handed(key).or_else(|| opened.map(Arc::new)) else { return Ok(None) };
        let size = cut.size(key).unwrap_or(0);
        drop(inner);
        let mtime = file.stat()?.mtime;
        Ok(Some(CutReader { changes: self, key, file, size, mtime }))
    }

    /// Records that bytes of a content file of this size are about to change, and saves those of
    /// them that must still be read for a cut.
    pub(crate) fn announce(
        &self,
        store: &ContentStore,
        content: &ContentFile,
        range: &Range<u64>,
        size: u64,
    ) {
        if self.is_collected.load(Ordering::Acquire) {
            // In this order: a cut that comes in between has the range, or finds the old bytes.
            self.add((content.ino(), content.generation()), range, size, false);
            self.keep_old(store, content, range);
        }
    }

    /// Returns whether bytes of a content file must still be read for a cut.
    pub(crate) fn is_unread(&self, key: ContentKey) -> bool {
        self.is_collected.load(Ordering::Acquire)
            && self.inner.lock().cut.as_ref().is_some_and(|cut| cut.has_unread(key))
    }

    /// Records that a content file is about to be removed, with its rows: keeps the file if it must
    /// still be read for a cut, and forgets its changes since.
    pub(crate) fn remove(&self, key: ContentKey, content: &ContentStore) {
        self.hand_over(key, content);
        if self.is_collected.load(Ordering::Acquire) {
            let mut inner = self.inner.lock();
            if let Some(file) = inner.files.remove(&key) {
                inner.ranges -= file.ranges.count();
            }
        }
    }

    /// Records that bytes of a content file have changed, and its size now.
    pub(crate) fn note(&self, key: ContentKey, range: &Range<u64>, size: u64) {
        if self.is_collected.load(Ordering::Acquire) {
            self.add(key, range, size, true);
        }
    }

    /// Records that all of a content file must be sent. Its size is that of its last change, if it
    /// has changed.
    pub(crate) fn add_all(&self, key: ContentKey, size: u64) {
        if self.is_collected.load(Ordering::Acquire) {
            self.add(key, &(0..size), size, false);
        }
    }

    /// Records that a content file is about to lose its name, or that the name will lead to another
    /// file. Keeps the file if it must still be read for a cut.
    pub(crate) fn hand_over(&self, key: ContentKey, content: &ContentStore) {
        if !self.is_collected.load(Ordering::Acquire) || !self.wants_file(key) {
            return;
        }
        let opened = content.open_file(key.0, key.1, FileAccess::Read);
        let mut inner = self.inner.lock();
        let Some(cut) = &mut inner.cut else { return };
        match opened {
            Ok(Some(file)) => cut.hand_over(key, file),
            Ok(None) => {}
            // The program that removes the file must not notice.
            Err(_) => cut.give_up(),
        }
    }

    fn wants_file(&self, key: ContentKey) -> bool {
        self.inner.lock().cut.as_ref().is_some_and(|cut| cut.wants_file(key))
    }

    /// Saves the bytes of a range that must still be read for a cut.
    fn keep_old(&self, store: &ContentStore, content: &ContentFile, range: &Range<u64>) {
        let key = (content.ino(), content.generation());
        let parts = match &self.inner.lock().cut {
            Some(cut) => cut.unread(key, range),
            None => return,
        };
        let pieces = parts.into_iter().flat_map(|part| {
            let starts = part.clone().step_by(limits::IO_BYTES);
            starts.map(move |start| start..part.end.min(start + limits::IO_BYTES as u64))
        });
        for piece in pieces {
            let mut old = vec![0; (piece.end - piece.start) as usize];
            let read = content.read_at(&mut old, piece.start);
            let mut inner = self.inner.lock();
            let Some(cut) = &mut inner.cut else { return };
            match read {
                Ok(_) => cut.keep(key, piece.start, old, store),
                // The program that changes the file must not notice.
                Err(_) => cut.give_up(),
            }
            if cut.is_given_up() {
                return;
            }
        }
    }

    /// Adds a range. The size is recorded if the file has changed already, or is not recorded yet.
    fn add(&self, key: ContentKey, range: &Range<u64>, size: u64, has_changed: bool) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        if inner.has_more {
            return;
        }
        inner.since.get_or_insert_with(Instant::now);
        let file = inner
            .files
            .entry(key)
            .or_insert_with(|| FileChanges { size, ranges: Ranges::default() });
        if has_changed {
            file.size = size;
        }
        let before = file.ranges.count();
        file.ranges.insert(range.clone());
        if file.ranges.count() > FILE_RANGES {
            file.ranges.coarsen(COARSE_BYTES);
        }
        inner.ranges = inner.ranges + file.ranges.count() - before;
        inner.expect_room();
    }
}

impl Inner {
    fn memory(&self) -> usize {
        self.files.len() * FILE_MEMORY + self.ranges * RANGE_MEMORY
    }

    /// Forgets all changes if there are more than the limit.
    fn expect_room(&mut self) {
        if self.memory() > limits::MIRROR_CHANGES_BYTES {
            self.files.clear();
            self.ranges = 0;
            self.has_more = true;
            if let Some(cut) = &mut self.cut {
                cut.give_up();
            }
        }
    }

    fn take_back(&mut self) {
        let Some(cut) = self.cut.take() else { return };
        self.since = self.cut_since.take().or(self.since);
        if self.has_more {
            return;
        }
        for (key, changes) in cut.into_changes() {
            let file = self
                .files
                .entry(key)
                .or_insert_with(|| FileChanges { size: changes.size, ranges: Ranges::default() });
            let before = file.ranges.count();
            file.ranges.merge(&changes.ranges);
            self.ranges = self.ranges + file.ranges.count() - before;
        }
        self.expect_room();
    }
}

/// The amount of changed content that a mirror does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContentRisk {
    /// The number of changed bytes.
    pub bytes: u64,
    /// The time of the first change.
    pub since: Option<Instant>,
    /// Bytes of memory of the records.
    pub memory: usize,
}

/// A reader of a content file as it was at the cut.
#[derive(Debug)]
pub struct CutReader<'a> {
    changes: &'a ContentChanges,
    key: ContentKey,
    file: Arc<ContentFile>,
    size: u64,
    mtime: Time,
}

impl CutReader<'_> {
    /// Returns the size of the file at the cut.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Returns the time of the last change. It may be that of a change after the cut, which is in
    /// the next group too.
    #[must_use]
    pub const fn mtime(&self) -> Time {
        self.mtime
    }

    /// Returns the next piece of the bytes that changed before the cut, in no order; `None` at the
    /// end.
    ///
    /// # Errors
    /// [`CutError`].
    pub fn next_piece(&self) -> Result<Option<ContentPiece>, CutError> {
        loop {
            let range = {
                let mut inner = self.changes.inner.lock();
                let cut = inner.cut.as_mut().filter(|cut| !cut.is_given_up());
                let cut = cut.ok_or(CutError::GivenUp)?;
                if let Some(KeptPiece { offset, bytes }) = cut.next_kept(self.key)? {
                    return Ok(Some(ContentPiece::Bytes { offset, bytes }));
                }
                let Some(range) = cut.next_unread(self.key) else {
                    cut.finish_file(self.key);
                    return Ok(None);
                };
                range
            };
            let piece = read_piece(&self.file, range)?;
            if let Some(piece) = self.confirm(piece)? {
                return Ok(Some(piece));
            }
        }
    }

    /// Returns a piece that was read if it has not changed since the cut; if it changed in part,
    /// the first part that has not.
    fn confirm(&self, piece: ContentPiece) -> Result<Option<ContentPiece>, CutError> {
        let range = piece.range();
        let mut inner = self.changes.inner.lock();
        let cut = inner.cut.as_mut().filter(|cut| !cut.is_given_up()).ok_or(CutError::GivenUp)?;
        let Some(part) = cut.unread_range(self.key, &range) else { return Ok(None) };
        cut.note_read(self.key, &part);
        Ok(Some(piece.part(&part)))
    }
}

impl ContentPiece {
    /// Returns the range of the piece.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        match self {
            Self::Bytes { offset, bytes } => *offset..*offset + bytes.len() as u64,
            Self::Hole { offset, length } => *offset..*offset + length,
        }
    }

    /// Returns a part of the piece, which is within it.
    fn part(self, part: &Range<u64>) -> Self {
        match self {
            Self::Bytes { offset, mut bytes } => {
                bytes.truncate((part.end - offset) as usize);
                let bytes = bytes.split_off((part.start - offset) as usize);
                Self::Bytes { offset: part.start, bytes }
            }
            Self::Hole { .. } => Self::Hole { offset: part.start, length: part.end - part.start },
        }
    }
}

/// Reads the first piece of a range of a content file. A part beyond the end of the file counts as
/// a hole.
///
/// # Errors
/// [`content::Error`] if a system call fails.
pub fn read_piece(file: &ContentFile, range: Range<u64>) -> Result<ContentPiece, content::Error> {
    let hole = |end: u64| ContentPiece::Hole { offset: range.start, length: end - range.start };
    // A file system that cannot tell has data everywhere.
    let data = file.seek(range.start, Whence::Data).unwrap_or(Some(range.start));
    let data = data.unwrap_or(range.end).min(range.end);
    if data > range.start {
        return Ok(hole(data));
    }
    let end = file.seek(range.start, Whence::Hole).ok().flatten().unwrap_or(range.end);
    let end = end.max(range.start + 1).min(range.end);
    let length = (end - range.start).min(limits::GROUP_BYTES as u64);
    let mut bytes = vec![0; length as usize];
    let read = file.read_at(&mut bytes, range.start)?;
    if read == 0 {
        return Ok(hole(range.end));
    }
    bytes.truncate(read);
    Ok(ContentPiece::Bytes { offset: range.start, bytes })
}
