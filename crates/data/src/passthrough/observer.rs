//! Observing a content file that programs reach without a request: through a descriptor that a
//! kernel was given, or a mapping that outlives every open.
//!
//! While a program may write the content file that way, the file is *written externally*: its size,
//! blocks and times are those of the content file, which is measured at every question for them.
//! What was observed is kept in one place, [`Observer`], for the open inode and for every attribute
//! that leaves the shard, so that times never go back. The change time is the row's until the
//! content's moves; from then on it is the later of the two.
//!
//! External writes end when the last writer has left *and* the kernel says that no process can
//! write the content file any more. Until then the close is *pending*: the file keeps a writer here
//! and its `writing` row, and the kernel is asked again and again. No descriptor is spent on that:
//! the content file is closed, and opened for each question.

use std::ops::Deref;
use std::sync::Arc;

use pelago_meta::shard::{self, LiveAttrs};
use pelago_store::clock;
use pelago_store::content::{self, ContentFile, ContentStat, ContentStore};
use pelago_store::sync::{Mutex, MutexGuard};
use pelago_wire::{Attr, Generation, InodeId, SetAttr, SetTime, Time};

use crate::content_file::OpenContent;

/// What is observed of a content file that programs reach without a request.
#[derive(Debug)]
pub(crate) struct Observer {
    source: Source,
    /// Held while the disk is asked, so that its answers are noted in the order in which they were
    /// true. Taken before `observed`.
    measuring: Mutex<()>,
    /// Never held while the disk is asked, so that showing attributes does not wait. A leaf in the
    /// lock order.
    observed: Mutex<Observed>,
}

/// The content file that is observed.
#[derive(Debug)]
struct Source {
    store: Arc<ContentStore>,
    ino: InodeId,
    generation: Generation,
    /// Open to read only: a descriptor to write would count as a writer. `None` if no kernel has
    /// its descriptor: it is then opened for each use. A leaf, after `observed`.
    open: Mutex<Option<Arc<OpenContent>>>,
}

/// The content file, open to read only, for one use.
pub(crate) enum Borrowed {
    /// It is open for others too.
    Shared(Arc<OpenContent>),
    /// It was opened for this use.
    Own(ContentFile),
}

#[derive(Debug)]
struct Observed {
    /// The last measurement of the content file.
    measured: ContentStat,
    /// The access time of the content file that was compared last.
    atime: Time,
    /// Size and times that follow from the measurements; `None` while no program may write.
    live: Option<LiveAttrs>,
    /// `live` has moved since [`Observer::observe`] returned it last.
    moved: bool,
    /// `live` has moved since it was shown last. The row's change time may be later than the disk's
    /// clock by then.
    unshown: bool,
    /// Opens whose reads count.
    readers: u32,
    /// A failure of the disk was logged already.
    warned: bool,
}

/// What a request of ours has just changed in the content file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Touched {
    Nothing,
    Bytes,
    /// The modification time, which counts although the disk may round it.
    Mtime(Time),
}

impl Observer {
    /// The observer of a content file that is not open, and that no program writes.
    ///
    /// # Errors
    /// If the file is missing or the disk fails.
    pub(crate) fn new(
        store: &Arc<ContentStore>,
        ino: InodeId,
        generation: Generation,
    ) -> Result<Arc<Self>, content::Error> {
        let source = Source { store: Arc::clone(store), ino, generation, open: Mutex::default() };
        let measured = source.measure()?;
        let observed = Observed {
            measured,
            atime: measured.atime,
            live: None,
            moved: false,
            unshown: false,
            readers: 0,
            warned: false,
        };
        let measuring = Mutex::default();
        let observed = Mutex::new(observed);
        Ok(Arc::new(Self { source, measuring, observed }))
    }

    /// Returns the content file if it is open.
    pub(crate) fn content(&self) -> Option<Arc<OpenContent>> {
        self.source.open.lock().clone()
    }

