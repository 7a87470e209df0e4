//! One open file: all that have it open share its bytes, size and times.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use pelago_wire::{Entry, Error, Generation, Handle, InodeId, Time};

use crate::blocking::{MayBlock, OpError};
use crate::content_file::OpenContent;
use crate::error_sequence::ErrorSequence;
use crate::passthrough::observer::Observer;
use pelago_meta::shard::LiveAttrs;

/// A file that somebody has open.
pub(crate) struct Inode {
    /// Its handle when it was opened first.
    pub(crate) handle: Handle,
    /// The directory that it was made in, or whose name led to it, where that is known.
    pub(crate) folder: Option<InodeId>,
    /// Seconds of the clock until which no read changes the time of the last one.
    pub(crate) unread: AtomicI64,
    /// A read has changed that time, and the row does not say so yet.
    pub(crate) read: AtomicBool,
    /// Somebody may write the content file without a request: size and times are those that it
    /// has, whenever it is asked. Set under the lock of the state.
    changing: AtomicBool,
    /// What its openers must be told.
    pub(crate) errors: ErrorSequence,
    /// Held while the content file is synced and a failure is recorded: the system tells a failure
    /// to one call on a descriptor, and no other may be answered before it is known. Taken without
    /// the state.
    pub(crate) sync_turn: Mutex<()>,
    state: Mutex<InodeState>,
}

/// Bytes, size and times of an open file.
pub(crate) struct InodeState {
    pub(crate) bytes: Bytes,
    /// Bytes; of those in memory: as many as there are.
    pub(crate) size: u64,
    /// Units of 512 bytes, where the bytes are in a content file.
    pub(crate) blocks: u64,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    /// The newest content file that it ever had.
    pub(crate) generation: Option<Generation>,
    /// The table has an inline row of it.
    pub(crate) inline_stored: bool,
    pub(crate) changed: Changed,
    /// The mark stands, and ends with the last writer.
    pub(crate) marked: bool,
    /// Counts up with each change of the content file.
    pub(crate) written: u64,
    /// Changes of the content file that are safe.
    pub(crate) synced: u64,
    /// The table has lost its row: there is nothing to keep it in.
    pub(crate) lost: bool,
    /// Those who left while it could not be committed: readers, writers.
    pub(crate) owed: (u32, u32),
    /// What it takes of the memory of all open files.
    pub(crate) held: Held,
    /// Who sees what is done to its content file without a request, while that may be.
    pub(crate) outside: Option<Arc<Observer>>,
}

/// Where the bytes are.
pub(crate) enum Bytes {
    /// The row says so; it was not read yet.
    Unknown,
    /// In the table.
    Inline,
    /// All of them here.
    Memory(Vec<u8>),
    /// In the content file of this generation, which is not open.
    File(Generation),
    /// In this content file.
    Content(Arc<OpenContent>),
}

/// What the row does not know yet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Changed {
    /// Size or times.
    pub(crate) row: bool,
    /// Bytes in memory.
    pub(crate) bytes: bool,
    /// The table lost batches: nothing of what it was told may be there.
    pub(crate) all: bool,
}

/// Memory of one open file, counted in that of all.
pub(crate) struct Held {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Inode {
    /// A file that was there: its row is read when it is needed. `unseen` is an error from before
    /// that no descriptor was told of.
    pub(crate) fn stored(handle: Handle, held: &Arc<AtomicUsize>, unseen: Option<Error>) -> Self {
        let folder = handle.is_under_a_name().then_some(handle.dir);
        let errors = ErrorSequence::after(unseen);
        Self { errors, ..Self::new(handle, folder, InodeState::new(Bytes::Unknown, held)) }
    }

    /// A file that was just made in this directory.
    pub(crate) fn made(entry: &Entry, dir: InodeId, held: &Arc<AtomicUsize>) -> Self {
        let (mtime, ctime) = (entry.attr.mtime, entry.attr.ctime);
        let state = InodeState::new(Bytes::Memory(Vec::new()), held);
        Self::new(entry.handle, Some(dir), InodeState { mtime, ctime, ..state })
    }

