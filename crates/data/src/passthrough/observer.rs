//! Files whose bytes are reached without a request: through a descriptor of the content file that a
//! kernel was given, or a mapping that outlives every open.
//!
//! While somebody may write a content file that way the file is *changing*: the content file alone
//! says its size, blocks and times, and whoever wants them measures it. What is seen there is kept
//! in one place, [`Observer`], for the open file and for every attribute that leaves the shard, so
//! that times never go back. The change time is the row's until the content's moves; from then on
//! it is the later.
//!
//! A file stops changing when its last writer has left *and* the system says that nobody writes
//! its content file any more. Until then it *lingers*: it stays open for writing here, with its
//! mark, and is asked for again and again. Nobody else's descriptors are spent on that: its content
//! file is closed, and opened for each question.

use std::ops::Deref;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use pelago_store::content::{self, ContentFile, ContentStat, ContentStore};
use pelago_wire::{Attr, Generation, InodeId, SetAttr, SetTime, Time};

use crate::content_file::OpenContent;
use pelago_meta::shard::{self, LiveAttrs};
use pelago_store::clock;

/// What is seen of a content file that somebody reaches without a request.
#[derive(Debug)]
pub(crate) struct Observer {
    source: Source,
    /// Held while the medium is asked, so that what is seen comes in the order in which it was so.
    /// Before what was seen.
    asking: Mutex<()>,
    /// Never held while the medium is asked: who shows attributes waits for nobody. A leaf.
    seen: Mutex<Seen>,
}

/// Where what is seen comes from.
#[derive(Debug)]
struct Source {
    all: Arc<ContentStore>,
    ino: InodeId,
    generation: Generation,
    /// Open to read only: where it were open to write, nobody could tell when the others have
    /// ended. `None`: nobody was given its descriptor, and it is opened whenever that is needed.
    /// A leaf, behind what was seen.
    open: Mutex<Option<Arc<OpenContent>>>,
}

/// A content file for the moment, open to read only.
pub(crate) enum Borrowed {
    /// That of others too.
    Shared(Arc<OpenContent>),
    /// Opened for this.
    Own(ContentFile),
}

#[derive(Debug)]
struct Seen {
    /// What the content file said last.
    measured: ContentStat,
    /// The time of its last read that was looked at last.
    atime: Time,
    /// Size and times that follow from it; only while somebody may write.
    live: Option<LiveAttrs>,
    /// They have moved since [`Observer::look`] answered last.
    moved: bool,
    /// They have moved since somebody was shown them. The row's change time may be ahead of the
    /// medium's clock by then.
    unshown: bool,
    /// OpenFiles whose reads count.
    readers: u32,
    /// It was said already that the medium does not answer.
    warned: bool,
}

/// What a request of ours has just done to a content file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Touched {
    Nothing,
    Bytes,
    /// The time of its bytes, which is now what somebody wants, though the medium may not be able
    /// to keep it.
    Time(Time),
}

impl Observer {
    /// Nobody reads or writes this content file yet, and it is not open.
    ///
    /// # Errors
    /// Where it is not there, or the medium fails.
    pub(crate) fn new(
        all: &Arc<ContentStore>,
        ino: InodeId,
        generation: Generation,
    ) -> Result<Arc<Self>, content::Error> {
        let source = Source { all: Arc::clone(all), ino, generation, open: Mutex::default() };
        let measured = source.measure()?;
        let seen = Seen {
            measured,
            atime: measured.atime,
            live: None,
            moved: false,
            unshown: false,
            readers: 0,
            warned: false,
        };
        Ok(Arc::new(Self { source, asking: Mutex::default(), seen: Mutex::new(seen) }))
    }

    /// The content file, where it is open.
    pub(crate) fn content(&self) -> Option<Arc<OpenContent>> {
        self.source.open.lock().clone()
    }

    /// It is open from now on, to read only.
    pub(crate) fn open(&self, content: &Arc<OpenContent>) {
        *self.source.open.lock() = Some(Arc::clone(content));
    }

    /// Nobody is given its descriptor any more.
    pub(crate) fn close(&self) {
        let closed = self.source.open.lock().take();
        // Behind the lock.
        drop(closed);
    }

    /// The content file for a moment, open or not.
    ///
    /// # Errors
    /// Where it cannot be opened.
    pub(crate) fn lend(&self) -> Result<Borrowed, content::Error> {
        self.source.lend()
    }

    /// Whether anybody may still write the content file; yes where nobody can tell.
    pub(crate) fn has_writers(&self) -> bool {
        let asked = self.source.lend().and_then(|content| content.has_writers());
        asked.unwrap_or_else(|error| {
            self.seen.lock().warn(&error);
            true
        })
    }

    /// Somebody may write it from now on: it is as `measured`, and that is shown as `live`. Where
    /// somebody `has_written` it before anybody here knew, that counts.
    pub(crate) fn begin(&self, measured: ContentStat, live: LiveAttrs, has_written: bool) {
        let _asking = self.asking.lock();
        let mut seen = self.seen.lock();
        let same_time = !has_written
            || measured.mtime == live.mtime
            || clock::is_late(measured.mtime, live.mtime);
        let same = same_time && measured.size == live.size;
        seen.measured = measured;
        seen.moved = !same;
        seen.live = Some(match same {
            true => live,
            false => LiveAttrs {
                size: measured.size,
                blocks: measured.blocks,
                mtime: if same_time { live.mtime } else { measured.mtime },
                ctime: live.ctime.next().max(measured.ctime),
            },
        });
    }

    /// Nobody writes it any more.
    pub(crate) fn end(&self) {
        self.seen.lock().live = None;
    }