    /// Sets the content file, which is open to read only from now on.
    pub(crate) fn open(&self, content: &Arc<OpenContent>) {
        *self.source.open.lock() = Some(Arc::clone(content));
    }

    /// Closes the content file: no kernel gets its descriptor any more.
    pub(crate) fn close(&self) {
        let closed = self.source.open.lock().take();
        // Closing a file may take long: not under the lock.
        drop(closed);
    }

    /// Returns the content file for one use; it is opened for that if it is not open.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(crate) fn borrow_content(&self) -> Result<Borrowed, content::Error> {
        self.source.borrow_content()
    }

    /// Returns whether a process can still write the content file; true if the kernel cannot tell.
    pub(crate) fn has_writers(&self) -> bool {
        let has_writers = self.source.borrow_content().and_then(|content| content.has_writers());
        has_writers.unwrap_or_else(|error| {
            self.observed.lock().warn(&error);
            true
        })
    }

    /// Notes that programs may write from now on. The file is as `measured`, and is shown as
    /// `live`. With `has_written` a program may have written it already, which counts too.
    pub(crate) fn begin(&self, measured: ContentStat, live: LiveAttrs, has_written: bool) {
        let _measuring = self.measuring.lock();
        let mut observed = self.observed.lock();
        let same_time = !has_written
            || measured.mtime == live.mtime
            || clock::is_late(measured.mtime, live.mtime);
        let same = same_time && measured.size == live.size;
        observed.measured = measured;
        observed.moved = !same;
        observed.live = Some(match same {
            true => live,
            false => LiveAttrs {
                size: measured.size,
                blocks: measured.blocks,
                mtime: if same_time { live.mtime } else { measured.mtime },
                ctime: live.ctime.next().max(measured.ctime),
            },
        });
    }

    /// Notes that no program can write any more.
    pub(crate) fn end(&self) {
        self.observed.lock().live = None;
    }

    /// Notes that a request has changed the bytes: the times move even if the disk's clock has not.
    pub(crate) fn note_write(&self) {
        let _measuring = self.measuring.lock();
        drop(self.measure(Touched::Bytes));
    }

    /// Returns the last measurement of the content file.
    pub(crate) fn measured(&self) -> ContentStat {
        self.observed.lock().measured
    }

    /// Sets the access time of the content file, which changes nothing that is shown.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn set_atime(&self, atime: Time) -> Result<(), content::Error> {
        let _measuring = self.measuring.lock();
        let before = self.measure(Touched::Nothing).measured;
        self.source.borrow_content()?.set_times(Some(atime), None)?;
        let now = self.source.measure()?;
        let mut observed = self.observed.lock();
        if (now.size, now.mtime) == (before.size, before.mtime) {
            observed.measured = now;
            observed.atime = now.atime;
        }
        Ok(())
    }

    /// Sets the times that a program sets for the file: the access time always, the modification
    /// time if the file is `written_externally`, and so has that of its content file.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn set_times(
        &self,
        set: &SetAttr,
        now: Time,
        written_externally: bool,
    ) -> Result<(), content::Error> {
        let at = |time| match time {
            SetTime::Now => now,
            SetTime::To(time) => time,
        };
        match (set.atime.map(at), set.mtime.map(at).filter(|_| written_externally)) {
            (None, None) => Ok(()),
            (Some(atime), None) => self.set_atime(atime),
            (atime, Some(mtime)) => {
                let _measuring = self.measuring.lock();
                self.source.borrow_content()?.set_times(atime, Some(mtime))?;
                let mut observed = self.measure(Touched::Mtime(mtime));
                observed.atime = observed.measured.atime;
                Ok(())
            }
        }
    }

    /// Adds an open whose reads count.
    pub(crate) fn add_reader(&self) {
        let _measuring = self.measuring.lock();
        let mut observed = self.observed.lock();
        if observed.readers == 0 {
            drop(observed);
            observed = self.measure(Touched::Nothing);
            observed.atime = observed.measured.atime;
        }
        observed.readers += 1;
    }

    /// Removes an open whose reads count. The caller has shown the attributes before, so that its
    /// last read was noticed.
    pub(crate) fn remove_reader(&self) {
        let readers = &mut self.observed.lock().readers;
        assert!(*readers > 0, "each reader is added before it is removed");
        *readers -= 1;
    }

    /// Measures the content file. Returns size and times, and whether they have moved since the
    /// last call; `None` if no program may write.
    pub(crate) fn observe(&self) -> Option<(LiveAttrs, bool)> {
        let _measuring = self.measuring.lock();
        let mut observed = self.measure(Touched::Nothing);
        let moved = std::mem::take(&mut observed.moved);
        observed.live.map(|live| (live, moved))
    }

    /// Asks the disk and notes the answer. The caller holds `measuring`.
    fn measure(&self, touched: Touched) -> MutexGuard<'_, Observed> {
        let now = self.source.measure();
        let mut observed = self.observed.lock();
        match now {
            Ok(now) => observed.note(now, touched),
            Err(error) => observed.warn(&error),
        }
        observed
    }
}