    fn new(handle: Handle, folder: Option<InodeId>, state: InodeState) -> Self {
        let (unread, read) = (AtomicI64::new(i64::MIN), AtomicBool::new(false));
        let changing = AtomicBool::new(false);
        let (errors, sync_turn) = (ErrorSequence::default(), Mutex::default());
        Self { handle, folder, unread, read, changing, errors, sync_turn, state: Mutex::new(state) }
    }

    /// Whether somebody may write the content file without a request.
    pub(crate) fn has_external_writers(&self) -> bool {
        self.changing.load(Ordering::Acquire)
    }

    pub(crate) fn set_changing(&self, changing: bool) {
        self.changing.store(changing, Ordering::Release);
    }

    /// Its state; [`OpError::WouldBlock`] where the caller cannot wait and somebody has it.
    pub(crate) fn lock(&self, may_block: MayBlock) -> Result<MutexGuard<'_, InodeState>, OpError> {
        match may_block {
            MayBlock::Yes => Ok(self.state.lock()),
            MayBlock::No => self.state.try_lock().ok_or(OpError::WouldBlock),
        }
    }

    /// Its state, whoever has it.
    pub(crate) fn wait(&self) -> MutexGuard<'_, InodeState> {
        self.state.lock()
    }

    /// Its state; `None` where somebody has it for longer than this.
    pub(crate) fn wait_for(&self, may_block: Duration) -> Option<MutexGuard<'_, InodeState>> {
        self.state.try_lock_for(may_block)
    }

    /// Whether somebody has its state.
    pub(crate) fn is_busy(&self) -> bool {
        self.state.is_locked()
    }
}

impl Bytes {
    /// Of the content file that has them.
    pub(crate) fn generation(&self) -> Option<Generation> {
        match self {
            Self::File(generation) => Some(*generation),
            Self::Content(content) => Some(content.generation()),
            Self::Unknown | Self::Inline | Self::Memory(_) => None,
        }
    }
}

impl InodeState {
    fn new(bytes: Bytes, held: &Arc<AtomicUsize>) -> Self {
        Self {
            bytes,
            size: 0,
            blocks: 0,
            mtime: Time::default(),
            ctime: Time::default(),
            generation: None,
            inline_stored: false,
            changed: Changed::default(),
            marked: false,
            written: 0,
            synced: 0,
            lost: false,
            owed: (0, 0),
            held: Held { all: Arc::clone(held), bytes: 0 },
            outside: None,
        }
    }

    /// Size and times as they are now.
    pub(crate) fn live(&self) -> LiveAttrs {
        let blocks = match self.bytes {
            Bytes::File(_) | Bytes::Content(_) => self.blocks,
            _ => self.size.div_ceil(BLOCK_BYTES) * (BLOCK_BYTES / 512),
        };
        LiveAttrs { size: self.size, blocks, mtime: self.mtime, ctime: self.ctime }
    }

    /// The bytes have changed now. The change time never goes back, and the bytes' time is the
    /// same.
    pub(crate) fn touch(&mut self, now: Time) {
        self.ctime = now.max(self.ctime.next());
        self.mtime = self.ctime;
        self.changed.row = true;
    }

    /// Whether there is something to commit.
    pub(crate) fn is_changed(&self) -> bool {
        self.changed.row || self.changed.bytes || self.changed.all
    }

    /// Whether the bytes are in a content file.
    pub(crate) fn has_content(&self) -> bool {
        matches!(self.bytes, Bytes::File(_) | Bytes::Content(_))
    }

    /// Counts again what it takes of the memory of all open files.
    pub(crate) fn count_memory(&mut self) {
        let bytes = match &self.bytes {
            Bytes::Memory(bytes) => bytes.len(),
            _ => 0,
        };
        self.held.set(bytes);
    }
}

/// Bytes of a block that a small file takes.
const BLOCK_BYTES: u64 = 4096;

impl Held {
    /// Bytes that this one takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn set(&mut self, bytes: usize) {
        if bytes >= self.bytes {
            self.all.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            self.all.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}
