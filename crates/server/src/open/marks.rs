//! Which content files have a `writing` row, and whether it can go.
//!
//! A mark stands from before the first change of a content file until its bytes are safe and
//! nobody has it open for writing. The map here says what the table says, and who still writes.
//!
//! Lock order: an open file, then the marks, then a shard's state. They are held while marks are
//! deleted, so that no writer relies on one that is about to go.

use parking_lot::Mutex;
use pelago_wire::{Error, Generation, InodeId};

use crate::numbers::NumberMap;
use crate::shard::Shard;

/// The marks of a shard.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    marks: NumberMap<InodeId, Mark>,
    /// Counts up with each writer that ends.
    ended: u64,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    generation: Generation,
    /// The table may have lost it: who begins to write writes it again.
    doubted: bool,
    /// `None`: somebody writes. Else the number of the writer that ended last.
    ended: Option<u64>,
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
}

impl Ended {
    /// The content file.
    pub(crate) const fn file(&self) -> (InodeId, Generation) {
        (self.ino, self.generation)
    }
}

/// Marks that are deleted in one batch.
const AT_ONCE: usize = 256;

impl Marks {
    /// Somebody begins to write. `None`: the mark stands already. Else the caller writes it, and
    /// calls [`Marks::undo`] where that fails.
    pub(crate) fn begin(&self, ino: InodeId, generation: Generation) -> Option<Begun> {
        let mark = Mark { generation, doubted: false, ended: None };
        let before = self.state.lock().marks.insert(ino, mark);
        let stands = before.is_some_and(|mark| mark.generation == generation && !mark.doubted);
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
        self.state.lock().marks.remove(&ino);
    }

    /// The table may have lost marks. Those of files that nobody writes wait to be found again or
    /// to be settled, which costs nothing where they are not there.
    pub(crate) fn doubt(&self) {
        self.state.lock().marks.values_mut().for_each(|mark| mark.doubted = true);
    }

    /// A mark was found, at start or behind [`Marks::doubt`]. Who has begun to write meanwhile has
    /// written it.
    pub(crate) fn found(&self, ino: InodeId, generation: Generation) {
        let mut state = self.state.lock();
        state.ended += 1;
        let ended = Some(state.ended);
        let found = Mark { generation, doubted: false, ended };
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
            mark.ended.map(|number| Ended { ino: *ino, generation: mark.generation, number })
        };
        state.marks.iter().filter_map(ended).collect()
    }

    /// All content files that have a mark.
    pub(crate) fn files(&self) -> Vec<(InodeId, Generation)> {
        self.state.lock().marks.iter().map(|(ino, mark)| (*ino, mark.generation)).collect()
    }

    /// What was written when [`Marks::to_settle`] answered is safe: deletes these marks, but for
    /// those of files that were written since. Answers how many.
    pub(crate) fn settle(&self, ended: &[Ended], shard: &Shard) -> Result<usize, Error> {
        let mut settled = 0;
        for some in ended.chunks(AT_ONCE) {
            let mut state = self.state.lock();
            let still = |one: &&Ended| {
                state.marks.get(&one.ino).is_some_and(|mark| mark.ended == Some(one.number))
            };
            let inos: Vec<_> = some.iter().filter(still).map(|one| one.ino).collect();
            shard.forget_marks(&inos)?;
            for ino in &inos {
                state.marks.remove(ino);
            }
            settled += inos.len();
        }
        Ok(settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever syncs a file asks here whether there is something to sync.
    #[test]
    fn a_mark_that_cannot_be_written_again_is_doubted_still() {
        let (marks, ino) = (Marks::default(), InodeId::from_raw(7));
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
}
