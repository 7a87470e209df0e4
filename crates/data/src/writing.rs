//! Which content files have a `writing` row, and whether it can go.
//!
//! A mark stands from before the first change of a content file until its bytes are safe and
//! nobody has it open for writing. The map here says what the table says, and who still writes.
//!
//! A mark also knows what a sync of its content file can tell. Linux tells of a failed write-back
//! through each descriptor that was open then, and forgets it with the inode, which may leave
//! memory once no descriptor is left. So the last descriptor of a closed file is kept here until
//! the file is synced.
//!
//! Lock order: an open file, then the marks, then a shard's state. They are held while marks are
//! deleted, so that no writer relies on one that is about to go.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use pelago_wire::{Error, Generation, InodeId, limits};

use crate::content_file::OpenContent;
use crate::lost_ranges::Lost;
use pelago_meta::shard::Shard;
use pelago_wire::id_map::IdMap;

/// The marks of a shard.
#[derive(Debug, Default)]
pub(crate) struct WritingSet {
    state: Mutex<State>,
    /// How many files are in error: spares the lock on each write.
    failed: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    marks: IdMap<InodeId, Mark>,
    /// Counts up with each writer that ends.
    ended: u64,
    /// FdBudget of files that are closed and not synced, [`limits::UNSYNCED_FILES`] at the most.
    kept: IdMap<InodeId, Arc<OpenContent>>,
    /// Files in error: a sync of theirs has failed.
    lost: IdMap<InodeId, Lost>,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    generation: Generation,
    /// The table may have lost it: who begins to write writes it again.
    doubted: bool,
    /// `None`: somebody writes. Else the number of the writer that ended last.
    ended: Option<u64>,
    watch: Watch,
}

/// What a sync of a content file tells of the bytes that were written since its mark was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Everything: a descriptor was open all the time.
    Whole,
    /// Too little: no descriptor was open for some time. A sync of the whole file system tells.
    Broken,
    /// Nothing: an earlier life of the server may have been told of a failure already.
    Earlier,
}

/// A mark that is about to be written, and what was there before.
#[derive(Debug)]
pub(crate) struct Begun {
    ino: InodeId,
    before: Option<Mark>,
}

/// A mark whose writers have ended, as it was at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    ino: InodeId,
    generation: Generation,
    number: u64,
    /// The mark is from an earlier life.
    pub(crate) is_earlier: bool,
}

impl Ended {
    /// The content file.
    pub(crate) const fn file(&self) -> (InodeId, Generation) {
        (self.ino, self.generation)
    }
}

/// WritingSet that are deleted in one batch.
const AT_ONCE: usize = 256;

impl WritingSet {
    /// Somebody begins to write. `None`: the mark stands already. Else the caller writes it, and
    /// calls [`WritingSet::undo`] where that fails.
    pub(crate) fn begin(&self, ino: InodeId, generation: Generation) -> Option<Begun> {
        let mut state = self.state.lock();
        let before = state.marks.get(&ino).copied();
        let same = before.filter(|mark| mark.generation == generation);
        let watch = same.map_or(Watch::Whole, |mark| mark.watch);
        state.marks.insert(ino, Mark { generation, doubted: false, ended: None, watch });
        let stands = same.is_some_and(|mark| !mark.doubted);
        (!stands).then_some(Begun { ino, before })
    }

    /// The mark could not be written: of a file that may have had one all is unsafe as before.
    pub(crate) fn undo(&self, begun: Begun) {
        let mut state = self.state.lock();
        let now = state.marks.remove(&begun.ino);
        if let Some(before) = begun.before {
            let doubted = before.doubted || now.is_some_and(|mark| mark.doubted);
            state.marks.insert(begun.ino, Mark { doubted, ..before });
        }
    }

    /// The last writer has ended, but the bytes are not known to be safe.
    pub(crate) fn end(&self, ino: InodeId) {
        let mut state = self.state.lock();
        state.ended += 1;
        let number = state.ended;
        if let Some(mark) = state.marks.get_mut(&ino) {
            mark.ended = Some(number);
        }
    }

    /// The mark was deleted.
    pub(crate) fn remove(&self, ino: InodeId) {
        let mut state = self.state.lock();
        state.marks.remove(&ino);
        let kept = state.kept.remove(&ino);
        drop(state);
        // Closed behind the lock.
        drop(kept);
    }

