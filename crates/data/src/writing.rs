//! The `writing` rows of content files, and the condition for their deletion.
//!
//! A `writing` row exists from before the first change of a content file until its bytes are safe
//! and no opener may write it. The map here has the rows of the table, and records which files
//! still have writers.
//!
//! An entry also records which failures a sync of its content file reports. Linux reports a failed
//! writeback through each descriptor that was open at the time, and forgets it with the kernel's
//! inode, which may leave memory once the last descriptor is closed. So the last descriptor of a
//! closed file is kept here until the file is synced.
//!
//! Lock order: an open inode, then these rows, then a shard's state. The lock is held while rows
//! are deleted, so that no writer relies on a row that is about to be deleted.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pelago_meta::shard::Shard;
use pelago_store::sync::Mutex;
use pelago_wire::id_map::IdMap;
use pelago_wire::{Error, Generation, InodeId, limits};

use crate::content_file::OpenContent;
use crate::lost_ranges::LostRanges;

/// The content files that have a `writing` row.
#[derive(Debug, Default)]
pub(crate) struct WritingSet {
    state: Mutex<State>,
    /// The number of files in error: spares the lock on each write.
    in_error: AtomicUsize,
    /// The number of copy-on-write files: spares the lock on each write.
    copy_on_write_count: AtomicUsize,
    /// Held while several content files are synced and a failure is recorded. Taken before the
    /// `sync_turn` of an inode.
    pub(crate) sync_turn: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    entries: IdMap<InodeId, Entry>,
    /// Counts the times that a file lost its last writer.
    closes: u64,
    /// The descriptors of closed files that are not synced, at most [`limits::UNSYNCED_FILES`].
    kept: IdMap<InodeId, Arc<OpenContent>>,
    /// The files in error, and the bytes that they may have lost.
    lost: IdMap<InodeId, LostRanges>,
    /// The copy-on-write files, each with the generation that is not changed ([`crate::renew`]).
    copy_on_write: IdMap<InodeId, Generation>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    generation: Generation,
    /// True if the table may have lost the row: the next writer writes it again.
    unconfirmed: bool,
    /// The value of `closes` when the last writer left; `None` while there is a writer.
    closed: Option<u64>,
    watch: ErrorWatch,
}

/// The failures that a sync of a content file reports, of the bytes that were written since its
/// `writing` row was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorWatch {
    /// All failures, because a descriptor was open all the time.
    Complete,
    /// Not all failures, because no descriptor was open for some time. A sync of the whole file
    /// system reports them.
    Interrupted,
    /// Perhaps none, because a failure may have been reported to an earlier run of the server.
    EarlierRun,
}

/// A row that is about to be written, and its previous entry.
#[derive(Debug)]
pub(crate) struct Unwritten {
    ino: InodeId,
    before: Option<Entry>,
}

/// A `writing` row without writers, as it was at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClosedRow {
    ino: InodeId,
    generation: Generation,
    closed: u64,
    /// True if the row was written by an earlier run of the server.
    pub(crate) is_from_earlier_run: bool,
}

impl ClosedRow {
    /// Returns the content file.
    pub(crate) const fn file(&self) -> (InodeId, Generation) {
        (self.ino, self.generation)
    }
}

/// The most rows that are deleted in one batch.
const BATCH_ROWS: usize = 256;

impl WritingSet {
    /// Adds a writer. Returns `None` if the row exists already. Otherwise the caller must write it,
    /// and call [`WritingSet::undo_open`] if that fails.
    pub(crate) fn open(&self, ino: InodeId, generation: Generation) -> Option<Unwritten> {
        let mut state = self.state.lock();
        let before = state.entries.get(&ino).copied();
        let same = before.filter(|entry| entry.generation == generation);
        let watch = same.map_or(ErrorWatch::Complete, |entry| entry.watch);
        let entry = Entry { generation, unconfirmed: false, closed: None, watch };
        state.entries.insert(ino, entry);
        let exists = same.is_some_and(|entry| !entry.unconfirmed);
        (!exists).then_some(Unwritten { ino, before })
    }

    /// Records that the row could not be written, and restores the previous entry.
    pub(crate) fn undo_open(&self, unwritten: Unwritten) {
        let mut state = self.state.lock();
        let now = state.entries.remove(&unwritten.ino);
        if let Some(before) = unwritten.before {
            let unconfirmed = before.unconfirmed || now.is_some_and(|entry| entry.unconfirmed);
            state.entries.insert(unwritten.ino, Entry { unconfirmed, ..before });
        }
    }

