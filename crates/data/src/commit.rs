//! Telling the table what open files have: at FLUSH, at fsync, when the last one leaves, and at
//! each group commit.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::MutexGuard;
use pelago_store::key::{self, Key, RowKind};
use pelago_store::rows::{Row, Writing};
use pelago_wire::{Attr, Code, Error, Generation, Handle, InodeId};

use crate::blocking::{MayBlock, OpError};
use crate::inode::{Bytes, Changed, Inode, InodeState};
use crate::open_files::OpenFiles;
use pelago_meta::shard::{BytesChange, Inline, WritingRow};
use pelago_store::report::{row_damaged, table_failed};

/// Bytes put into the table after which a group commit comes before its time.
const HURRY_BYTES: usize = 4 << 20;
/// How long a group commit waits for a file that somebody is at.
pub(crate) const STALL: Duration = Duration::from_millis(10);

/// What became of somebody who left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// They have the file open no more.
    Gone,
    /// The file stays open: somebody may still write it without a request.
    Lingers,
}

impl OpenFiles {
    /// Commits all small files whose bytes are not in the table yet. What fails stays, and is tried
    /// again the next time.
    ///
    /// # Errors
    /// The last failure.
    pub fn commit_dirty(&self) -> Result<(), Error> {
        self.unsafe_bytes.store(0, Ordering::Relaxed);
        let dirty = std::mem::take(&mut *self.dirty.lock());
        let mut result = Ok(());
        for ino in dirty {
            let Some(file) = self.known.file(ino) else { continue };
            let Some(state) = file.wait_for(STALL) else {
                // It is being spilled: the others shall not wait for that.
                self.dirty.lock().insert(ino);
                continue;
            };
            match self.commit_and_pay(&file, state) {
                // The table lost it, and its openers are told: no later group commit can do more.
                Ok(()) | Err(Error { code: Code::Stale }) => {}
                Err(error) => {
                    self.dirty.lock().insert(ino);
                    result = Err(error);
                }
            }
        }
        result
    }

