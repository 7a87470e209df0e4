//! Which files are open, by whose number, and how often.
//!
//! Each method takes one short lock, so that a file without bytes costs two small entries. Lock
//! order: a leaf.

use std::sync::Arc;

use parking_lot::Mutex;
use pelago_wire::{Code, Error, InodeId, OpenFlags, OpenId};

use crate::inode::Inode;
use pelago_wire::id_map::IdMap;

/// What is open.
#[derive(Default)]
pub(crate) struct OpenTable {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    opens: IdMap<OpenId, Opened>,
    files: IdMap<InodeId, Shared>,
    last: u64,
    /// Files without an open that has a number.
    closed: usize,
}

/// What is open, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// OpenFiles.
    pub opens: usize,
    /// Files of which no open is left, and that are in use all the same: somebody may still write
    /// them, or they are just being opened or left.
    pub closed: usize,
}

/// One open of a file.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) file: Arc<Inode>,
    pub(crate) flags: OpenFlags,
    pub(crate) way: PathKind,
    /// The errors of the file that it knows of.
    since: u64,
}

/// How an open reaches the bytes. A mount's kernel takes the last two for one file only one at a
/// time: it answers `EIO` to whoever opens the file the other way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathKind {
    /// By requests, of somebody who has no kernel in between.
    Direct,
    /// By requests, of a kernel that may keep pages.
    Cached,
    /// By a descriptor that a kernel was given.
    Passthrough,
}

impl PathKind {
    /// The way by requests, for these flags.
    pub(crate) const fn by_requests(flags: OpenFlags) -> Self {
        if flags.passthrough { Self::Cached } else { Self::Direct }
    }
}

/// A file and how many have it open; those who only pass by included.
struct Shared {
    file: Arc<Inode>,
    openers: u32,
    writers: u32,
    /// Opens that have a number.
    numbered: u32,
    /// Opens that go the way of pages.
    pages: u32,
    /// Opens that go outside. The kernel has ended an open before its release comes: neither is
    /// ever lower than what the kernel counts.
    outside: u32,
}

impl Shared {
    /// Whether one more open may go this way now.
    const fn admits(&self, way: PathKind) -> bool {
        match way {
            PathKind::Direct => true,
            PathKind::Cached => self.outside == 0,
            PathKind::Passthrough => self.pages == 0,
        }
    }

    const fn count(&mut self, way: PathKind) -> Option<&mut u32> {
        match way {
            PathKind::Direct => None,
            PathKind::Cached => Some(&mut self.pages),
            PathKind::Passthrough => Some(&mut self.outside),
        }
    }
}