    /// Records that the last writer has left, and the bytes are not known to be safe.
    pub(crate) fn close(&self, ino: InodeId) {
        let mut state = self.state.lock();
        state.closes += 1;
        let closed = state.closes;
        if let Some(entry) = state.entries.get_mut(&ino) {
            entry.closed = Some(closed);
        }
    }

    /// Records that the row was deleted.
    pub(crate) fn remove(&self, ino: InodeId) {
        let mut state = self.state.lock();
        state.entries.remove(&ino);
        let kept = state.kept.remove(&ino);
        drop(state);
        // Closing a file may take long: not under the lock.
        drop(kept);
    }

    /// Records that the table may have lost rows. Entries without writers wait for
    /// [`WritingSet::restore`] or [`WritingSet::clear_synced`]; the deletion of a missing row is
    /// harmless.
    pub(crate) fn invalidate(&self) {
        self.state.lock().entries.values_mut().for_each(|entry| entry.unconfirmed = true);
    }

    /// Adds a row that was found in the table, at a start or after [`WritingSet::invalidate`]. An
    /// entry of a writer that came meanwhile stays.
    pub(crate) fn restore(&self, ino: InodeId, generation: Generation) {
        let mut state = self.state.lock();
        state.closes += 1;
        let closed = Some(state.closes);
        let watch = ErrorWatch::EarlierRun;
        let found = Entry { generation, unconfirmed: false, closed, watch };
        let entry = state.entries.entry(ino).or_insert(found);
        if entry.generation == generation {
            entry.unconfirmed = false;
        }
    }

    /// Returns whether a file has a `writing` row, so that a loss of power may lose its bytes.
    pub(crate) fn contains(&self, ino: InodeId) -> bool {
        self.state.lock().entries.contains_key(&ino)
    }

    /// Counts the rows.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().entries.len()
    }

    /// Returns the rows that can be deleted once all bytes written until now are safe.
    pub(crate) fn closed_rows(&self) -> Vec<ClosedRow> {
        let state = self.state.lock();
        let closed = |(ino, entry): (&InodeId, &Entry)| {
            let ino = *ino;
            let generation = entry.generation;
            let is_from_earlier_run = entry.watch == ErrorWatch::EarlierRun;
            let is_kept = state.lost.contains_key(&ino) || state.is_copy_on_write(ino, generation);
            let closed = entry.closed.filter(|_| !is_kept)?;
            Some(ClosedRow { ino, generation, closed, is_from_earlier_run })
        };
        state.entries.iter().filter_map(closed).collect()
    }

    /// Returns all content files that have a row and are not in error.
    pub(crate) fn healthy_files(&self) -> Vec<(InodeId, Generation)> {
        let state = self.state.lock();
        let healthy = |(ino, _): &(&InodeId, &Entry)| !state.lost.contains_key(*ino);
        let files = state.entries.iter().filter(healthy);
        files.map(|(ino, entry)| (*ino, entry.generation)).collect()
    }

    /// Deletes these rows, after the bytes that were written when [`WritingSet::closed_rows`]
    /// returned them became safe. Rows of files that were written since, or are in error, stay.
    /// Returns the number of deleted rows.
    ///
    /// # Errors
    /// If the table fails.
    pub(crate) fn clear_synced(&self, rows: &[ClosedRow], shard: &Shard) -> Result<usize, Error> {
        let mut deleted = 0;
        for batch in rows.chunks(BATCH_ROWS) {
            let mut state = self.state.lock();
            let is_unchanged = |row: &&ClosedRow| {
                state.entries.get(&row.ino).is_some_and(|entry| entry.closed == Some(row.closed))
                    && !state.lost.contains_key(&row.ino)
            };
            let inos: Vec<_> = batch.iter().filter(is_unchanged).map(|row| row.ino).collect();
            shard.delete_writing_rows(&inos)?;
            let mut kept = Vec::with_capacity(inos.len());
            for ino in &inos {
                state.entries.remove(ino);
                kept.extend(state.kept.remove(ino));
            }
            drop(state);
            drop(kept);
            deleted += inos.len();
        }
        Ok(deleted)
    }
}