    /// The table may have lost marks. Those of files that nobody writes wait to be found again or
    /// to be settled, which costs nothing where they are not there.
    pub(crate) fn doubt(&self) {
        self.state.lock().marks.values_mut().for_each(|mark| mark.doubted = true);
    }

    /// A mark was found, at start or behind [`WritingSet::doubt`]. Who has begun to write meanwhile
    /// has written it.
    pub(crate) fn found(&self, ino: InodeId, generation: Generation) {
        let mut state = self.state.lock();
        state.ended += 1;
        let ended = Some(state.ended);
        let found = Mark { generation, doubted: false, ended, watch: Watch::Earlier };
        let mark = state.marks.entry(ino).or_insert(found);
        if mark.generation == generation {
            mark.doubted = false;
        }
    }

    /// Whether the bytes of a file may be lost with the machine, whatever its row says.
    pub(crate) fn is_unsafe(&self, ino: InodeId) -> bool {
        self.state.lock().marks.contains_key(&ino)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().marks.len()
    }

    /// The marks that can go once everything that is written now is safe.
    pub(crate) fn to_settle(&self) -> Vec<Ended> {
        let state = self.state.lock();
        let ended = |(ino, mark): (&InodeId, &Mark)| {
            let (ino, generation) = (*ino, mark.generation);
            let is_earlier = mark.watch == Watch::Earlier;
            let number = mark.ended.filter(|_| !state.lost.contains_key(&ino))?;
            Some(Ended { ino, generation, number, is_earlier })
        };
        state.marks.iter().filter_map(ended).collect()
    }

    /// All content files that have a mark and are not in error.
    pub(crate) fn files(&self) -> Vec<(InodeId, Generation)> {
        let state = self.state.lock();
        let healthy = |(ino, _): &(&InodeId, &Mark)| !state.lost.contains_key(*ino);
        let files = state.marks.iter().filter(healthy);
        files.map(|(ino, mark)| (*ino, mark.generation)).collect()
    }

    /// What was written when [`WritingSet::to_settle`] answered is safe: deletes these marks, but
    /// for those of files that were written since or are in error. Answers how many.
    pub(crate) fn settle(&self, ended: &[Ended], shard: &Shard) -> Result<usize, Error> {
        let mut settled = 0;
        for some in ended.chunks(AT_ONCE) {
            let mut state = self.state.lock();
            let still = |one: &&Ended| {
                state.marks.get(&one.ino).is_some_and(|mark| mark.ended == Some(one.number))
                    && !state.lost.contains_key(&one.ino)
            };
            let inos: Vec<_> = some.iter().filter(still).map(|one| one.ino).collect();
            shard.delete_writing_rows(&inos)?;
            let mut closed = Vec::with_capacity(inos.len());
            for ino in &inos {
                state.marks.remove(ino);
                closed.extend(state.kept.remove(ino));
            }
            drop(state);
            drop(closed);
            settled += inos.len();
        }
        Ok(settled)
    }
}

/// What syncs can tell.
impl WritingSet {
    /// What a sync of this content file tells; `None`: it has no mark.
    pub(crate) fn watch(&self, ino: InodeId) -> Option<Watch> {
        self.state.lock().marks.get(&ino).map(|mark| mark.watch)
    }

    /// The content file is open, and all that was written before is safe.
    pub(crate) fn begin_watch(&self, ino: InodeId) {
        if let Some(mark) = self.state.lock().marks.get_mut(&ino) {
            mark.watch = Watch::Whole;
        }
    }

    /// No descriptor of the content file is open any more, though it may have unsafe bytes.
    pub(crate) fn break_watch(&self, ino: InodeId) {
        self.state.lock().break_watch(ino);
    }

    /// Keeps the descriptor of a file that is closed, if it has a mark.
    pub(crate) fn keep(&self, content: &Arc<OpenContent>) {
        let ino = content.ino();
        let mut state = self.state.lock();
        if !state.marks.get(&ino).is_some_and(|mark| mark.watch == Watch::Whole) {
            return;
        }
        if state.kept.len() < limits::UNSYNCED_FILES {
            state.kept.insert(ino, Arc::clone(content));
        } else {
            state.break_watch(ino);
        }
    }

    /// Hands out the descriptor that was kept of a file. The caller keeps it, or closes it behind
    /// another one that it has opened: the inode stays in memory then.
    pub(crate) fn take_kept(&self, ino: InodeId) -> Option<Arc<OpenContent>> {
        self.state.lock().kept.remove(&ino)
    }

