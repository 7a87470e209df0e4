//! Files whose bytes are reached without a request: through a descriptor of the content file that a
//! kernel was given, or a mapping that outlives every open.
//!
//! While somebody may write a content file that way the file is *changing*: the content file alone
//! says its size, blocks and times, and whoever wants them measures it. What is seen there is kept
//! in one place, [`Outside`], for the open file and for every attribute that leaves the shard, so
//! that times never go back. The change time is the row's until the content's moves; from then on
//! it is the later.
//!
//! A file stops changing when its last writer has left *and* the system says that nobody writes
//! its content file any more. Until then it *lingers*: it stays open for writing here, with its
//! mark, and is asked for again and again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use pelago_store::content::Measured;
use pelago_wire::{
    Attr, Backing, Code, DataPath, Entry, Error, Handle, InodeId, OpenFlags, OpenId, Time,
};

use super::commit::{Left, STALL};
use super::file::{Bytes, OpenContent, OpenFile, OpenState};
use super::known::Way;
use super::policy::Passthrough;
use super::slots::Slot;
use super::{Halt, Opening, Opens, Patience};
use crate::numbers::NumberSet;
use crate::shard::{self, Live, Mark};

/// What is seen of a content file that somebody reaches without a request.
#[derive(Debug)]
pub(super) struct Outside {
    /// Open to read only: where it were open to write, nobody could tell when the others have
    /// ended.
    content: Arc<OpenContent>,
    /// A leaf.
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    /// What the content file said last.
    measured: Measured,
    /// The time of its last read that was looked at last.
    atime: Time,
    /// Size and times that follow from it; only while somebody may write.
    live: Option<Live>,
    /// They have moved since [`Outside::look`] answered last.
    moved: bool,
    /// Opens whose reads count.
    readers: u32,
}

impl Outside {
    /// Nobody reads or writes it yet.
    pub(super) fn new(content: Arc<OpenContent>, measured: Measured) -> Arc<Self> {
        let atime = measured.atime;
        let seen = Seen { measured, atime, live: None, moved: false, readers: 0 };
        Arc::new(Self { content, seen: Mutex::new(seen) })
    }

    /// Somebody may write it from now on: it is as `measured`, and that is shown as `live`.
    fn begin(&self, measured: Measured, live: Live) {
        let mut seen = self.seen.lock();
        seen.measured = measured;
        seen.live = Some(live);
        seen.moved = false;
    }

    /// Nobody writes it any more.
    fn end(&self) {
        self.seen.lock().live = None;
    }

    /// A request has changed it: its change time moves even where the clock of the medium has not.
    pub(super) fn touch(&self) {
        let mut seen = self.seen.lock();
        seen.measure(&self.content, true);
    }

    /// One more may read it, and that counts.
    fn add_reader(&self) {
        let mut seen = self.seen.lock();
        if seen.readers == 0 {
            seen.measure(&self.content, false);
            seen.atime = seen.measured.atime;
        }
        seen.readers += 1;
    }

    /// One less; what was read was looked at before.
    fn remove_reader(&self) {
        self.seen.lock().readers -= 1;
    }

    /// Size and times now, and whether they have moved since this was asked last. `None`: nobody
    /// may write it.
    fn look(&self) -> Option<(Live, bool)> {
        let mut seen = self.seen.lock();
        seen.measure(&self.content, false);
        let moved = std::mem::take(&mut seen.moved);
        seen.live.map(|live| (live, moved))
    }
}

impl shard::Outside for Outside {
    fn merge(&self, attr: Attr) -> Attr {
        let mut seen = self.seen.lock();
        seen.measure(&self.content, false);
        let attr = match seen.live {
            Some(live) => Attr { changing: true, ..live.merge(attr) },
            None => attr,
        };
        let read = seen.measured.atime;
        let moved = std::mem::replace(&mut seen.atime, read) != read;
        let counts = moved && seen.readers > 0 && shard::read_counts(&attr, read);
        Attr { atime: if counts { read } else { attr.atime }, ..attr }
    }
}

impl Seen {
    fn measure(&mut self, content: &OpenContent, touched: bool) {
        let now = match content.measure() {
            Ok(now) => now,
            Err(error) => {
                tracing::warn!(%error, "an open file cannot be measured");
                return;
            }
        };
        let before = std::mem::replace(&mut self.measured, now);
        let Some(live) = &mut self.live else { return };
        let moved = |one: &Measured| (one.size, one.mtime, one.ctime);
        if touched || moved(&before) != moved(&now) {
            (live.size, live.mtime) = (now.size, now.mtime);
            live.ctime = live.ctime.next().max(now.ctime);
            self.moved = true;
        }
        if live.blocks != now.blocks {
            // The medium gives blocks later than bytes.
            live.blocks = now.blocks;
            self.moved = true;
        }
    }
}

