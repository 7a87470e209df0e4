//! The observer of a content file that programs reach without requests: through a descriptor in the
//! kernel, or a mapping that outlives every open.
//!
//! While a program may write the content file that way, the file is *written externally*: its size,
//! blocks and times are those of the content file, which is measured whenever they are read. The
//! measurements are in one place, [`Observer`], for the open inode and for every attribute that
//! leaves the shard, so that times never go back. The change time is that of the row until the
//! content file's changes; from then on it is the later of the two.
//!
//! External writes end when the last writer has left *and* the kernel reports that no process can
//! write the content file any more. Until then the close is *pending*: the file keeps a writer here
//! and its `writing` row, and the kernel is polled. That uses no descriptor: the content file is
//! closed, and opened for each poll.

use std::ops::Deref;
use std::sync::Arc;

use pelago_meta::shard::{self, LiveAttrs};
use pelago_store::clock;
use pelago_store::content::{self, ContentFile, ContentStat, ContentStore};
use pelago_store::sync::{Mutex, MutexGuard};
use pelago_wire::{Attr, Generation, InodeId, SetAttr, SetTime, Time};

use crate::content_file::OpenContent;

/// The observer of a content file that programs reach without requests.
#[derive(Debug)]
pub(crate) struct Observer {
    source: Source,
    /// Held during a measurement, so that results are recorded in order. Taken before `observed`.
    measuring: Mutex<()>,
    /// Never held during a measurement, so that a read of attributes does not wait. A leaf lock.
    observed: Mutex<Observed>,
}

/// The observed content file.
#[derive(Debug)]
struct Source {
    store: Arc<ContentStore>,
    ino: InodeId,
    generation: Generation,
    /// Open to read only: a descriptor to write would count as a writer. `None` if no kernel has
    /// its descriptor; it is then opened for each use. A leaf lock, after `observed`.
    open: Mutex<Option<Arc<OpenContent>>>,
}

/// The content file, open to read only, for one use.
pub(crate) enum Borrowed {
    /// The descriptor that is open.
    Shared(Arc<OpenContent>),
    /// A descriptor that was opened for this use.
    Own(ContentFile),
}

#[derive(Debug)]
struct Observed {
    /// The last measurement of the content file.
    measured: ContentStat,
    /// The last access time of the content file that was compared.
    atime: Time,
    /// Size and times that follow from the measurements; `None` while no program may write.
    live: Option<LiveAttrs>,
    /// True if `live` changed since [`Observer::observe`] last returned it.
    moved: bool,
    /// True if `live` changed since it was last merged into attributes. The change time in the row
    /// may be later than the disk's clock by then.
    unshown: bool,
    /// The number of opens whose reads count.
    readers: u32,
    /// True if a failure of the disk was logged already.
    warned: bool,
}

/// The change that a request has just made in the content file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Touched {
    Nothing,
    Bytes,
    /// The modification time. This value counts, although the disk may round it.
    Mtime(Time),
}

impl Observer {
    /// Returns the observer of a content file that is not open, and that no program writes.
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

    /// Sets the open content file, which is open to read only.
    pub(crate) fn open(&self, content: &Arc<OpenContent>) {
        *self.source.open.lock() = Some(Arc::clone(content));
    }

    /// Closes the content file, whose descriptor no kernel gets any more.
    pub(crate) fn close(&self) {
        let closed = self.source.open.lock().take();
        // Closing a file may take long: not under the lock.
        drop(closed);
    }

    /// Returns the content file for one use. Opens it if it is not open.
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

    /// Records that programs may write from now on. `measured` is the state of the content file,
    /// `live` that of the inode. With `has_written` a program may have written the file already,
    /// which counts too.
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

    /// Records that no program can write any more.
    pub(crate) fn end(&self) {
        self.observed.lock().live = None;
    }

    /// Records that a request has changed the bytes: the times change even if the disk's clock has
    /// not advanced.
    pub(crate) fn note_write(&self) {
        let _measuring = self.measuring.lock();
        drop(self.measure(Touched::Bytes));
    }

    /// Returns the last measurement of the content file.
    pub(crate) fn measured(&self) -> ContentStat {
        self.observed.lock().measured
    }

    /// Sets the access time of the content file. This changes no attribute of the file.
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

    /// Sets times of the content file that a program sets for the file: the access time always, the
    /// modification time if the file is `written_externally`.
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

    /// Removes an open whose reads count. The caller has read the attributes before, so that the
    /// last read was recorded.
    pub(crate) fn remove_reader(&self) {
        let readers = &mut self.observed.lock().readers;
        assert!(*readers > 0, "each reader is added before it is removed");
        *readers -= 1;
    }

    /// Measures the content file. Returns size and times, and whether they changed since the last
    /// call; `None` if no program may write.
    pub(crate) fn observe(&self) -> Option<(LiveAttrs, bool)> {
        let _measuring = self.measuring.lock();
        let mut observed = self.measure(Touched::Nothing);
        let moved = std::mem::take(&mut observed.moved);
        observed.live.map(|live| (live, moved))
    }

    /// Measures the content file and records the result. The caller holds `measuring`.
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
    /// Logs a failure of the disk once: it is measured often, for every read of attributes.
    fn warn(&mut self, error: &content::Error) {
        if !std::mem::replace(&mut self.warned, true) {
            let source = &error.source;
            tracing::warn!(
                %error, %source,
                "a content file that programs may write cannot be measured; it counts as written"
            );
        }
    }

    /// Records a measurement.
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
