//! Programs that use files, and record their operations in the history.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_client::{At, FilePos, Files, Opened};
use pelago_wire::{
    Code, Context, Cookie, Error, FileLock, Handle, LockKind, LockMode, LockOwner, Name, NewMode,
    OpenFlags, OpenId, WriteFlags,
};

use crate::history::{FilePart, History, Naming, Program, value};
use crate::shares::SharedNode;
use crate::shares::SharedTree;
use crate::stale::{StaleAnswers, StaleMark};
use crate::turns;

pub(crate) mod dirs;
pub(crate) mod guest;
pub(crate) mod owner;
mod scatter;

/// Files with parts that programs write, parts of each, and names that come and go.
pub(crate) const FILES: usize = 3;
pub(crate) const PARTS: u64 = 3;
pub(crate) const NAMES: usize = 4;
/// The number of sites in a run with several.
pub(crate) const SITES: usize = 3;
/// The file that critical sections count in, and the one that all append to.
const COUNTER: &str = "counter";
const LOG: &str = "log";
/// The file whose bytes programs lock.
const LOCKED: &str = "locked";
/// The numbers of their directories.
const COUNTER_DIR: usize = 0;
const LOG_DIR: usize = 1;
const LOCKED_DIR: usize = 2;
/// A program computes under a lock for a little longer than a session lasts, at least.
const COMPUTES: Duration = Duration::from_millis(10_200);
const CONTEXT: Context = Context::direct(0, 0);

/// The plan of a program.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) program: Program,
    pub(crate) operations: u64,
    pub(crate) does: Does,
    pub(crate) dirs: Dirs,
    /// The site of its mount.
    pub(crate) site: usize,
}

/// The beginning of an operation that changes nothing.
#[derive(Debug, Clone, Copy)]
struct Look {
    begun: u64,
    /// `None` in a volume of one site.
    stale: Option<StaleMark>,
}

/// The kind of operations of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Does {
    /// Everything.
    All,
    /// Reads that change nothing.
    Reads,
    /// Lookups of names and sizes, which its mount caches: they go on while the mount is cut off.
    Watches,
}

/// The state that a mount shows at the end of a run, beside what is in the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) log: Vec<u64>,
    /// The counter.
    pub(crate) count: u64,
    /// The nodes of the directories that come and go.
    pub(crate) subs: Vec<Option<u64>>,
}

/// A program, with its mount and the history.
pub(crate) struct Runner {
    files: Files,
    plan: Plan,
    history: Arc<Mutex<History>>,
    last_value: u64,
}

