//! Files that somebody may write without a request: from the first descriptor that is handed out to
//! write until the system says that nobody writes any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use pelago_wire::{Error, Handle, InodeId, OpenFlags};

use crate::commit::{Left, STALL};
use crate::inode::{Bytes, Inode, InodeState};
use crate::open_files::OpenFiles;
use crate::passthrough::observer::Observer;
use pelago_meta::shard::WritingRow;
use pelago_wire::id_map::IdSet;

impl OpenFiles {
    /// From now on the content file says what its size and times are; also what they were, where
    /// somebody `has_written` it before.
    pub(crate) fn begin_changing(
        &self,
        file: &Inode,
        state: &mut InodeState,
        outside: &Observer,
        has_written: bool,
    ) -> Result<(), Error> {
        if file.has_external_writers() {
            return Ok(());
        }
        // The row has everything then, and the content file the same time of its bytes.
        self.commit(file, state, WritingRow::Keep)?;
        let content = outside.lend().map_err(|error| self.refused(&error))?;
        self.mark(file, state, &content)?;
        let measured = content.stat().map_err(|error| self.refused(&error))?;
        outside.begin(measured, state.live(), has_written);
        file.set_changing(true);
        Ok(())
    }

    /// Measures a file that is changing; nothing where it is not.
    pub(crate) fn look(&self, file: &Inode, state: &mut InodeState) {
        if !file.has_external_writers() {
            return;
        }
        let Some((live, moved)) = state.outside.as_ref().and_then(|outside| outside.look()) else {
            return;
        };
        (state.size, state.blocks) = (live.size, live.blocks);
        (state.mtime, state.ctime) = (live.mtime, live.ctime);
        if moved {
            file.changed();
            state.changed.row = true;
            state.written += 1;
        }
    }

    /// Measures it before its row is written: what the row will say is what anybody would be shown
    /// now. Its change time is past the one shown last, though the clock of the medium is not.
    pub(crate) fn look_as_shown(&self, file: &Inode, state: &mut InodeState) {
        if file.has_external_writers() {
            // Showing it does that; a file that is gone is told by whoever writes its row.
            let _shown = self.shard.attr(file.handle);
        }
        self.look(file, state);
    }

    /// The last writer leaves: the file stops changing, if the system says so.
    pub(crate) fn end_changing(&self, file: &Inode, state: &mut InodeState) {
        let Some(outside) = state.outside.clone() else { return };
        if let Bytes::Content(content) = &state.bytes
            && content.is_writable()
        {
            let generation = content.generation();
            state.bytes = match outside.content() {
                Some(content) => Bytes::Content(content),
                None => {
                    self.marks.break_watch(file.handle.ino);
                    Bytes::File(generation)
                }
            };
        }
        if outside.has_writers() {
            return;
        }
        // Behind the answer: whatever was written is there.
        self.look_as_shown(file, state);
        // Until it is committed. If there is nothing to commit, nothing takes it away again, and it
        // would hide what another opener sets.
        let live = state.is_changed().then(|| state.live());
        self.shard.set_live_attrs(file.handle.ino, live);
        outside.end();
        file.set_changing(false);
        // What was synced meanwhile is not what was written last.
        state.written += 1;
    }

    /// An open that went outside ends; it has its number no more.
    pub(crate) fn come_back(&self, file: &Inode, state: &InodeState, flags: OpenFlags) {
        let Some(outside) = &state.outside else { return };
        if flags.read && !flags.no_atime {
            // Whoever asks makes the shard see what was read.
            if self.shard.attr(file.handle).is_ok() {
                file.read.store(true, Ordering::Relaxed);
            }
            outside.remove_reader();
        }
    }

    /// Everybody has left a file that somebody may still write: no descriptor is kept for it,
    /// however many there are.
    pub(crate) fn rest(&self, file: &Inode, state: &mut InodeState) {
        if self.known.outside(file.handle.ino) > 0 {
            return;
        }
        if let Some(outside) = &state.outside {
            outside.close();
        }
        if let Bytes::Content(content) = &state.bytes {
            state.bytes = Bytes::File(content.generation());
        }
        // The one who still has it mapped need not sync it.
        self.marks.break_watch(file.handle.ino);
    }

    /// Nobody is outside any more: what is there to see, nobody does without a request.
    pub(crate) fn see_no_more(&self, file: &Inode, state: &mut InodeState) {
        let ino = file.handle.ino;
        if state.outside.is_some() && !file.has_external_writers() && self.known.outside(ino) == 0 {
            self.shard.set_attr_source(ino, None);
            state.outside = None;
        }
    }
}

/// Files that are closed here, but that somebody may still write.
#[derive(Debug, Default)]
pub(crate) struct PendingClose {
    files: Mutex<IdSet<InodeId>>,
}

impl PendingClose {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.files.lock().len()
    }

    pub(crate) fn insert(&self, ino: InodeId) {
        self.files.lock().insert(ino);
    }
}

impl OpenFiles {
    /// Files that were closed and that somebody may still write.
    #[must_use]
    pub fn lingering(&self) -> usize {
        self.lingering.count()
    }

    /// Lets go of closed files that nobody writes any more. Answers how many.
    ///
    /// # Errors
    /// The last failure to commit one: it is tried again.
    pub fn let_go_of_closed(&self) -> Result<usize, Error> {
        let files: Vec<_> = self.lingering.files.lock().iter().copied().collect();
        let (mut gone, mut result) = (0, Ok(()));
        for ino in files {
            let Some(file) = self.known.file(ino) else {
                self.lingering.files.lock().remove(&ino);
                continue;
            };
            // Whoever has it open for writing again tries it when they leave.
            let Some(state) = file.wait_for(STALL) else { continue };
            if self.known.writers(ino) > 1 {
                continue;
            }
            self.lingering.files.lock().remove(&ino);
            match self.try_leave(&file, state, true) {
                Ok(Left::Lingers) => {}
                Ok(Left::Gone) => gone += 1,
                Err(error) => result = Err(error),
            }
        }
        result.map(|()| gone)
    }

    /// A marked file is still written by somebody from a life before this one.
    ///
    /// # Errors
    /// As [`OpenFiles::open`].
    pub fn take_over(&self, handle: Handle) -> Result<(), Error> {
        let (file, _) = self.enter(handle, true)?;
        let mut state = file.wait();
        let taken = self.load(&file, &mut state).and_then(|()| {
            let outside = self.see_outside(&file, &mut state)?;
            self.begin_changing(&file, &mut state, &outside, true)
        });
        if let Err(error) = taken {
            self.leave(&file, state, true)?;
            return Err(error);
        }
        self.leave(&file, state, true)
    }

    /// The files that are changing though everybody has left or was sent away: what they hold is
    /// committed, their marks stay.
    pub fn still_changing(&self) -> Vec<InodeId> {
        let has_external_writers = |file: &Arc<Inode>| {
            let mut state = file.wait();
            self.end_changing(file, &mut state);
            file.has_external_writers()
        };
        let files = self.known.files();
        files.iter().filter(|file| has_external_writers(file)).map(|file| file.handle.ino).collect()
    }
}
