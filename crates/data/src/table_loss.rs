//! Recovery of open files after the table lost changes, and their load of `writing` rows at a
//! start.

use std::ops::ControlFlow;

use pelago_store::key::{self, Key, RowKind};
use pelago_store::report::{row_damaged, table_failed};
use pelago_store::rows::{Row, Writing};
use pelago_wire::{Code, Error, Generation, Handle, InodeId};

use crate::inode::{Bytes, Uncommitted};
use crate::open_files::OpenFiles;

impl OpenFiles {
    /// Records `cause` as an error of every open file whose changes the table has lost.
    pub fn record_losses(&self, cause: Error) {
        for inode in self.opens.inodes() {
            if self.durability.writeback_errors.take(inode.handle.ino) {
                inode.errors.record(cause);
            }
        }
    }

    /// Records that the table has stopped and may have lost batches: the next commit of each open
    /// file writes all values again, and unchanged inline bytes are read again.
    pub fn invalidate(&self) {
        self.writing.invalidate();
        for inode in self.opens.inodes() {
            let mut state = inode.lock();
            let is_read_again = matches!(state.bytes, Bytes::Inline | Bytes::Elsewhere(_));
            if !state.is_uncommitted() && is_read_again {
                state.bytes = Bytes::Unloaded;
            }
            state.writeback.has_row = false;
            if state.has_content() || matches!(state.bytes, Bytes::Memory(_)) {
                state.uncommitted = Uncommitted::All;
                self.dirty.insert(inode.handle.ino);
            }
        }
    }

    /// Reads the `writing` rows again after [`OpenFiles::invalidate`], once the table was opened
    /// again. The row of a closed file may be older than its last commit, while its content file is
    /// not: if the `writing` row still exists the file is measured, as at a start.
    ///
    /// # Errors
    /// If the table fails; the last failure of a file. The other files are measured nevertheless.
    pub fn remeasure(&self) -> Result<(), Error> {
        let mut rows = Vec::new();
        self.each_writing_row(&mut |ino, row| {
            self.writing.restore(ino, generation_of(row.as_ref()));
            rows.extend(row.map(|row| (ino, row)));
        })?;
        let mut result = Ok(());
        for (ino, row) in rows {
            if self.opens.inode(ino).is_some() {
                continue;
            }
            let handle = Handle { ino, dir: row.dir, hash: row.hash };
            match self.remeasure_closed(handle, row.generation) {
                // The file was removed, or `pelago check` must decide.
                Err(error) if matches!(error.code, Code::Stale | Code::Corrupt) => {}
                measured => result = result.and(measured),
            }
        }
        result
    }

    fn remeasure_closed(&self, handle: Handle, generation: Generation) -> Result<(), Error> {
        let (inode, _) = self.enter(handle, false)?;
        let mut guard = self.lock(&inode);
        let measured = guard.load().and_then(|()| {
            let is_current = guard.state.bytes.generation() == Some(generation);
            match is_current && !guard.state.is_uncommitted() {
                true => guard.take_content_size(generation),
                false => Ok(()),
            }
        });
        let released = guard.release(false);
        measured.and(released)
    }

    /// Reads the `writing` rows at a start, after the files were measured. Returns their number.
    ///
    /// # Errors
    /// If the table fails.
    pub fn load_writing_rows(&self) -> Result<usize, Error> {
        self.each_writing_row(&mut |ino, row| {
            self.writing.restore(ino, generation_of(row.as_ref()));
        })?;
        if self.disk.content.is_shared() {
            self.writing.set_all_copy_on_write();
        }
        Ok(self.writing.count())
    }

    /// Records for each file with a `writing` row that it may have lost answered bytes that were
    /// not synced, because they were in memory of the machine of the last owner of a shared store.
    /// The next `fsync` of the file reports it once. Returns the number of files.
    pub fn note_lost_bytes(&self) -> usize {
        let files = self.writing.inodes();
        for ino in &files {
            self.durability.writeback_errors.record_inode(*ino);
        }
        files.len()
    }

    /// Returns whether an open file has an error that no descriptor has reported.
    pub fn has_untold_errors(&self) -> bool {
        self.opens.inodes().iter().any(|inode| inode.errors.unseen().is_some())
    }

    /// Calls `visit` with the `writing` rows in the table; with `None` for a damaged row, which is
    /// deleted like any other, and which `pelago check` repairs.
    fn each_writing_row(
        &self,
        visit: &mut dyn FnMut(InodeId, Option<Writing>),
    ) -> Result<(), Error> {
        let range = key::all(RowKind::Writing);
        let visited = self.table.scan(&range.from, &range.to, &mut |key, value| {
            if let Some(Key::Writing { ino }) = Key::parse(key) {
                let row = Writing::decode(value).map_err(|error| row_damaged(key, error));
                visit(ino, row.ok().map(|(_, row)| row));
            }
            ControlFlow::Continue(())
        });
        visited.map_err(|error| table_failed("reading `writing` rows", &error))
    }
}

fn generation_of(row: Option<&Writing>) -> Generation {
    row.map_or(Generation::FIRST, |row| row.generation)
}