    /// Closes all descriptors that were kept, as the end of the process does.
    pub(crate) fn close_all_kept(&self) {
        self.state.lock().kept.clear();
    }

    /// Closes the descriptor that was kept of a file. Answers whether there was one.
    pub(crate) fn close_kept(&self, ino: InodeId) -> bool {
        let mut state = self.state.lock();
        let kept = state.kept.remove(&ino);
        if kept.is_some() {
            state.break_watch(ino);
        }
        drop(state);
        kept.is_some()
    }
}

/// Files in error.
impl WritingSet {
    /// A sync of this file has failed. Answers whether it has a mark, and is in error from now on.
    pub(crate) fn fail(&self, ino: InodeId, lost: Lost) -> bool {
        let mut state = self.state.lock();
        let is_marked = state.marks.contains_key(&ino);
        if is_marked {
            state.lost.entry(ino).and_modify(|before| before.merge(lost.clone())).or_insert(lost);
            self.failed.store(state.lost.len(), Ordering::Release);
        }
        is_marked
    }

    /// All files that have a mark, also those in error.
    pub(crate) fn all(&self) -> Vec<InodeId> {
        self.state.lock().marks.keys().copied().collect()
    }

    /// Whether a file is in error.
    pub(crate) fn is_failed(&self, ino: InodeId) -> bool {
        self.any_failed() && self.state.lock().lost.contains_key(&ino)
    }

    /// Whether any file is in error.
    pub(crate) fn any_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire) > 0
    }

    /// The files in error.
    pub(crate) fn failed(&self) -> Vec<InodeId> {
        self.state.lock().lost.keys().copied().collect()
    }

    /// A caller is about to write to a file. Answers whether it is in error, and the caller is the
    /// first one since.
    pub(crate) fn begin_rewrite(&self, ino: InodeId) -> bool {
        self.any_failed() && self.state.lock().lost.get_mut(&ino).is_some_and(Lost::begin_rewrite)
    }

    /// Bytes of a file were written again; it has this size now. Once all of them were, it is not
    /// in error any more.
    pub(crate) fn rewrote(&self, ino: InodeId, written: std::ops::Range<u64>, size: u64) {
        if !self.any_failed() {
            return;
        }
        let mut state = self.state.lock();
        let Some(lost) = state.lost.get_mut(&ino) else { return };
        lost.rewrote(written);
        if lost.is_over(size) {
            state.lost.remove(&ino);
            self.failed.store(state.lost.len(), Ordering::Release);
        }
    }

    /// The file has another content file, or is gone.
    pub(crate) fn heal(&self, ino: InodeId) {
        if self.any_failed() {
            let mut state = self.state.lock();
            state.lost.remove(&ino);
            self.failed.store(state.lost.len(), Ordering::Release);
        }
    }
}

impl State {
    fn break_watch(&mut self, ino: InodeId) {
        if let Some(mark) = self.marks.get_mut(&ino)
            && mark.watch == Watch::Whole
        {
            mark.watch = Watch::Broken;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever syncs a file asks here whether there is something to sync.
    #[test]
    fn a_mark_that_cannot_be_written_again_is_doubted_still() {
        let (marks, ino) = (WritingSet::default(), InodeId::from_raw(7));
        let begin = || marks.begin(ino, Generation::FIRST);
        marks.undo(begin().unwrap());
        assert!(!marks.is_unsafe(ino), "there was none");
        assert!(begin().is_some());
        assert!(begin().is_none());
        marks.doubt();
        marks.undo(begin().unwrap());
        assert!(marks.is_unsafe(ino));
        assert!(begin().is_some(), "who writes next writes it");
        assert!(begin().is_none());
    }

    #[test]
    fn a_file_in_error_is_settled_only_once_it_was_written_again() {
        let (marks, ino) = (WritingSet::default(), InodeId::from_raw(7));
        assert!(!marks.fail(ino, Lost::all(false)), "it has no mark");
        assert!(marks.begin(ino, Generation::FIRST).is_some());
        marks.end(ino);
        assert!(marks.fail(ino, Lost::all(false)));
        assert!(marks.is_failed(ino) && marks.to_settle().is_empty() && marks.files().is_empty());
        marks.rewrote(ino, 0..99, 100);
        assert!(marks.is_failed(ino));
        marks.rewrote(ino, 99..100, 100);
        assert!(!marks.any_failed());
        assert_eq!(marks.to_settle().len(), 1);
    }
}
