//! Open files: who has what open, and the bytes of small files until they are in the table.
//!
//! One [`OpenFile`] for each inode is shared by all that have it open. Its bytes are in memory up
//! to the inline limit, and in a content file from then on; it never goes back. What it knows
//! better than its row, size and times, it tells the shard at once ([`Shard::set_live`]), so that
//! every attribute shown anywhere is right, and the table at each commit.
//!
//! Nothing is read or opened before it is needed: a file that is made and closed empty touches no
//! more than the shard and two small maps.
//!
//! Callers that serve others come with [`Patience::Brief`]: where an operation might have to wait
//! for the medium it answers [`Halt::Later`] with nothing done, and is repeated by a thread that
//! may wait.
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

use crate::clock;
use crate::numbers::NumberSet;
use crate::progress::Progress;
use crate::shard::{Mark, NewNode, Shard};
use crate::space::Space;
use crate::worker::content_failed;

use buffers::Buffers;
use changing::Lingering;
pub(crate) use descriptors::Descriptors;
use file::{OpenFile, OpenState};
pub(crate) use known::Counts;
use known::{Known, Way};
use marks::Marks;
pub use policy::Passthrough;
use policy::Sizes;
pub(crate) use ranges::{Allocate, Copy};
use slots::{Slot, Slots};
pub(crate) use write::Write;

mod atime;
mod attr;
mod buffers;
mod changing;
mod commit;
mod content_file;
mod descriptors;
mod errors;
mod file;
mod idle;
mod known;
mod lost;
mod marks;
mod outside;
mod policy;
mod ranges;
mod read;
mod slots;
mod sync;
#[cfg(test)]
mod tests;
mod way;
mod write;

/// What the open files of a server are made of.
pub(crate) struct Parts {
    /// Who decides about their rows.
    pub(crate) shard: Arc<Shard>,
    /// Where the bytes of small files are.
    pub(crate) table: SharedTable,
    /// Where all others are.
    pub(crate) content: Arc<ContentStore>,
    /// Whom to ask for a group commit.
    pub(crate) progress: Arc<Progress>,
    /// Whether new data is taken.
    pub(crate) space: Arc<Space>,
    /// How many content files may be open.
    pub(crate) descriptors: Arc<Descriptors>,
    /// Nothing is changed.
    pub(crate) read_only: bool,
    /// Called when a file has lost its last name and its last holder.
    pub(crate) reap: Poke,
    /// Called when a file was closed that somebody may still write.
    pub(crate) linger: Poke,
    /// What can be chosen.
    pub(crate) options: Options,
}

/// Tells a worker that there is work.
pub(crate) type Poke = Arc<dyn Fn() + Send + Sync>;

/// What can be chosen about open files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Bytes of a file that are kept in the table, to [`limits::INLINE_BYTES`].
    pub(crate) inline_bytes: usize,
    /// Bytes of all open files in memory.
    pub(crate) open_bytes: usize,
    /// Opens at the same time.
    pub(crate) open_files: usize,
    /// Callers that may wait for the medium though they serve others too.
    pub(crate) inline_io: usize,
    /// When files are handed out as descriptors.
    pub(crate) passthrough: Passthrough,
    /// Whether they can be: the medium tells who still writes a file.
    pub(crate) can_pass: bool,
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

/// How long a caller may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// It serves others: not for the medium.
    Brief,
    /// As long as it takes.
    Long,
}

/// Why an operation did not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Halt {
    /// It cannot be done.
    Failed(Error),
    /// It must be repeated, as a whole, by somebody with [`Patience::Long`].
    Later,
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Code> for Halt {
    fn from(code: Code) -> Self {
        Self::Failed(code.into())
    }
}

/// What an open did.
#[derive(Debug)]
pub(crate) struct Opening {
    /// Its number.
    pub(crate) open: OpenId,
    /// The file's attributes then.
    pub(crate) attr: Attr,
    /// How to reach the bytes.
    pub(crate) path: DataPath,
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    /// Bytes taken.
    pub(crate) bytes: u64,
    /// The file's size then.
    pub(crate) size: u64,
    /// It may be answered only when what is done now is safe.
    pub(crate) sync: bool,
}

