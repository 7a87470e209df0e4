//! Which files are open, by whose number, and how often.
//!
//! Each method takes one short lock, so that a file without bytes costs two small entries. Lock
//! order: a leaf.

use std::sync::Arc;

use parking_lot::Mutex;
use pelago_wire::{Code, Error, InodeId, OpenFlags, OpenId};

use super::file::OpenFile;
use crate::numbers::NumberMap;

/// What is open.
#[derive(Default)]
pub(super) struct Known {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    opens: NumberMap<OpenId, Opened>,
    files: NumberMap<InodeId, Shared>,
    last: u64,
}

/// One open of a file.
#[derive(Clone)]
pub(super) struct Opened {
    pub(super) file: Arc<OpenFile>,
    pub(super) flags: OpenFlags,
}

/// A file and how many have it open; those who only pass by included.
struct Shared {
    file: Arc<OpenFile>,
    openers: u32,
    writers: u32,
}

impl Known {
    /// How many opens there are.
    pub(super) fn count(&self) -> usize {
        self.state.lock().opens.len()
    }

    /// One more has the file open; `make` makes it where nobody had. A file of which this answered
    /// stays the only one of its inode until the last [`Known::leave`].
    pub(super) fn enter(
        &self,
        ino: InodeId,
        writes: bool,
        make: impl FnOnce() -> OpenFile,
    ) -> Arc<OpenFile> {
        self.state.lock().enter(ino, writes, make)
    }

    /// Gives a number to an open that has entered.
    pub(super) fn number(&self, file: Arc<OpenFile>, flags: OpenFlags) -> OpenId {
        self.state.lock().number(file, flags)
    }

    /// [`Known::enter`] and [`Known::number`] for a file that was just made.
    pub(super) fn made(&self, file: OpenFile, flags: OpenFlags) -> OpenId {
        let mut state = self.state.lock();
        let file = state.enter(file.handle.ino, flags.write, || file);
        state.number(file, flags)
    }

    /// The open with this number.
    pub(super) fn get(&self, open: OpenId) -> Result<Opened, Error> {
        self.state.lock().opens.get(&open).cloned().ok_or_else(|| Code::BadOpen.into())
    }

    /// Whether there still is such an open.
    pub(super) fn has(&self, open: OpenId) -> bool {
        self.state.lock().opens.contains_key(&open)
    }

    /// The number means nothing any more. Answers whether it did.
    pub(super) fn forget(&self, open: OpenId) -> bool {
        self.state.lock().opens.remove(&open).is_some()
    }

    /// One less has the file open. Answers whether it was the last; the file is then gone from
    /// here.
    pub(super) fn leave(&self, ino: InodeId, writes: bool) -> bool {
        let mut state = self.state.lock();
        let Some(shared) = state.files.get_mut(&ino) else { return true };
        shared.openers -= 1;
        shared.writers -= u32::from(writes);
        if shared.openers == 0 {
            state.files.remove(&ino);
            return true;
        }
        false
    }

    /// How many have the file open for writing.
    pub(super) fn writers(&self, ino: InodeId) -> u32 {
        self.state.lock().files.get(&ino).map_or(0, |shared| shared.writers)
    }

    /// The file, where somebody has it open.
    pub(super) fn file(&self, ino: InodeId) -> Option<Arc<OpenFile>> {
        self.state.lock().files.get(&ino).map(|shared| Arc::clone(&shared.file))
    }

    /// All files that are open.
    pub(super) fn files(&self) -> Vec<Arc<OpenFile>> {
        self.state.lock().files.values().map(|shared| Arc::clone(&shared.file)).collect()
    }
}

impl State {
    fn enter(
        &mut self,
        ino: InodeId,
        writes: bool,
        make: impl FnOnce() -> OpenFile,
    ) -> Arc<OpenFile> {
        let shared = self.files.entry(ino).or_insert_with(|| Shared {
            file: Arc::new(make()),
            openers: 0,
            writers: 0,
        });
        shared.openers += 1;
        shared.writers += u32::from(writes);
        Arc::clone(&shared.file)
    }

    fn number(&mut self, file: Arc<OpenFile>, flags: OpenFlags) -> OpenId {
        self.last += 1;
        let open = OpenId(self.last);
        self.opens.insert(open, Opened { file, flags });
        open
    }
}