impl Opens {
    /// Opens a file that has a content file, for somebody who can use a descriptor of it. Where
    /// that cannot be now, the way is by requests.
    ///
    /// # Errors
    /// As [`Opens::open`].
    pub(super) fn open_outside(
        &self,
        handle: Handle,
        flags: OpenFlags,
        patience: Patience,
    ) -> Result<Opening, Halt> {
        if flags.sync && flags.write && patience == Patience::Brief {
            return Err(Halt::Later);
        }
        let _slot = self.expect_quick(handle.ino, patience)?;
        let (file, _) = self.enter(handle, flags.write)?;
        let mut state = file.wait();
        match self.find_way(&file, &mut state, flags) {
            Ok((open, path)) => {
                drop(state);
                let attr = self.shard.attr(handle)?;
                Ok(Opening { open, attr, path })
            }
            Err(error) => {
                self.leave(&file, state, flags.write)?;
                Err(error.into())
            }
        }
    }

    fn find_way(
        &self,
        file: &Arc<OpenFile>,
        state: &mut OpenState,
        flags: OpenFlags,
    ) -> Result<(OpenId, DataPath), Error> {
        self.load(file, state)?;
        if flags.truncate {
            self.empty(file, state, flags)?;
        }
        if state.has_content()
            && let Some(open) = self.known.number(file, flags, Way::Outside)
        {
            return match self.give(file, state, flags) {
                Ok(backing) => Ok((open, DataPath::Passthrough(backing))),
                Err(error) => {
                    self.known.forget(open);
                    Err(error)
                }
            };
        }
        // Whoever goes outside holds the lock of the state: of the two ways one is free.
        let open = self.known.number(file, flags, Way::Pages).ok_or(Code::Bug)?;
        Ok((open, DataPath::Cached))
    }

    /// Whether descriptors are handed out at all.
    pub(super) fn passes(&self) -> bool {
        self.options.can_pass && self.options.passthrough != Passthrough::Never
    }

    /// Whether a file that is made in this directory begins with a content file.
    pub(super) fn begins_with_content(&self, dir: InodeId, flags: OpenFlags) -> bool {
        match self.options.passthrough {
            Passthrough::Never => false,
            Passthrough::Auto => {
                flags.passthrough && self.passes() && self.sizes.lock().are_large(dir)
            }
            Passthrough::Always => true,
        }
    }

    /// A file was written and closed.
    pub(super) fn note_size(&self, file: &OpenFile, state: &OpenState) {
        if self.passes() {
            self.sizes.lock().closed(file.handle.dir, state.size);
        }
    }