/// The directories in which programs work.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dirs {
    /// The root alone.
    Root,
    /// One of each site, with this name in the root.
    OfSites([(Handle, &'static str); SITES]),
}

impl Dirs {
    /// Returns the directory of the file, or of the name, of this number.
    pub(crate) const fn of(&self, number: usize) -> Handle {
        match self {
            Self::Root => Handle::ROOT,
            Self::OfSites(dirs) => dirs[number % SITES].0,
        }
    }
}

fn name(dir: Handle, text: &str) -> At {
    At::new(dir, Name::new(text.as_bytes()).expect("a name"))
}

fn file_name(file: usize) -> String {
    format!("file-{file}")
}

/// Makes the files that programs use.
pub(crate) fn prepare(files: &Files, dirs: &Dirs) -> Result<(), Error> {
    let others = [(COUNTER_DIR, COUNTER), (LOG_DIR, LOG), (LOCKED_DIR, LOCKED)];
    let others = others.map(|(dir, text)| (dir, text.to_owned()));
    for (dir, text) in (0..FILES).map(|file| (file, file_name(file))).chain(others) {
        let mode = NewMode::exactly(0o644);
        let flags = OpenFlags::READ_WRITE;
        let at = name(dirs.of(dir), &text);
        let created = files.create(&CONTEXT, at, mode, flags).wait()?;
        files.flush(&CONTEXT, created.open, None).wait()?;
        files.fsync(&CONTEXT, created.open, false).wait()?;
        files.release(&CONTEXT, created.open).wait()?;
    }
    Ok(())
}

/// Starts a program.
pub(crate) fn start(files: Files, plan: Plan, history: &Arc<Mutex<History>>) -> JoinHandle<()> {
    let runner = Runner::new(files, plan, history);
    let thread = thread::Builder::new().name(format!("program-{}", runner.plan.program.0));
    thread.spawn(move || runner.run()).expect("a thread")
}

impl Runner {
    pub(crate) fn new(files: Files, plan: Plan, history: &Arc<Mutex<History>>) -> Self {
        Self { files, plan, history: Arc::clone(history), last_value: 0 }
    }

    /// Begins an operation that changes nothing.
    fn begin_look(&self) -> Look {
        let stale = self.stale_mark();
        Look { begun: self.history.lock().moment(), stale }
    }

    fn stale_mark(&self) -> Option<StaleMark> {
        let answers = self.history.lock().stale.get(self.plan.site).cloned();
        answers.as_ref().map(StaleAnswers::mark)
    }

    /// Returns whether what an operation has seen is of the time of the operation. The server of a
    /// site answers from what it has known before, while another one is silent.
    fn is_current(&self, look: Look) -> bool {
        let is_current = look.stale == self.stale_mark();
        if !is_current {
            self.history.lock().count("site answers that may be stale");
        }
        is_current
    }

    fn run(mut self) {
        for _ in 0..self.plan.operations {
            thread::sleep(Duration::from_micros(turns::random(400_000)));
            if self.uses_subs() {
                self.use_sub();
                continue;
            }
            let kind = match self.plan.does {
                Does::All if turns::random(16) == 0 => 12,
                Does::All => turns::random(12),
                Does::Reads => 6 + turns::random(6),
                Does::Watches => 9 + turns::random(3),
            };
            match kind {
                0..=2 => self.write(),
                3 => self.use_lock(),
                4 => self.append(),
                5 => self.change_name(),
                6..=8 => self.read(),
                9 => self.look(),
                10 => self.look_up(),
                11 => self.list(),
                _ => self.scatter(),
            }
        }
    }

    /// Returns whether the next operation is one on directories that come and go.
    fn uses_subs(&self) -> bool {
        match (self.plan.dirs, self.plan.does) {
            (Dirs::OfSites(_), Does::All) => turns::random(4) == 0,
            (Dirs::OfSites(_), Does::Reads | Does::Watches) | (Dirs::Root, _) => false,
        }
    }

    /// Returns a value that no other write has.
    fn value(&mut self) -> u64 {
        self.last_value += 1;
        value(self.plan.program, self.last_value)
    }

    /// Returns the directory of a number. Where there are several, the program walks there, or has
    /// it open.
    fn dir(&self, number: usize) -> Result<Handle, Error> {
        let Dirs::OfSites(dirs) = self.plan.dirs else { return Ok(Handle::ROOT) };
        let (dir, text) = dirs[number % SITES];
        if turns::random(2) == 0 {
            let found = self.files.lookup(&CONTEXT, name(Handle::ROOT, text)).wait()?;
            if found.handle != dir {
                let what = format!("{text} leads to {:?}, and is {dir:?}", found.handle);
                self.history.lock().wrong.push(what);
            }
        }
        Ok(dir)
    }

    /// Opens a file in the directory of a number.
    fn open(&self, dir: usize, text: &str, flags: OpenFlags) -> Result<Opened, Error> {
        let at = name(self.dir(dir)?, text);
        let entry = self.files.lookup(&CONTEXT, at).wait()?;
        self.files.open(&CONTEXT, entry.handle, flags).wait()
    }

    /// Closes a file as the last process with it does.
    fn close(&self, open: OpenId) -> Result<(), Error> {
        let flushed = self.files.flush(&CONTEXT, open, None).wait();
        self.files.release(&CONTEXT, open).wait().and(flushed)
    }

    fn tell(&self, what: std::fmt::Arguments<'_>) {
        turns::tell(format_args!("program {} {what}", self.plan.program.0));
    }

    fn note(&self, what: &'static str, result: Result<(), Error>) {
        self.tell(format_args!("{what} end with {result:?}"));
        let mut history = self.history.lock();
        history.count(what);
        if result.is_err() {
            history.count("failed operations");
        }
    }

    /// Writes parts of a file, some more than once, and perhaps syncs it.
    fn write(&mut self) {
        let file = random_file();
        let writes = 1 + turns::random(4);
        let flags = OpenFlags { sync: turns::random(12) == 0, ..OpenFlags::READ_WRITE };
        let opened = self.open(file, &file_name(file), flags);
        let Ok(Opened { open, attr, .. }) = opened else {
            return self.note("writes", opened.map(drop));
        };
        self.tell(format_args!("opens {file} of {} bytes to write", attr.size));
        let mut written: Vec<(FilePart, u64)> = Vec::new();
        let mut result = Ok(());
        for _ in 0..writes {
            let again = written.last().filter(|_| turns::random(3) == 0);
            let number = again.map_or_else(|| turns::random(PARTS), |(part, _)| part.number);
            let part = FilePart { file, number };
            let value = self.value();
            if !self.history.lock().has_room(part, 12) {
                continue;
            }
            self.history.lock().begin_write(part, value);
            self.tell(format_args!("writes {value} to {part:?} by {open:?}"));
            let to = FilePos { open, offset: part.offset() };
            let answer =
                self.files.write(&CONTEXT, to, &value.to_le_bytes(), WriteFlags::NONE).wait();
            written.push((part, value));
            self.tell(format_args!("wrote {value}: {answer:?}"));
            match answer {
                Ok(_) => self.history.lock().end_write(part, value),
                Err(error) => result = Err(error),
            }
            match turns::random(6) {
                0 => thread::sleep(Duration::from_micros(turns::random(150_000))),
                // About the time at which the mount sends the bytes that it holds.
                1 => thread::sleep(Duration::from_micros(95_000 + turns::random(30_000))),
                // The file stays open for longer.
                2 if turns::random(2) == 0 => {
                    thread::sleep(Duration::from_micros(turns::random(4_000_000)));
                }
                _ => {}
            }
        }
        if turns::random(4) == 0 {
            let synced = self.files.fsync(&CONTEXT, open, false).wait();
            result = result.and(synced);
        }
        result = self.close(open).and(result);
        let mut history = self.history.lock();
        for (part, value) in written {
            match result {
                Ok(()) => history.closed(value),
                Err(_) => history.doubt_write(part, value),
            }
        }
        drop(history);
        self.note("writes", result);
    }

    fn read(&self) {
        let part = FilePart { file: random_file(), number: turns::random(PARTS) };
        if self.history.lock().has_room(part, 8) {
            self.note("reads", self.read_part(part));
        }
    }

    fn read_part(&self, part: FilePart) -> Result<(), Error> {
        // Before the open: the bytes of an open file may be older than this moment.
        let look = self.begin_look();
        let Opened { open, .. } = self.open(part.file, &file_name(part.file), OpenFlags::READ)?;
        self.read_opened(part, look, open)
    }

    /// Reads a part of a file that was opened after `look` had begun, and closes it.
    fn read_opened(&self, part: FilePart, look: Look, open: OpenId) -> Result<(), Error> {
        let begun = look.begun;
        let read = self.files.read(&CONTEXT, open, part.offset(), FilePart::BYTES).wait();
        if let Ok(bytes) = &read
            && self.is_current(look)
        {
            let value = bytes.as_bytes().try_into().map_or(0, u64::from_le_bytes);
            let bytes = bytes.as_bytes().len();
            self.tell(format_args!("{begun} read {value} ({bytes} bytes) of {part:?}"));
            self.history.lock().read(part, begun, value);
        }
        let closed = self.close(open);
        read.and(closed)
    }

    /// Reads the size of a file.
    fn look(&self) {
        let file = random_file();
        let look = self.begin_look();
        let begun = look.begun;
        let find = |dir| self.files.lookup(&CONTEXT, name(dir, &file_name(file))).wait();
        let entry = self.dir(file).and_then(find);
        if let Ok(entry) = &entry
            && self.is_current(look)
        {
            let size = entry.attr.size;
            self.tell(format_args!("{begun} saw {size} bytes of {file}"));
            self.history.lock().saw_size(file, begun, size);
        }
        self.note("looks", entry.map(drop));
    }

    /// Increments the counter under a lock, or uses another lock.
    fn use_lock(&self) {
        match turns::random(2) {
            0 => self.note("critical sections", self.count_up_once()),
            _ => self.note("locks", self.hold_lock()),
        }
    }

    fn owner(&self) -> LockOwner {
        LockOwner(self.plan.program.0 as u64 + 1)
    }

    /// Sets a lock, and notes from when on the program has it.
    fn lock(&self, open: OpenId, file: &'static str, lock: FileLock) -> Result<usize, Error> {
        self.files.set_lock(&CONTEXT, open, self.owner(), lock, true).wait()?;
        let held = self.history.lock().locked(self.plan.program, file, lock);
        self.tell(format_args!("has lock {held} of {file}: {lock:?}"));
        Ok(held)
    }

    /// Does something under a lock: if it goes well, the program still had the lock.
    fn under<T>(&self, held: usize, what: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let begun = self.history.lock().moment();
        let result = what();
        let error = result.as_ref().err().map(|error| error.code);
        self.tell(format_args!("under lock {held} since {begun}: {error:?}"));
        if result.is_ok() {
            self.history.lock().held(held, begun);
        }
        result
    }

    fn unlock(&self, open: OpenId, held: usize, lock: FileLock) -> Result<(), Error> {
        self.under(held, || self.unlock_only(open, lock))
    }

    fn unlock_only(&self, open: OpenId, lock: FileLock) -> Result<(), Error> {
        let unlock = FileLock { mode: LockMode::Unlock, ..lock };
        self.files.set_lock(&CONTEXT, open, self.owner(), unlock, false).wait()
    }

    fn count_up_once(&self) -> Result<(), Error> {
        let Opened { open, .. } = self.open(COUNTER_DIR, COUNTER, OpenFlags::READ_WRITE)?;
        let owner = self.owner();
        let lock = exclusive(0, FileLock::TO_END);
        let section = || -> Result<u64, Error> {
            let held = self.lock(open, COUNTER, lock)?;
            let read = || self.files.read(&CONTEXT, open, 0, 8).wait();
            let bytes = self.under(held, read)?;
            let next = bytes.as_bytes().try_into().map_or(0, u64::from_le_bytes) + 1;
            let long = if turns::random(4) == 0 { 2_000_000 } else { 30_000 };
            thread::sleep(Duration::from_micros(turns::random(long)));
            let to = FilePos { open, offset: 0 };
            let bytes = next.to_le_bytes();
            let write = || self.files.write(&CONTEXT, to, &bytes, WriteFlags::NONE).wait();
            self.under(held, write)?;
            self.unlock(open, held, lock)?;
            Ok(next)
        };
        let next = section();
        let flushed = self.files.flush(&CONTEXT, open, Some(owner)).wait();
        let released = self.files.release(&CONTEXT, open).wait();
        let next = next?;
        flushed.and(released)?;
        self.history.lock().counted(next);
        Ok(())
    }

    /// Has a lock for a while, and gives it up by itself or by a close, perhaps through another
    /// descriptor.
    fn hold_lock(&self) -> Result<(), Error> {
        let Opened { open, .. } = self.open(LOCKED_DIR, LOCKED, OpenFlags::READ_WRITE)?;
        let owner = self.owner();
        let start = turns::random(3);
        let long = turns::random(3);
        let mode = if turns::random(3) == 0 { LockMode::Read } else { LockMode::Write };
        let lock = FileLock { mode, ..exclusive(start, start + long) };
        // Returns the lock if it is not given up.
        let section = || -> Result<Option<usize>, Error> {
            let held = self.lock(open, LOCKED, lock)?;
            let computes = turns::random(2) == 0;
            if computes {
                // It sends no request for longer than a term, so that no reply can report a loss.
                self.history.lock().computes(self.plan.program, true);
                thread::sleep(COMPUTES + Duration::from_micros(turns::random(6_000_000)));
                self.history.lock().computes(self.plan.program, false);
            }
            for _ in 0..turns::random(if computes { 2 } else { 3 }) {
                self.under(held, || self.files.read(&CONTEXT, open, start, 1).wait())?;
                let long = if turns::random(3) == 0 { 3_000_000 } else { 20_000 };
                thread::sleep(Duration::from_micros(turns::random(long)));
            }
            match turns::random(4) {
                0 => return Ok(Some(held)),
                1 => {
                    let Opened { open, .. } =
                        self.open(LOCKED_DIR, LOCKED, OpenFlags::READ_WRITE)?;
                    let unlocked = match self.plan.dirs {
                        Dirs::Root => self.unlock(open, held, lock),
                        // That the lock was lost is known of the descriptor by which it was set.
                        Dirs::OfSites(_) => self.unlock_only(open, lock),
                    };
                    let closed = self.close(open);
                    unlocked.and(closed)?;
                }
                _ => self.unlock(open, held, lock)?,
            }
            Ok(None)
        };
        let section = section();
        let flush = || self.files.flush(&CONTEXT, open, Some(owner)).wait();
        let flushed = match section {
            Ok(Some(held)) => self.under(held, flush),
            Ok(None) | Err(_) => flush(),
        };
        let released = self.files.release(&CONTEXT, open).wait();
        section.map(drop).and(flushed).and(released)
    }

    fn append(&mut self) {
        let value = self.value();
        self.history.lock().append(self.plan.program, value);
        let result = self.append_value(value);
        self.history.lock().set_appended(value, result.is_ok());
        self.note("appends", result);
    }

    fn append_value(&self, value: u64) -> Result<(), Error> {
        let flags = OpenFlags { append: true, ..OpenFlags::WRITE };
        let Opened { open, .. } = self.open(LOG_DIR, LOG, flags)?;
        let to = FilePos { open, offset: 0 };
        let flags = WriteFlags { append: true, ..WriteFlags::NONE };
        let written = self.files.write(&CONTEXT, to, &value.to_le_bytes(), flags).wait();
        let closed = self.close(open);
        written.and(closed)
    }

    /// Creates a name, or removes it.
    fn change_name(&self) {
        let number = random_name();
        if !self.history.lock().has_room_for_name(number, 12) {
            return;
        }
        let dir = match self.dir(number) {
            Ok(dir) => dir,
            Err(error) => return self.note("changes of names", Err(error)),
        };
        let at = name(dir, &format!("name-{number}"));
        let begun = self.history.lock().moment();
        if turns::random(2) == 0 {
            let mode = NewMode::exactly(0o644);
            let flags = OpenFlags::READ_WRITE;
            self.history.lock().begin_names(self.plan.program, &[number]);
            let created = self.files.create(&CONTEXT, at, mode, flags).wait();
            let (act, is_certain) = match &created {
                Ok(created) => (Some(Naming::Create(created.entry.handle.ino.raw())), true),
                Err(Error { code: Code::Exists }) => (Some(Naming::Exists), true),
                Err(_) => (None, false),
            };
            if let Some(act) = act {
                self.tell(format_args!("{begun} creates name {number}: {act:?}"));
                self.history.lock().name(number, begun, act, is_certain);
            } else {
                self.history.lock().lose_name(number);
            }
            let closed = created.and_then(|created| self.close(created.open));
            let closed = closed.or_else(|error| match error.code {
                Code::Exists => Ok(()),
                _ => Err(error),
            });
            return self.note("creates", closed);
        }
        self.history.lock().begin_names(self.plan.program, &[number]);
        let removed = self.files.unlink(&CONTEXT, at).wait();
        let (act, is_certain) = match &removed {
            Ok(_) => (Naming::Unlink, true),
            Err(Error { code: Code::NotFound }) => (Naming::Absent, true),
            Err(_) => (Naming::Unlink, false),
        };
        self.tell(format_args!("{begun} unlinks name {number}: {act:?}, {is_certain}"));
        self.history.lock().name(number, begun, act, is_certain);
        let result = match removed {
            Err(error) if error.code != Code::NotFound => Err(error),
            _ => Ok(()),
        };
        self.note("unlinks", result);
    }

    fn look_up(&self) {
        let number = random_name();
        if self.history.lock().has_room_for_name(number, 10) {
            self.note("lookups", self.look_up_name(number));
        }
    }

    fn look_up_name(&self, number: usize) -> Result<(), Error> {
        let look = self.begin_look();
        let begun = look.begun;
        let at = name(self.dir(number)?, &format!("name-{number}"));
        let found = self.files.lookup(&CONTEXT, at).wait();
        let act = match found {
            Ok(entry) => Naming::Leads(entry.handle.ino.raw()),
            Err(Error { code: Code::NotFound }) => Naming::Absent,
            Err(error) => return Err(error),
        };
        self.tell(format_args!("{begun} found name {number}: {act:?}"));
        if self.is_current(look) {
            self.history.lock().name(number, begun, act, true);
        }
        Ok(())
    }

    /// Lists all names. A listing has an order for each name.
    fn list(&self) {
        let look = self.begin_look();
        let begun = look.begun;
        let dir = match self.plan.dirs {
            Dirs::Root => Handle::ROOT,
            Dirs::OfSites(_) => self.plan.dirs.of(random_name()),
        };
        let listed = self.files.list(&CONTEXT, dir, Cookie::AFTER_DOT_DOT, None, 100, true).wait();
        let is_current = self.is_current(look);
        let mut history = self.history.lock();
        if let Ok(listing) = &listed
            && is_current
        {
            let is_there = |number: &usize| self.plan.dirs.of(*number) == dir;
            for number in (0..NAMES).filter(|_| listing.end).filter(is_there) {
                let text = format!("name-{number}");
                let found = listing.entries.iter().find(|it| it.name.as_bytes() == text.as_bytes());
                let act = found.map_or(Naming::Absent, |it| Naming::Leads(it.ino.raw()));
                self.tell(format_args!("{begun} listed name {number}: {act:?}"));
                if history.has_room_for_name(number, 10) {
                    history.name(number, begun, act, true);
                }
            }
        }
        drop(history);
        self.note("listings", listed.map(drop));
    }

    /// Reads a shared file, wherever it is.
    pub(crate) fn read_shared(&self, tree: &SharedTree, node: SharedNode) -> Result<(), Error> {
        let look = self.begin_look();
        let handle = tree.files[node.0];
        let opened = self.files.open(&CONTEXT, handle, OpenFlags::READ).wait()?;
        self.read_opened(guest::part_of(node), look, opened.open)
    }

    /// Reads everything at the end of a run, when there are no faults any more.
    pub(crate) fn read_all(&self) -> Result<Observed, Error> {
        for file in 0..FILES {
            for number in 0..PARTS {
                self.read_part(FilePart { file, number })?;
            }
        }
        for number in 0..NAMES {
            self.look_up_name(number)?;
        }
        let read = |dir, text| -> Result<Vec<u64>, Error> {
            let Opened { open, attr, .. } = self.open(dir, text, OpenFlags::READ)?;
            let size = u32::try_from(attr.size).unwrap_or(u32::MAX);
            let bytes = self.files.read(&CONTEXT, open, 0, size).wait();
            let closed = self.close(open);
            let errors = [bytes.as_ref().err(), closed.as_ref().err()];
            self.tell(format_args!("reads {text} of {size} bytes: {errors:?}"));
            let bytes = bytes?;
            closed?;
            let values = bytes.as_bytes().chunks(8);
            Ok(values.map(|it| it.try_into().map_or(0, u64::from_le_bytes)).collect())
        };
        let count = read(COUNTER_DIR, COUNTER)?.first().copied().unwrap_or(0);
        let subs = match self.plan.dirs {
            Dirs::Root => Vec::new(),
            Dirs::OfSites(_) => self.read_subs()?,
        };
        Ok(Observed { log: read(LOG_DIR, LOG)?, count, subs })
    }
}

/// Returns an exclusive lock.
const fn exclusive(start: u64, end: u64) -> FileLock {
    FileLock { kind: LockKind::Posix, mode: LockMode::Write, start, end, pid: 1 }
}

/// Returns a number from the seed below `bound`.
pub(crate) fn random_below(bound: usize) -> usize {
    usize::try_from(turns::random(bound as u64)).unwrap_or(0)
}

fn random_file() -> usize {
    random_below(FILES)
}

fn random_name() -> usize {
    random_below(NAMES)
}