impl OpenTable {
    /// How many opens there are.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().opens.len()
    }

    /// How many opens there are, and files beside them.
    pub(crate) fn counts(&self) -> Counts {
        let state = self.state.lock();
        Counts { opens: state.opens.len(), closed: state.closed }
    }

    /// One more has the file open; `make` makes it where nobody had. A file of which this answered
    /// stays the only one of its inode until the last [`OpenTable::leave`].
    pub(crate) fn enter(
        &self,
        ino: InodeId,
        writes: bool,
        make: impl FnOnce() -> Inode,
    ) -> Arc<Inode> {
        self.state.lock().enter(ino, writes, make)
    }

    /// Gives a number to an open that has entered. `None`: it cannot go this way, because others go
    /// another.
    pub(crate) fn number(
        &self,
        file: &Arc<Inode>,
        flags: OpenFlags,
        way: PathKind,
    ) -> Option<OpenId> {
        self.state.lock().number(file, flags, way)
    }

    /// [`OpenTable::enter`] and [`OpenTable::number`] for a file that was just made and goes by
    /// requests.
    pub(crate) fn made(&self, file: Inode, flags: OpenFlags) -> Option<OpenId> {
        let mut state = self.state.lock();
        let file = state.enter(file.handle.ino, flags.write, || file);
        state.number(&file, flags, PathKind::by_requests(flags))
    }

    /// The open with this number.
    pub(crate) fn get(&self, open: OpenId) -> Result<Opened, Error> {
        self.state.lock().opens.get(&open).cloned().ok_or_else(|| Code::BadOpen.into())
    }

    /// Whether there still is such an open.
    pub(crate) fn has(&self, open: OpenId) -> bool {
        self.state.lock().opens.contains_key(&open)
    }

    /// An error of writing back that this open was not told of; it is told now.
    pub(crate) fn check_errors(&self, open: OpenId) -> Option<Error> {
        let mut state = self.state.lock();
        let opened = state.opens.get_mut(&open)?;
        opened.file.errors.check(&mut opened.since)
    }

    /// The number means nothing any more. Answers whether it did.
    pub(crate) fn forget(&self, open: OpenId) -> bool {
        let mut state = self.state.lock();
        let Some(opened) = state.opens.remove(&open) else { return false };
        let Some(shared) = state.files.get_mut(&opened.file.handle.ino) else { return true };
        if let Some(count) = shared.count(opened.way) {
            *count -= 1;
        }
        shared.numbered -= 1;
        let closed = shared.numbered == 0;
        state.closed += usize::from(closed);
        true
    }

    /// One less has the file open. After the last one the file is gone from here; `keep` is called
    /// before, so that nobody opens it anew without what that keeps.
    pub(crate) fn leave(&self, ino: InodeId, writes: bool, keep: impl FnOnce(&Inode)) {
        let mut state = self.state.lock();
        let Some(shared) = state.files.get_mut(&ino) else { return };
        shared.openers -= 1;
        shared.writers -= u32::from(writes);
        if shared.openers == 0 {
            keep(&shared.file);
            let gone = state.files.remove(&ino);
            state.closed -= usize::from(gone.is_some_and(|gone| gone.numbered == 0));
        }
    }

    /// Whether one opener is left.
    pub(crate) fn has_one_opener(&self, ino: InodeId) -> bool {
        self.state.lock().files.get(&ino).is_some_and(|shared| shared.openers == 1)
    }

    /// How many have the file open for writing.
    pub(crate) fn writers(&self, ino: InodeId) -> u32 {
        self.state.lock().files.get(&ino).map_or(0, |shared| shared.writers)
    }

    /// How many have the file open outside.
    pub(crate) fn outside(&self, ino: InodeId) -> u32 {
        self.state.lock().files.get(&ino).map_or(0, |shared| shared.outside)
    }

    /// The file, where somebody has it open.
    pub(crate) fn file(&self, ino: InodeId) -> Option<Arc<Inode>> {
        self.state.lock().files.get(&ino).map(|shared| Arc::clone(&shared.file))
    }

    /// All files that are open.
    pub(crate) fn files(&self) -> Vec<Arc<Inode>> {
        self.state.lock().files.values().map(|shared| Arc::clone(&shared.file)).collect()
    }
}

impl State {
    fn enter(&mut self, ino: InodeId, writes: bool, make: impl FnOnce() -> Inode) -> Arc<Inode> {
        let shared = self.files.entry(ino).or_insert_with(|| {
            self.closed += 1;
            let (openers, writers, numbered) = (0, 0, 0);
            Shared { file: Arc::new(make()), openers, writers, numbered, pages: 0, outside: 0 }
        });
        shared.openers += 1;
        shared.writers += u32::from(writes);
        Arc::clone(&shared.file)
    }

    fn number(&mut self, file: &Arc<Inode>, flags: OpenFlags, way: PathKind) -> Option<OpenId> {
        let shared = self.files.get_mut(&file.handle.ino)?;
        if !shared.admits(way) {
            return None;
        }
        if let Some(count) = shared.count(way) {
            *count += 1;
        }
        self.closed -= usize::from(shared.numbered == 0);
        shared.numbered += 1;
        self.last += 1;
        let open = OpenId(self.last);
        let since = file.errors.sample();
        self.opens.insert(open, Opened { file: Arc::clone(file), flags, way, since });
        Some(open)
    }
}