    /// A request has changed its bytes: its times move even where the clock of the medium has not.
    pub(crate) fn touch(&self) {
        let _asking = self.asking.lock();
        drop(self.measure(Touched::Bytes));
    }

    /// What the content file said last.
    pub(crate) fn measured(&self) -> ContentStat {
        self.seen.lock().measured
    }

    /// Sets the time of its last read, which is no change of anything that is shown.
    pub(crate) fn set_atime(&self, atime: Time) -> Result<(), content::Error> {
        let _asking = self.asking.lock();
        let before = self.measure(Touched::Nothing).measured;
        self.source.lend()?.set_times(Some(atime), None)?;
        let now = self.source.measure()?;
        let mut seen = self.seen.lock();
        if (now.size, now.mtime) == (before.size, before.mtime) {
            seen.measured = now;
            seen.atime = now.atime;
        }
        Ok(())
    }

    /// Sets the times that somebody sets for the file: that of the last read always, that of the
    /// bytes where the content file has it for others too.
    pub(crate) fn set_times(
        &self,
        set: &SetAttr,
        now: Time,
        changing: bool,
    ) -> Result<(), content::Error> {
        let at = |time| match time {
            SetTime::Now => now,
            SetTime::To(time) => time,
        };
        match (set.atime.map(at), set.mtime.map(at).filter(|_| changing)) {
            (None, None) => Ok(()),
            (Some(atime), None) => self.set_atime(atime),
            (atime, Some(mtime)) => {
                let _asking = self.asking.lock();
                self.source.lend()?.set_times(atime, Some(mtime))?;
                let mut seen = self.measure(Touched::Time(mtime));
                seen.atime = seen.measured.atime;
                Ok(())
            }
        }
    }

    /// One more may read it, and that counts.
    pub(crate) fn add_reader(&self) {
        let _asking = self.asking.lock();
        let mut seen = self.seen.lock();
        if seen.readers == 0 {
            drop(seen);
            seen = self.measure(Touched::Nothing);
            seen.atime = seen.measured.atime;
        }
        seen.readers += 1;
    }

    /// One less; what was read was looked at before.
    pub(crate) fn remove_reader(&self) {
        self.seen.lock().readers -= 1;
    }

    /// Size and times now, and whether they have moved since this was asked last. `None`: nobody
    /// may write it.
    pub(crate) fn look(&self) -> Option<(LiveAttrs, bool)> {
        let _asking = self.asking.lock();
        let mut seen = self.measure(Touched::Nothing);
        let moved = std::mem::take(&mut seen.moved);
        seen.live.map(|live| (live, moved))
    }

    /// Asks the medium, by whoever is asking, and answers what is seen then.
    fn measure(&self, touched: Touched) -> MutexGuard<'_, Seen> {
        let now = self.source.measure();
        let mut seen = self.seen.lock();
        match now {
            Ok(now) => seen.is(now, touched),
            Err(error) => seen.warn(&error),
        }
        seen
    }
}

impl shard::AttrSource for Observer {
    fn refresh(&self) {
        let _asking = self.asking.lock();
        drop(self.measure(Touched::Nothing));
    }

    fn merge(&self, attr: Attr) -> Attr {
        let mut seen = self.seen.lock();
        let unshown = std::mem::take(&mut seen.unshown);
        if let Some(live) = seen.live.as_mut().filter(|live| unshown && live.ctime < attr.ctime) {
            live.ctime = attr.ctime.next();
            seen.moved = true;
        }
        let attr = match seen.live {
            Some(live) => Attr { volatile: true, ..live.merge(attr) },
            None => attr,
        };
        let read = seen.measured.atime;
        let moved = std::mem::replace(&mut seen.atime, read) != read;
        let counts = moved && seen.readers > 0 && shard::atime_is_due(&attr, read);
        Attr { atime: if counts { read } else { attr.atime }, ..attr }
    }
}

impl Source {
    fn lend(&self) -> Result<Borrowed, content::Error> {
        if let Some(open) = &*self.open.lock() {
            return Ok(Borrowed::Shared(Arc::clone(open)));
        }
        self.all.open_existing(self.ino, self.generation).map(Borrowed::Own)
    }

    fn measure(&self) -> Result<ContentStat, content::Error> {
        if let Some(open) = &*self.open.lock() {
            return open.stat();
        }
        self.all.stat_existing(self.ino, self.generation)
    }
}

impl Deref for Borrowed {
    type Target = ContentFile;

    fn deref(&self) -> &ContentFile {
        match self {
            Self::Shared(open) => open,
            Self::Own(file) => file,
        }
    }
}

impl Seen {
    /// Once: it is asked often, and for every attribute.
    fn warn(&mut self, error: &content::Error) {
        if !std::mem::replace(&mut self.warned, true) {
            tracing::warn!(%error, source = %error.source, "a file is taken as written, unseen");
        }
    }

    /// The medium says this now.
    fn is(&mut self, now: ContentStat, touched: Touched) {
        let before = std::mem::replace(&mut self.measured, now);
        let Some(live) = &mut self.live else { return };
        let moved = |one: &ContentStat| (one.size, one.mtime, one.ctime);
        if touched != Touched::Nothing || moved(&before) != moved(&now) {
            live.size = now.size;
            live.mtime = match touched {
                Touched::Time(time) => time,
                _ if before.mtime != now.mtime && !clock::is_late(now.mtime, live.mtime) => {
                    now.mtime
                }
                _ if before.mtime != now.mtime || touched == Touched::Bytes => live.mtime.next(),
                _ => live.mtime,
            };
            live.ctime = live.ctime.next().max(now.ctime);
            (self.moved, self.unshown) = (true, true);
        }
        if live.blocks != now.blocks {
            // The medium gives blocks later than bytes.
            live.blocks = now.blocks;
            self.moved = true;
        }
    }
}