/// All open files of a server.
pub(crate) struct Opens {
    shard: Arc<Shard>,
    table: SharedTable,
    content: Arc<ContentStore>,
    progress: Arc<Progress>,
    space: Arc<Space>,
    descriptors: Arc<Descriptors>,
    read_only: bool,
    reap: Poke,
    linger: Poke,
    options: Options,
    known: Known,
    /// How large the files of each directory were lately. A leaf.
    sizes: Mutex<Sizes>,
    /// Closed files that somebody may still write.
    lingering: Lingering,
    /// Files with bytes that are in no row, and those that could not be committed.
    dirty: Mutex<NumberSet<InodeId>>,
    marks: Marks,
    slots: Slots,
    buffers: Arc<Buffers>,
    /// Bytes that open files hold in memory.
    held: Arc<AtomicUsize>,
    /// Bytes put into the table since the last group commit.
    unsafe_bytes: AtomicUsize,
    /// Held while content files are synced that nobody need have open, and a failure is recorded.
    /// Taken before the turn of a file.
    whole_turn: Mutex<()>,
}

impl Opens {
    /// No file is open yet.
    #[must_use]
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            shard: parts.shard,
            table: parts.table,
            content: parts.content,
            progress: parts.progress,
            space: parts.space,
            descriptors: parts.descriptors,
            read_only: parts.read_only,
            reap: parts.reap,
            linger: parts.linger,
            slots: Slots::new(parts.options.inline_io),
            options: parts.options,
            known: Known::default(),
            sizes: Mutex::default(),
            lingering: Lingering::default(),
            dirty: Mutex::default(),
            marks: Marks::default(),
            buffers: Arc::default(),
            held: Arc::default(),
            unsafe_bytes: AtomicUsize::new(0),
            whole_turn: Mutex::default(),
        }
    }

    /// How many opens there are.
    #[must_use]
    pub(crate) fn count(&self) -> usize {
        self.known.count()
    }

    /// How many opens there are, and files that are in use beside them.
    #[must_use]
    pub(crate) fn counts(&self) -> Counts {
        self.known.counts()
    }

    /// Whether the bytes of any file may be lost with the machine.
    #[must_use]
    pub(crate) fn any_unsafe(&self) -> bool {
        self.marks.count() > 0
    }

    /// Bytes that open files hold in memory.
    #[must_use]
    pub(crate) fn memory(&self) -> u64 {
        self.held.load(Ordering::Relaxed) as u64
    }

    /// Makes an ordinary file and opens it.
    ///
    /// # Errors
    /// As [`Shard::create`]; `TooManyOpen`; [`Halt::Later`].
    pub(crate) fn create(
        &self,
        context: &Context,
        (dir, name): (Handle, &Name),
        mode: NewMode,
        flags: OpenFlags,
        patience: Patience,
    ) -> Result<(Entry, OpenId, DataPath), Halt> {
        let new = NewNode::file(mode);
        let make = || self.shard.create(context, dir, name, new, true, clock::now());
        self.make(dir, flags, patience, make)
    }

    /// Makes an ordinary file without a name and opens it.
    ///
    /// # Errors
    /// As [`Shard::create_unnamed`]; `TooManyOpen`; [`Halt::Later`].
    pub(crate) fn create_unnamed(
        &self,
        context: &Context,
        dir: Handle,
        mode: NewMode,
        flags: OpenFlags,
        patience: Patience,
    ) -> Result<(Entry, OpenId, DataPath), Halt> {
        let new = NewNode::file(mode);
        let make = || self.shard.create_unnamed(context, dir, new, clock::now());
        self.make(dir, flags, patience, make)
    }

    /// Opens a file that `make` makes, and holds, for a directory.
    fn make(
        &self,
        dir: Handle,
        flags: OpenFlags,
        patience: Patience,
        make: impl FnOnce() -> Result<Entry, Error>,
    ) -> Result<(Entry, OpenId, DataPath), Halt> {
        self.expect_room()?;
        let begins = self.begins_with_content(dir.ino, flags);
        let _slot = if begins { self.expect_content(flags, patience)? } else { None };
        let entry = make()?;
        let file = OpenFile::made(&entry, dir.ino, &self.held);
        if begins {
            return Ok(self.made_with_content(entry, file, flags)?);
        }
        // Nobody else can have it open yet.
        let open = self.known.made(file, flags).ok_or(Code::Bug)?;
        Ok((entry, open, DataPath::Cached))
    }

    /// Opens an ordinary file.
    ///
    /// # Errors
    /// `Stale`, `IsDirectory`, `Invalid` for what is neither, `TooManyOpen`; [`Halt::Later`].
    pub(crate) fn open(
        &self,
        handle: Handle,
        flags: OpenFlags,
        patience: Patience,
    ) -> Result<Opening, Halt> {
        self.expect_room()?;
        // Nobody counts what is written outside.
        let keeps_in = flags.write && self.space.is_short();
        if flags.passthrough && self.passes() && !keeps_in && self.shard.has_content(handle)? {
            return self.open_outside(handle, flags, patience);
        }
        let _slot = if flags.truncate { self.expect_quick(handle.ino, patience)? } else { None };
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
        if let Some(open) = self.known.number(&file, flags, Way::by_requests(flags)) {
            let path = if file.is_changing() { DataPath::Direct } else { DataPath::Cached };
            return Ok(Opening { open, attr, path });
        }
        if keeps_in && let Some(open) = self.known.number(&file, flags, Way::Requests) {
            // Others have it by a descriptor: then the kernel may keep no pages of it.
            return Ok(Opening { open, attr, path: DataPath::Direct });
        }
        // It got its content file just now, and others have it by a descriptor.
        self.leave(&file, file.wait(), flags.write)?;
        self.open_outside(handle, flags, patience)
    }

    /// What was written through this open is committed.
    ///
    /// # Errors
    /// `BadOpen`, `NoSpace`, where the table or the medium fails; an error of the file that an open
    /// to write was not told of; [`Halt::Later`].
    pub(crate) fn flush(&self, open: OpenId, patience: Patience) -> Result<(), Halt> {
        let opened = self.known.get(open)?;
        let mut state = opened.file.lock(patience)?;
        self.look(&opened.file, &mut state);
        let committed = if state.is_changed() {
            let _slot = if state.has_content() { self.slot(patience)? } else { None };
            self.commit(&opened.file, &mut state, Mark::Keep)
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
    /// As [`Opens::flush`]; it has ended all the same, unless it is [`Halt::Later`].
    pub(crate) fn release(&self, open: OpenId, patience: Patience) -> Result<(), Halt> {
        let opened = self.known.get(open)?;
        let state = opened.file.lock(patience)?;
        let blocks = state.has_content() && state.is_changed();
        let _slot = if blocks { self.slot(patience)? } else { None };
        if !self.known.forget(open) {
            return Err(Code::BadOpen.into());
        }
        if opened.way == Way::Outside {
            self.come_back(&opened.file, &state, opened.flags);
        }
        Ok(self.leave(&opened.file, state, opened.flags.write)?)
    }

    /// Empties a file that was loaded.
    fn empty(
        &self,
        file: &OpenFile,
        state: &mut OpenState,
        flags: OpenFlags,
    ) -> Result<Attr, Error> {
        self.truncate(file, state, 0)?;
        if flags.kill_privileges {
            self.kill_privileges(file)?;
        }
        self.shard.attr(file.handle)
    }

    /// One more has a file open. Everybody who comes in goes out by [`Opens::leave`].
    fn enter(&self, handle: Handle, writes: bool) -> Result<(Arc<OpenFile>, Attr), Error> {
        let (node, attr) = self.shard.hold(handle)?;
        let refused = match node.rnode.kind {
            FileKind::Regular => {
                let make = || {
                    let unseen = self.progress.losses.take(handle.ino);
                    let unseen = unseen.then(|| Code::Io.into());
                    OpenFile::stored(node.handle(), &self.held, unseen)
                };
                return Ok((self.known.enter(handle.ino, writes, make), attr));
            }
            FileKind::Directory => Code::IsDirectory,
            _ => Code::Invalid,
        };
        if self.shard.let_go(handle.ino) {
            (self.reap)();
        }
        Err(refused.into())
    }

    fn expect_room(&self) -> Result<(), Error> {
        match self.known.count() < self.options.open_files {
            true => Ok(()),
            false => Err(Code::TooManyOpen.into()),
        }
    }

    /// For operations that wait wherever they must once they have begun: a slot, where nobody else
    /// is at the file.
    fn expect_quick(&self, ino: InodeId, patience: Patience) -> Result<Option<Slot<'_>>, Halt> {
        let busy = || self.known.file(ino).is_some_and(|file| file.is_busy());
        if patience == Patience::Brief && busy() {
            return Err(Halt::Later);
        }
        self.slot(patience)
    }

    /// The right to wait for the medium; those with patience need none.
    fn slot(&self, patience: Patience) -> Result<Option<Slot<'_>>, Halt> {
        match patience {
            Patience::Long => Ok(None),
            Patience::Brief => self.slots.take().map(Some).ok_or(Halt::Later),
        }
    }

    /// Somebody met a full medium.
    pub(crate) fn met_full(&self) {
        self.space.noticed_full();
    }

    /// What is told where a content file failed.
    fn refused(&self, error: &content::Error) -> Error {
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