    /// Commits everything that is open, whatever it is: the last thing before a clean end.
    ///
    /// # Errors
    /// The last failure.
    pub fn commit_all(&self) -> Result<(), Error> {
        let mut result = Ok(());
        for file in self.known.files() {
            match self.commit_and_pay(&file, file.wait()) {
                Ok(()) | Err(Error { code: Code::Stale }) => {}
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// The table has lost changes: the openers of their files are told of `cause`.
    pub fn tell_of_losses(&self, cause: Error) {
        for file in self.known.files() {
            if self.durability.writeback_errors.take(file.handle.ino) {
                file.errors.record(cause);
            }
        }
    }

    /// The table has stopped, and may have lost what it was told: every open file tells it again
    /// when it commits next, and reads again what it did not change.
    pub fn doubt(&self) {
        self.marks.doubt();
        for file in self.known.files() {
            let mut state = file.wait();
            if !state.is_changed() && matches!(state.bytes, Bytes::Inline) {
                state.bytes = Bytes::Unknown;
            }
            state.changed.all = state.has_content() || matches!(state.bytes, Bytes::Memory(_));
            state.marked = false;
            if state.changed.all {
                self.dirty.lock().insert(file.handle.ino);
            }
        }
    }

    /// Behind [`OpenFiles::doubt`], once the table was opened again: the marks are those that are
    /// left. Rows of files that were closed may be those of before their last commit, while their
    /// content files are as they were left: where a mark still tells of them they are measured, as
    /// at a start.
    ///
    /// # Errors
    /// Where the table fails; the last failure of a file, which keeps no other from being measured.
    pub fn measure_again(&self) -> Result<(), Error> {
        let mut marked = Vec::new();
        self.each_mark(&mut |ino, mark| {
            self.marks.found(ino, mark.as_ref().map_or(Generation::FIRST, |mark| mark.generation));
            marked.extend(mark.map(|mark| (ino, mark)));
        })?;
        let mut result = Ok(());
        for (ino, mark) in marked {
            if self.known.file(ino).is_some() {
                continue;
            }
            let handle = Handle { ino, dir: mark.dir, hash: mark.hash };
            match self.measure_one(handle, mark.generation) {
                // Gone, or for `check` to decide.
                Err(error) if matches!(error.code, Code::Stale | Code::Corrupt) => {}
                measured => result = result.and(measured),
            }
        }
        result
    }

    fn measure_one(&self, handle: Handle, generation: Generation) -> Result<(), Error> {
        let (file, _) = self.enter(handle, false)?;
        let mut state = file.wait();
        let measured = self.load(&file, &mut state).and_then(|()| {
            match state.bytes.generation() == Some(generation) && !state.is_changed() {
                true => self.correct(&file, &mut state, generation),
                false => Ok(()),
            }
        });
        let left = self.leave(&file, state, false);
        measured.and(left)
    }

    /// Reads the marks that the table has: at start, behind the measuring. Answers how many.
    ///
    /// # Errors
    /// Where the table fails.
    pub fn load_marks(&self) -> Result<usize, Error> {
        self.each_mark(&mut |ino, mark| {
            self.marks.found(ino, mark.map_or(Generation::FIRST, |mark| mark.generation));
        })?;
        Ok(self.marks.count())
    }

    /// Reads the marks that the table has; `None`: a damaged one, which goes as any other. Who it
    /// belongs to, `check` finds out.
    fn each_mark(&self, visit: &mut dyn FnMut(InodeId, Option<Writing>)) -> Result<(), Error> {
        let range = key::all(RowKind::Writing);
        let visited = self.table.scan(&range.from, &range.to, &mut |key, value| {
            if let Some(Key::Writing { ino }) = Key::parse(key) {
                let mark = Writing::decode(value).map_err(|error| row_damaged(key, error));
                visit(ino, mark.ok().map(|(_, mark)| mark));
            }
            ControlFlow::Continue(())
        });
        visited.map_err(|error| table_failed("reading marks", &error))
    }

    /// Commits a file, where somebody has it open: before a rename puts it over another. Whatever
    /// batch comes behind survives no crash without its bytes then.
    ///
    /// # Errors
    /// As [`OpenFiles::flush`].
    pub fn commit_open(&self, ino: InodeId, may_block: MayBlock) -> Result<(), OpError> {
        let Some(file) = self.known.file(ino) else { return Ok(()) };
        let mut state = file.lock(may_block)?;
        self.look(&file, &mut state);
        if state.has_content() && state.is_changed() && may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        Ok(self.commit(&file, &mut state, WritingRow::Keep)?)
    }

    /// Commits a file that has no name, where somebody has it open: before it gets its first one.
    ///
    /// # Errors
    /// `Stale`; as [`OpenFiles::flush`].
    pub fn commit_unnamed(&self, handle: Handle, may_block: MayBlock) -> Result<(), OpError> {
        match self.known.file(handle.ino).is_some() && self.shard.attr(handle)?.links == 0 {
            true => self.commit_open(handle.ino, may_block),
            false => Ok(()),
        }
    }

    /// Commits what the row does not know yet, if there is something.
    pub(crate) fn commit(
        &self,
        file: &Inode,
        state: &mut InodeState,
        mark: WritingRow,
    ) -> Result<(), Error> {
        if state.lost {
            return Err(Code::Stale.into());
        }
        self.look_as_shown(file, state);
        if !state.is_changed() && mark == WritingRow::Keep {
            return Ok(());
        }
        let mut change = BytesChange { writing_row: mark, ..BytesChange::NOTHING };
        if state.is_changed() {
            self.describe(file, state, &mut change)?;
            change.live = Some(state.live());
        }
        if let Bytes::Memory(bytes) = &state.bytes
            && state.changed.bytes | state.changed.all
        {
            change.inline = match bytes.is_empty() {
                false => Inline::Put(bytes),
                true if state.inline_stored || state.changed.all => Inline::Delete,
                true => Inline::Keep,
            };
        }
        let put = change.inline;
        if let Err(error) = self.tell(file, &change) {
            if error.code == Code::Stale {
                // No later commit can keep what the openers were answered for.
                state.changed = Changed::default();
                if !std::mem::replace(&mut state.lost, true) {
                    file.errors.record(Code::Io.into());
                }
            }
            return Err(error);
        }
        let put = match put {
            Inline::Put(bytes) => Some(bytes.len()),
            Inline::Delete => Some(0),
            Inline::Keep => None,
        };
        self.committed(file, state, put);
        Ok(())
    }

    /// What a commit says of a file whose bytes are in a content file.
    fn describe(
        &self,
        file: &Inode,
        state: &mut InodeState,
        change: &mut BytesChange<'_>,
    ) -> Result<(), Error> {
        if let Some(generation) = state.bytes.generation()
            && state.changed.all
        {
            change.generation = Some(generation);
            change.inline = Inline::Delete;
            change.writing_row = WritingRow::Put;
        }
        let Bytes::Content(content) = &state.bytes else { return Ok(()) };
        if file.has_external_writers() {
            // It was measured just now, and its times are nobody's to set.
            return Ok(());
        }
        let mut measured = content.stat().map_err(|error| self.refused(&error))?;
        if measured.mtime != state.mtime {
            // After a crash the times of a marked file are those of its content.
            content.set_times(None, Some(state.mtime)).map_err(|error| self.refused(&error))?;
            measured = content.stat().map_err(|error| self.refused(&error))?;
        }
        (state.size, state.blocks) = (measured.size, measured.blocks);
        Ok(())
    }

    fn committed(&self, file: &Inode, state: &mut InodeState, put: Option<usize>) {
        if state.changed.all
            && let Some(generation) = state.bytes.generation()
        {
            self.marks.begin(file.handle.ino, generation);
            state.marked = true;
        }
        // Where somebody has left meanwhile, the group commit lets go for them.
        if (state.changed.bytes || state.changed.all) && state.owed == (0, 0) {
            self.dirty.lock().remove(&file.handle.ino);
        }
        state.changed = Changed::default();
        let Some(put) = put else { return };
        state.inline_stored = put > 0;
        if put > 0 && self.held.load(Ordering::Relaxed) > self.options.open_bytes / 2 {
            state.bytes = Bytes::Inline;
            state.count_memory();
        }
        let before = self.unsafe_bytes.fetch_add(put, Ordering::Relaxed);
        if before < HURRY_BYTES && before + put >= HURRY_BYTES {
            self.durability.flush_soon();
        }
    }

    /// Writes a change of a file's row and of what stands beside it.
    pub(crate) fn tell(&self, file: &Inode, change: &BytesChange<'_>) -> Result<Attr, Error> {
        match self.shard.commit_bytes(file.handle, change) {
            Ok((attr, _)) => Ok(attr),
            Err(error) => {
                if error.code == Code::NoSpace {
                    self.space.noticed_full();
                }
                Err(error)
            }
        }
    }

    /// One less has the file open; what it knows is committed first. Where that fails it stays open
    /// until a later group commit has done it, and this answers why.
    pub(crate) fn leave(
        &self,
        file: &Inode,
        state: MutexGuard<'_, InodeState>,
        writes: bool,
    ) -> Result<(), Error> {
        if self.try_leave(file, state, writes)? == Left::Lingers {
            (self.linger)();
        }
        Ok(())
    }

    /// The same; where somebody may still write the file without a request, it stays open here.
    pub(crate) fn try_leave(
        &self,
        file: &Inode,
        mut state: MutexGuard<'_, InodeState>,
        writes: bool,
    ) -> Result<Left, Error> {
        let ino = file.handle.ino;
        let last = self.known.writers(ino) == u32::from(writes);
        if writes && last && file.has_external_writers() {
            self.end_changing(file, &mut state);
        }
        let lingers = writes && last && file.has_external_writers();
        let safe = !lingers
            && last
            && state.marked
            && state.written == state.synced
            && !self.marks.is_failed(ino);
        let mark = if safe { WritingRow::Delete } else { WritingRow::Keep };
        let committed = self.commit(file, &mut state, mark);
        if let Err(error) = committed
            && error.code != Code::Stale
        {
            state.owed.0 += u32::from(!writes);
            state.owed.1 += u32::from(writes);
            self.dirty.lock().insert(ino);
            return Err(error);
        }
        self.keep_read(file);
        if lingers {
            self.rest(file, &mut state);
            self.lingering.insert(ino);
            return Ok(Left::Lingers);
        }
        if last && state.marked {
            state.marked = false;
            if safe { self.marks.remove(ino) } else { self.marks.end(ino) }
        }
        if writes && last {
            self.note_size(file, &state);
        }
        self.see_no_more(file, &mut state);
        self.keep_descriptor(file, &state);
        self.known.leave(ino, writes, |file| self.keep_error(file));
        drop(state);
        if self.shard.release(ino) {
            (self.reap)();
        }
        committed.map(|()| Left::Gone)
    }

    /// Commits a file, and lets go for those who could not when they left.
    fn commit_and_pay(
        &self,
        file: &Inode,
        mut state: MutexGuard<'_, InodeState>,
    ) -> Result<(), Error> {
        let committed = self.commit(file, &mut state, WritingRow::Keep);
        if committed.is_err_and(|error| error.code != Code::Stale) {
            return committed;
        }
        let (mut readers, mut writers) = std::mem::take(&mut state.owed);
        drop(state);
        while readers + writers > 0 {
            let writes = readers == 0;
            if writes {
                writers -= 1
            } else {
                readers -= 1
            }
            if let Err(error) = self.leave(file, file.wait(), writes)
                && error.code != Code::Stale
            {
                // It is owed again; so are the others.
                let mut state = file.wait();
                state.owed.0 += readers;
                state.owed.1 += writers;
                return Err(error);
            }
        }
        committed
    }
}