/// The failures that syncs report.
impl WritingSet {
    /// Returns which failures a sync of this content file reports; `None` if it has no row.
    pub(crate) fn watch(&self, ino: InodeId) -> Option<ErrorWatch> {
        self.state.lock().entries.get(&ino).map(|entry| entry.watch)
    }

    /// Records that the content file is open, and all bytes written before are safe.
    pub(crate) fn restart_watch(&self, ino: InodeId) {
        if let Some(entry) = self.state.lock().entries.get_mut(&ino) {
            entry.watch = ErrorWatch::Complete;
        }
    }

    /// Records that the last descriptor of the content file was closed although it may have unsafe
    /// bytes.
    pub(crate) fn interrupt_watch(&self, ino: InodeId) {
        self.state.lock().interrupt_watch(ino);
    }

    /// Keeps the descriptor of a closed file, if the file has a row.
    pub(crate) fn keep_open(&self, content: &Arc<OpenContent>) {
        let ino = content.ino();
        let mut state = self.state.lock();
        let watch = state.entries.get(&ino).map(|entry| entry.watch);
        if watch != Some(ErrorWatch::Complete) {
            return;
        }
        if state.kept.len() < limits::UNSYNCED_FILES {
            state.kept.insert(ino, Arc::clone(content));
        } else {
            state.interrupt_watch(ino);
        }
    }

    /// Takes the kept descriptor of a file. The caller keeps it open, or opens another one before
    /// closing it, so that the kernel's inode stays in memory.
    pub(crate) fn take_kept(&self, ino: InodeId) -> Option<Arc<OpenContent>> {
        self.state.lock().kept.remove(&ino)
    }

    /// Closes all kept descriptors, as the end of the process does.
    pub(crate) fn close_all_kept(&self) {
        self.state.lock().kept.clear();
    }

    /// Closes the kept descriptor of a file. Returns whether there was one.
    pub(crate) fn close_kept(&self, ino: InodeId) -> bool {
        let mut state = self.state.lock();
        let kept = state.kept.remove(&ino);
        if kept.is_some() {
            state.interrupt_watch(ino);
        }
        drop(state);
        kept.is_some()
    }
}

/// Files in error.
impl WritingSet {
    /// Records that a sync of this file has failed. Returns whether the file has a row, so that it
    /// is in error from now on.
    pub(crate) fn set_error(&self, ino: InodeId, lost: LostRanges) -> bool {
        let mut state = self.state.lock();
        let has_row = state.entries.contains_key(&ino);
        if has_row {
            state.lost.entry(ino).and_modify(|before| before.merge(lost.clone())).or_insert(lost);
            self.count_errors(&state);
        }
        has_row
    }

    /// Returns all inodes that have a row, also those in error.
    pub(crate) fn inodes(&self) -> Vec<InodeId> {
        self.state.lock().entries.keys().copied().collect()
    }

    /// Returns whether a file is in error.
    pub(crate) fn is_in_error(&self, ino: InodeId) -> bool {
        self.any_in_error() && self.state.lock().lost.contains_key(&ino)
    }

    /// Returns whether any file is in error.
    pub(crate) fn any_in_error(&self) -> bool {
        self.in_error.load(Ordering::Acquire) > 0
    }

    /// Returns the files in error.
    pub(crate) fn inodes_in_error(&self) -> Vec<InodeId> {
        self.state.lock().lost.keys().copied().collect()
    }

    /// Records that a caller is about to write to a file. Returns whether the file is in error and
    /// this is the first write since the failure.
    pub(crate) fn begin_rewrite(&self, ino: InodeId) -> bool {
        self.any_in_error()
            && self.state.lock().lost.get_mut(&ino).is_some_and(LostRanges::begin_rewrite)
    }

    /// Records that bytes of a file, whose size is `size` now, were written again. Once all of them
    /// were, the file is no longer in error.
    pub(crate) fn note_rewrite(&self, ino: InodeId, written: Range<u64>, size: u64) {
        if !self.any_in_error() {
            return;
        }
        let mut state = self.state.lock();
        let Some(lost) = state.lost.get_mut(&ino) else { return };
        lost.note_rewrite(written);
        if lost.is_restored(size) {
            state.lost.remove(&ino);
            self.count_errors(&state);
        }
    }