impl shard::AttrSource for Observer {
    fn refresh(&self) {
        let _measuring = self.measuring.lock();
        drop(self.measure(Touched::Nothing));
    }

    fn merge(&self, attr: Attr) -> Attr {
        let mut observed = self.observed.lock();
        let unshown = std::mem::take(&mut observed.unshown);
        if let Some(live) = observed.live.as_mut().filter(|live| unshown && live.ctime < attr.ctime)
        {
            live.ctime = attr.ctime.next();
            observed.moved = true;
        }
        let attr = match observed.live {
            Some(live) => Attr { volatile: true, ..live.merge(attr) },
            None => attr,
        };
        let read = observed.measured.atime;
        let moved = std::mem::replace(&mut observed.atime, read) != read;
        let counts = moved && observed.readers > 0 && shard::atime_is_due(&attr, read);
        Attr { atime: if counts { read } else { attr.atime }, ..attr }
    }
}

impl Source {
    fn borrow_content(&self) -> Result<Borrowed, content::Error> {
        if let Some(open) = &*self.open.lock() {
            return Ok(Borrowed::Shared(Arc::clone(open)));
        }
        self.store.open_existing(self.ino, self.generation).map(Borrowed::Own)
    }

    fn measure(&self) -> Result<ContentStat, content::Error> {
        if let Some(open) = &*self.open.lock() {
            return open.stat();
        }
        self.store.stat_existing(self.ino, self.generation)
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

impl Observed {
    /// Logs a failure of the disk once: it is asked often, for every attribute.
    fn warn(&mut self, error: &content::Error) {
        if !std::mem::replace(&mut self.warned, true) {
            let source = &error.source;
            tracing::warn!(
                %error, %source,
                "a content file that programs may write cannot be measured; it counts as written"
            );
        }
    }

    /// Notes a measurement.
    fn note(&mut self, now: ContentStat, touched: Touched) {
        let before = std::mem::replace(&mut self.measured, now);
        let Some(live) = &mut self.live else { return };
        let moved = |one: &ContentStat| (one.size, one.mtime, one.ctime);
        if touched != Touched::Nothing || moved(&before) != moved(&now) {
            live.size = now.size;
            live.mtime = match touched {
                Touched::Mtime(time) => time,
                _ if before.mtime != now.mtime && !clock::is_late(now.mtime, live.mtime) => {
                    now.mtime
                }
                _ if before.mtime != now.mtime || touched == Touched::Bytes => live.mtime.next(),
                _ => live.mtime,
            };
            live.ctime = live.ctime.next().max(now.ctime);
            self.moved = true;
            self.unshown = true;
        }
        if live.blocks != now.blocks {
            // The disk may allocate blocks later than bytes.
            live.blocks = now.blocks;
            self.moved = true;
        }
    }
}