    /// The right to make a content file.
    pub(super) fn expect_content(
        &self,
        flags: OpenFlags,
        patience: Patience,
    ) -> Result<Option<Slot<'_>>, Halt> {
        match flags.sync && patience == Patience::Brief {
            true => Err(Halt::Later),
            false => self.slot(patience),
        }
    }

    /// Opens a file that was just made, with a content file; where there can be none, it begins in
    /// memory all the same.
    ///
    /// # Errors
    /// Where the table or the medium fails.
    pub(super) fn made_with_content(
        &self,
        mut entry: Entry,
        file: OpenFile,
        flags: OpenFlags,
    ) -> Result<(Entry, OpenId, DataPath), Error> {
        let handle = entry.handle;
        let file = self.known.enter(handle.ino, flags.write, || file);
        let mut state = file.wait();
        let outside = flags.passthrough && self.passes();
        let found = match self.begin_content(&file, &mut state, !outside) {
            Ok(()) if outside => self.find_way(&file, &mut state, flags),
            begun => {
                if let Err(error) = begun {
                    tracing::debug!(ino = %handle.ino, %error, "a file begins in memory");
                }
                let open = self.known.number(&file, flags, Way::by_requests(flags));
                open.map(|open| (open, DataPath::Cached)).ok_or_else(|| Code::Bug.into())
            }
        };
        match found {
            Ok((open, path)) => {
                drop(state);
                entry.attr = self.shard.attr(handle)?;
                Ok((entry, open, path))
            }
            Err(error) => {
                self.leave(&file, state, flags.write)?;
                Err(error)
            }
        }
    }

    /// The descriptor of a content file, for one more who is counted already; before somebody gets
    /// it to write, the mark stands, and the file is changing.
    pub(super) fn give(
        &self,
        file: &OpenFile,
        state: &mut OpenState,
        flags: OpenFlags,
    ) -> Result<Backing, Error> {
        let outside = self.see_outside(file, state)?;
        if flags.write {
            self.begin_changing(file, state, &outside)?;
            if flags.sync {
                // Whoever writes makes bytes safe, not the name of their file.
                let synced = outside.content.sync_folder_once();
                synced.map_err(|error| self.refused(&error))?;
            }
        }
        if flags.read && !flags.no_atime {
            outside.add_reader();
        }
        Ok(outside.content.backing())
    }

    /// Who sees what is done to the content file from now on.
    fn see_outside(&self, file: &OpenFile, state: &mut OpenState) -> Result<Arc<Outside>, Error> {
        if let Some(outside) = &state.outside {
            return Ok(Arc::clone(outside));
        }
        let content = self.open_to_read(file, state)?;
        let measured = content.measure().map_err(|error| self.refused(&error))?;
        let outside = Outside::new(content, measured);
        state.outside = Some(Arc::clone(&outside));
        let seen = Arc::clone(&outside) as Arc<dyn shard::Outside>;
        self.shard.set_outside(file.handle.ino, Some(seen));
        Ok(outside)
    }

    /// From now on the content file says what its size and times are.
    fn begin_changing(
        &self,
        file: &OpenFile,
        state: &mut OpenState,
        outside: &Outside,
    ) -> Result<(), Error> {
        if file.is_changing() {
            return Ok(());
        }
        // The row has everything then, and the content file the same time of its bytes.
        self.commit(file, state, Mark::Keep)?;
        self.mark(file, state, &outside.content)?;
        let measured = outside.content.measure().map_err(|error| self.refused(&error))?;
        outside.begin(measured, state.live());
        file.set_changing(true);
        Ok(())
    }

    /// Measures a file that is changing; nothing where it is not.
    pub(super) fn look(&self, file: &OpenFile, state: &mut OpenState) {
        if !file.is_changing() {
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

    /// The last writer leaves: the file stops changing, if the system says so.
    pub(super) fn end_changing(&self, file: &OpenFile, state: &mut OpenState) {
        let Some(outside) = state.outside.clone() else { return };
        if let Bytes::Content(content) = &state.bytes
            && content.is_writable()
        {
            state.bytes = Bytes::Content(Arc::clone(&outside.content));
        }
        match outside.content.has_writers() {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "nobody knows whether a file is still written");
                return;
            }
        }
        // Behind the answer: whatever was written is there.
        self.look(file, state);
        self.shard.set_live(file.handle.ino, Some(state.live()));
        outside.end();
        file.set_changing(false);
        // What was synced meanwhile is not what was written last.
        state.written += 1;
    }

    /// An open that went outside ends; it has its number no more.
    pub(super) fn come_back(&self, file: &OpenFile, state: &OpenState, flags: OpenFlags) {
        let Some(outside) = &state.outside else { return };
        if flags.read && !flags.no_atime {
            // Whoever asks makes the shard see what was read.
            if self.shard.attr(file.handle).is_ok() {
                file.read.store(true, Ordering::Relaxed);
            }
            outside.remove_reader();
        }
    }

    /// Nobody is outside any more: what is there to see, nobody does without a request.
    pub(super) fn see_no_more(&self, file: &OpenFile, state: &mut OpenState) {
        let ino = file.handle.ino;
        if state.outside.is_some() && !file.is_changing() && self.known.outside(ino) == 0 {
            self.shard.set_outside(ino, None);
            state.outside = None;
        }
    }
}

/// Files that are closed here, but that somebody may still write.
#[derive(Debug, Default)]
pub(super) struct Lingering {
    files: Mutex<NumberSet<InodeId>>,
}

impl Lingering {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.files.lock().len()
    }

    pub(super) fn insert(&self, ino: InodeId) {
        self.files.lock().insert(ino);
    }
}

impl Opens {
    /// Files that were closed and that somebody may still write.
    #[must_use]
    pub(crate) fn lingering(&self) -> usize {
        self.lingering.count()
    }

    /// Lets go of closed files that nobody writes any more. Answers how many.
    ///
    /// # Errors
    /// The last failure to commit one: it is tried again.
    pub(crate) fn let_go_of_closed(&self) -> Result<usize, Error> {
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
    /// As [`Opens::open`].
    pub(crate) fn take_over(&self, handle: Handle) -> Result<(), Error> {
        let (file, _) = self.enter(handle, true)?;
        let mut state = file.wait();
        let taken = self.load(&file, &mut state).and_then(|()| {
            let outside = self.see_outside(&file, &mut state)?;
            self.begin_changing(&file, &mut state, &outside)
        });
        if let Err(error) = taken {
            self.leave(&file, state, true)?;
            return Err(error);
        }
        self.leave(&file, state, true)
    }

    /// The files that are changing though everybody has left or was sent away: what they hold is
    /// committed, their marks stay.
    pub(crate) fn still_changing(&self) -> Vec<InodeId> {
        let is_changing = |file: &Arc<OpenFile>| {
            let mut state = file.wait();
            self.end_changing(file, &mut state);
            file.is_changing()
        };
        let files = self.known.files();
        files.iter().filter(|file| is_changing(file)).map(|file| file.handle.ino).collect()
    }
}