    /// Ends the error of a file that has another content file, or is gone.
    pub(crate) fn clear_error(&self, ino: InodeId) {
        if self.any_in_error() {
            let mut state = self.state.lock();
            state.lost.remove(&ino);
            self.count_errors(&state);
        }
    }

    fn count_errors(&self, state: &State) {
        self.in_error.store(state.lost.len(), Ordering::Release);
    }
}

/// Copy-on-write files ([`crate::renew`]).
impl WritingSet {
    /// Makes all files that have a row now copy-on-write, because another server may still write
    /// them.
    pub(crate) fn set_all_copy_on_write(&self) {
        let mut state = self.state.lock();
        let files = state.entries.iter().map(|(ino, entry)| (*ino, entry.generation)).collect();
        state.copy_on_write = files;
        self.copy_on_write_count.store(state.copy_on_write.len(), Ordering::Release);
    }

    /// Returns whether this content file is copy-on-write.
    pub(crate) fn is_copy_on_write(&self, ino: InodeId, generation: Generation) -> bool {
        self.copy_on_write_count.load(Ordering::Acquire) > 0
            && self.state.lock().is_copy_on_write(ino, generation)
    }

    /// Records that a file has a new content file, which no other server writes.
    pub(crate) fn clear_copy_on_write(&self, ino: InodeId) {
        let mut state = self.state.lock();
        state.copy_on_write.remove(&ino);
        self.copy_on_write_count.store(state.copy_on_write.len(), Ordering::Release);
    }

    /// Returns the copy-on-write files.
    pub(crate) fn inodes_copy_on_write(&self) -> Vec<InodeId> {
        self.state.lock().copy_on_write.keys().copied().collect()
    }
}

impl State {
    fn is_copy_on_write(&self, ino: InodeId, generation: Generation) -> bool {
        self.copy_on_write.get(&ino) == Some(&generation)
    }

    fn interrupt_watch(&mut self, ino: InodeId) {
        if let Some(entry) = self.entries.get_mut(&ino)
            && entry.watch == ErrorWatch::Complete
        {
            entry.watch = ErrorWatch::Interrupted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{READ_WRITE, Rig, pattern};

    const INO: InodeId = InodeId::from_raw(7);

    /// A sync asks here whether the file has anything to sync.
    #[test]
    fn a_row_that_cannot_be_written_again_stays_unconfirmed() {
        let rows = WritingSet::default();
        let open = || rows.open(INO, Generation::FIRST);
        rows.undo_open(open().unwrap());
        assert!(!rows.contains(INO), "there was none");
        assert!(open().is_some());
        assert!(open().is_none());
        rows.invalidate();
        rows.undo_open(open().unwrap());
        assert!(rows.contains(INO));
        assert!(open().is_some(), "the next writer writes it");
        assert!(open().is_none());
    }

    #[test]
    fn the_row_of_a_file_in_error_is_deleted_only_once_all_bytes_were_written_again() {
        let rows = WritingSet::default();
        assert!(!rows.set_error(INO, LostRanges::all(false)), "it has no row");
        assert!(rows.open(INO, Generation::FIRST).is_some());
        rows.close(INO);
        assert!(rows.set_error(INO, LostRanges::all(false)));
        assert!(rows.is_in_error(INO));
        assert!(rows.closed_rows().is_empty() && rows.healthy_files().is_empty());
        rows.note_rewrite(INO, 0..99, 100);
        assert!(rows.is_in_error(INO));
        rows.note_rewrite(INO, 99..100, 100);
        assert!(!rows.any_in_error());
        assert_eq!(rows.closed_rows().len(), 1);
    }

    #[test]
    fn the_row_of_a_file_that_was_written_during_a_sync_is_not_deleted() {
        let rig = Rig::new();
        let file = rig.file("f", &pattern(10_000));
        let clear = |rows: &[ClosedRow]| rig.files.writing.clear_synced(rows, &rig.shard);
        let before = rig.files.writing.closed_rows();
        let open = rig.open(file.handle, READ_WRITE).unwrap();
        rig.write(open, 0, b"x").unwrap();
        assert_eq!(clear(&before), Ok(0), "it has a writer");
        rig.close(open);
        assert_eq!(clear(&before), Ok(0), "it was written since");
        assert!(rig.has_writing_row(file.handle));
        assert_eq!(clear(&rig.files.writing.closed_rows()), Ok(1));
        assert!(!rig.has_writing_row(file.handle));
    }
}
