//! Open files: who has what open, and the bytes of small files until they are in the table.
//!
//! One [`Inode`] for each inode is shared by all that have it open. Its bytes are in memory up to
//! the inline limit, and in a content file from then on; it never goes back. What it knows better
//! than its row, size and times, it tells the shard at once ([`Shard::set_live_attrs`]), so that
//! every attribute shown anywhere is right, and the table at each commit.
//!
//! Nothing is read or opened before it is needed: a file that is made and closed empty touches no
//! more than the shard and two small maps.
//!
//! Callers that serve others come with [`MayBlock::No`]: where an operation might have to wait for
//! the medium it answers [`OpError::WouldBlock`] with nothing done, and is repeated by a thread
//! that may wait.
//!
//! Lock order: an open file, then the marks, then a shard's state, then a leaf.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use pelago_store::content::{self, ContentStore};
use pelago_store::table::SharedTable;
use pelago_wire::{
    Attr, Code, Context, DataPath, Entry, Error, FileKind, Handle, InodeId, Name, NewMode,
    OpenFlags, OpenId, limits,
};

use crate::space::Space;
use pelago_meta::durability::Durability;
use pelago_meta::shard::{NewNode, Shard, WritingRow};
use pelago_store::clock;
use pelago_store::report::content_failed;
use pelago_wire::id_map::IdSet;

use crate::blocking::{MayBlock, OpError};
use crate::buffers::Buffers;
use crate::fd_budget::FdBudget;
use crate::inode::{Inode, InodeState};
use crate::io_permits::{IoPermit, IoPermits};
use crate::notify::Notifier;
use crate::open_table::Counts;
use crate::open_table::{OpenTable, PathKind};
use crate::passthrough::placement::Passthrough;
use crate::passthrough::placement::SizeHistory;
use crate::passthrough::shared_write::PendingClose;
use crate::writing::WritingSet;

/// What the open files of a server are made of.
pub struct Parts {
    /// Who decides about their rows.
    pub shard: Arc<Shard>,
    /// Where the bytes of small files are.
    pub table: SharedTable,
    /// Where all others are.
    pub content: Arc<ContentStore>,
    /// Whom to ask for a group commit.
    pub durability: Arc<Durability>,
    /// Whether new data is taken.
    pub space: Arc<Space>,
    /// How many content files may be open.
    pub descriptors: Arc<FdBudget>,
    /// Nothing is changed.
    pub read_only: bool,
    /// Called when a file has lost its last name and its last holder.
    pub reap: Notifier,
    /// Called when a file was closed that somebody may still write.
    pub linger: Notifier,
    /// What can be chosen.
    pub options: Options,
}

/// What can be chosen about open files.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Bytes of a file that are kept in the table, to [`limits::INLINE_BYTES`].
    pub inline_bytes: usize,
    /// Bytes of all open files in memory.
    pub open_bytes: usize,
    /// OpenFiles at the same time.
    pub open_files: usize,
    /// Callers that may wait for the medium though they serve others too.
    pub inline_io: usize,
    /// When files are handed out as descriptors.
    pub passthrough: Passthrough,
    /// Whether they can be: the medium tells who still writes a file.
    pub can_pass: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            inline_bytes: limits::INLINE_DEFAULT_BYTES,
            open_bytes: limits::OPEN_BYTES,
            open_files: limits::OPEN_FILES,
            inline_io: 1,
            passthrough: Passthrough::Auto,
            can_pass: true,
        }
    }
}

/// What an open did.
#[derive(Debug)]
pub struct Opening {
    /// Its number.
    pub open: OpenId,
    /// The file's attributes then.
    pub attr: Attr,
    /// How to reach the bytes.
    pub path: DataPath,
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Bytes taken.
    pub bytes: u64,
    /// The file's size then.
    pub size: u64,
    /// It may be answered only when what is done now is safe.
    pub sync: bool,
}

/// All open files of a server.
pub struct OpenFiles {
    pub(crate) shard: Arc<Shard>,
    pub(crate) table: SharedTable,
    pub(crate) content: Arc<ContentStore>,
    pub(crate) durability: Arc<Durability>,
    pub(crate) space: Arc<Space>,
    pub(crate) descriptors: Arc<FdBudget>,
    pub(crate) read_only: bool,
    pub(crate) reap: Notifier,
    pub(crate) linger: Notifier,
    pub(crate) options: Options,
    pub(crate) known: OpenTable,
    /// How large the files of each directory were lately. A leaf.
    pub(crate) sizes: Mutex<SizeHistory>,
    /// Closed files that somebody may still write.
    pub(crate) lingering: PendingClose,
    /// Files with bytes that are in no row, and those that could not be committed.
    pub(crate) dirty: Mutex<IdSet<InodeId>>,
    pub(crate) marks: WritingSet,
    pub(crate) slots: IoPermits,
    pub(crate) buffers: Arc<Buffers>,
    /// Bytes that open files hold in memory.
    pub(crate) held: Arc<AtomicUsize>,
    /// Bytes put into the table since the last group commit.
    pub(crate) unsafe_bytes: AtomicUsize,
    /// Held while content files are synced that nobody need have open, and a failure is recorded.
    /// Taken before the turn of a file.
    pub(crate) whole_turn: Mutex<()>,
}

impl OpenFiles {
    /// No file is open yet.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        Self {
            shard: parts.shard,
            table: parts.table,
            content: parts.content,
            durability: parts.durability,
            space: parts.space,
            descriptors: parts.descriptors,
            read_only: parts.read_only,
            reap: parts.reap,
            linger: parts.linger,
            slots: IoPermits::new(parts.options.inline_io),
            options: parts.options,
            known: OpenTable::default(),
            sizes: Mutex::default(),
            lingering: PendingClose::default(),
            dirty: Mutex::default(),
            marks: WritingSet::default(),
            buffers: Arc::default(),
            held: Arc::default(),
            unsafe_bytes: AtomicUsize::new(0),
            whole_turn: Mutex::default(),
        }
    }

    /// How many opens there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.known.count()
    }

    /// How many opens there are, and files that are in use beside them.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.known.counts()
    }

    /// Whether the bytes of any file may be lost with the machine.
    #[must_use]
    pub fn any_unsafe(&self) -> bool {
        self.marks.count() > 0
    }

    /// Bytes that open files hold in memory.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.held.load(Ordering::Relaxed) as u64
    }

    /// Makes an ordinary file and opens it.
    ///
    /// # Errors
    /// As [`Shard::create`]; `TooManyOpen`; [`OpError::WouldBlock`].
    pub fn create(
        &self,
        context: &Context,
        (dir, name): (Handle, &Name),
        mode: NewMode,
        flags: OpenFlags,
        may_block: MayBlock,
    ) -> Result<(Entry, OpenId, DataPath), OpError> {
        let new = NewNode::file(mode);
        let make = || self.shard.create(context, dir, name, new, true, clock::now());
        self.make(dir, flags, may_block, make)
    }

    /// Makes an ordinary file without a name and opens it.
    ///
    /// # Errors
    /// As [`Shard::create_unnamed`]; `TooManyOpen`; [`OpError::WouldBlock`].
    pub fn create_unnamed(
        &self,
        context: &Context,
        dir: Handle,
        mode: NewMode,
        flags: OpenFlags,
        may_block: MayBlock,
    ) -> Result<(Entry, OpenId, DataPath), OpError> {
        let new = NewNode::file(mode);
        let make = || self.shard.create_unnamed(context, dir, new, clock::now());
        self.make(dir, flags, may_block, make)
    }

    /// OpenFiles a file that `make` makes, and holds, for a directory.
    pub(crate) fn make(
        &self,
        dir: Handle,
        flags: OpenFlags,
        may_block: MayBlock,
        make: impl FnOnce() -> Result<Entry, Error>,
    ) -> Result<(Entry, OpenId, DataPath), OpError> {
        self.expect_room()?;
        let begins = self.begins_with_content(dir.ino, flags);
        let _slot = if begins { self.expect_content(flags, may_block)? } else { None };
        let entry = make()?;
        let file = Inode::made(&entry, dir.ino, &self.held);
        if begins {
            return Ok(self.made_with_content(entry, file, flags)?);
        }
        // Nobody else can have it open yet.
        let open = self.known.made(file, flags).ok_or(Code::Bug)?;
        Ok((entry, open, DataPath::Cached))
    }

    /// OpenFiles an ordinary file.
    ///
    /// # Errors
    /// `Stale`, `IsDirectory`, `Invalid` for what is neither, `TooManyOpen`;
    /// [`OpError::WouldBlock`].
    pub fn open(
        &self,
        handle: Handle,
        flags: OpenFlags,
        may_block: MayBlock,
    ) -> Result<Opening, OpError> {
        self.expect_room()?;
        // Nobody counts what is written outside.
        let keeps_in = flags.write && self.space.is_short();
        if flags.passthrough && self.passes() && !keeps_in && self.shard.has_content(handle)? {
            return self.open_outside(handle, flags, may_block);
        }
        let _slot = if flags.truncate { self.expect_quick(handle.ino, may_block)? } else { None };
        let (file, mut attr) = self.enter(handle, flags.write)?;
        if flags.truncate {
            let mut state = file.wait();
            let emptied = self.load(&file, &mut state);
            match emptied.and_then(|()| self.empty(&file, &mut state, flags)) {
                Ok(emptied) => attr = emptied,
                Err(error) => {
                    self.leave(&file, state, flags.write)?;
                    return Err(error.into());
                }
            }
        }
        if let Some(open) = self.known.number(&file, flags, PathKind::by_requests(flags)) {
            let path =
                if file.has_external_writers() { DataPath::Direct } else { DataPath::Cached };
            return Ok(Opening { open, attr, path });
        }
        if keeps_in && let Some(open) = self.known.number(&file, flags, PathKind::Direct) {
            // Others have it by a descriptor: then the kernel may keep no pages of it.
            return Ok(Opening { open, attr, path: DataPath::Direct });
        }
        // It got its content file just now, and others have it by a descriptor.
        self.leave(&file, file.wait(), flags.write)?;
        self.open_outside(handle, flags, may_block)
    }

    /// What was written through this open is committed.
    ///
    /// # Errors
    /// `BadOpen`, `NoSpace`, where the table or the medium fails; an error of the file that an open
    /// to write was not told of; [`OpError::WouldBlock`].
    pub fn flush(&self, open: OpenId, may_block: MayBlock) -> Result<(), OpError> {
        let opened = self.known.get(open)?;
        let mut state = opened.file.lock(may_block)?;
        self.look(&opened.file, &mut state);
        let committed = if state.is_changed() {
            let _slot = if state.has_content() { self.slot(may_block)? } else { None };
            self.commit(&opened.file, &mut state, WritingRow::Keep)
        } else {
            Ok(())
        };
        drop(state);
        // A reader need not know at its close of what others wrote.
        let error = if opened.flags.write { self.check_errors(open, &opened.file) } else { None };
        Ok(error.map_or(committed, Err)?)
    }

    /// An open ends.
    ///
    /// # Errors
    /// As [`OpenFiles::flush`]; it has ended all the same, unless it is [`OpError::WouldBlock`].
    pub fn release(&self, open: OpenId, may_block: MayBlock) -> Result<(), OpError> {
        let opened = self.known.get(open)?;
        let state = opened.file.lock(may_block)?;
        let blocks = state.has_content() && state.is_changed();
        let _slot = if blocks { self.slot(may_block)? } else { None };
        if !self.known.forget(open) {
            return Err(Code::BadOpen.into());
        }
        if opened.way == PathKind::Passthrough {
            self.come_back(&opened.file, &state, opened.flags);
        }
        Ok(self.leave(&opened.file, state, opened.flags.write)?)
    }

    /// Empties a file that was loaded.
    pub(crate) fn empty(
        &self,
        file: &Inode,
        state: &mut InodeState,
        flags: OpenFlags,
    ) -> Result<Attr, Error> {
        self.truncate(file, state, 0)?;
        if flags.kill_privileges {
            self.kill_privileges(file)?;
        }
        self.shard.attr(file.handle)
    }

    /// One more has a file open. Everybody who comes in goes out by [`OpenFiles::leave`].
    pub(crate) fn enter(&self, handle: Handle, writes: bool) -> Result<(Arc<Inode>, Attr), Error> {
        let (node, attr) = self.shard.acquire(handle)?;
        let refused = match node.rnode.kind {
            FileKind::Regular => {
                let make = || {
                    let unseen = self.durability.writeback_errors.take(handle.ino);
                    let unseen = unseen.then(|| Code::Io.into());
                    Inode::stored(node.handle(), &self.held, unseen)
                };
                return Ok((self.known.enter(handle.ino, writes, make), attr));
            }
            FileKind::Directory => Code::IsDirectory,
            _ => Code::Invalid,
        };
        if self.shard.release(handle.ino) {
            (self.reap)();
        }
        Err(refused.into())
    }

    pub(crate) fn expect_room(&self) -> Result<(), Error> {
        match self.known.count() < self.options.open_files {
            true => Ok(()),
            false => Err(Code::TooManyOpen.into()),
        }
    }

    /// For operations that wait wherever they must once they have begun: a slot, where nobody else
    /// is at the file.
    pub(crate) fn expect_quick(
        &self,
        ino: InodeId,
        may_block: MayBlock,
    ) -> Result<Option<IoPermit<'_>>, OpError> {
        let busy = || self.known.file(ino).is_some_and(|file| file.is_busy());
        if may_block == MayBlock::No && busy() {
            return Err(OpError::WouldBlock);
        }
        self.slot(may_block)
    }

    /// The right to wait for the medium; those with may_block need none.
    pub(crate) fn slot(&self, may_block: MayBlock) -> Result<Option<IoPermit<'_>>, OpError> {
        match may_block {
            MayBlock::Yes => Ok(None),
            MayBlock::No => self.slots.take().map(Some).ok_or(OpError::WouldBlock),
        }
    }

    /// Somebody met a full medium.
    pub fn met_full(&self) {
        self.space.noticed_full();
    }

    /// What is told where a content file failed.
    pub(crate) fn refused(&self, error: &content::Error) -> Error {
        if error.is_too_large() {
            return Code::FileTooLarge.into();
        }
        if error.is_too_many_open() {
            return Code::TooManyOpen.into();
        }
        if error.is_no_space() {
            // Who watches the space says so once.
            self.space.noticed_full();
            return Code::NoSpace.into();
        }
        content_failed(error)
    }
}
