//! Pages that direct writes have left behind.
//!
//! The kernel drops the pages of a range before a direct write and after it, but an asynchronous
//! write is over without the second half: what was read into a page meanwhile stays there, with the
//! bytes of before. So the range of each direct write is dropped from here, too.
//!
//! Dropping a page waits for the READ that fills it, which one of our own event loops has to
//! answer, and which may wait itself until a write is answered. So a thread of its own does it, and
//! the write is answered meanwhile. Whoever reads through pages asks for attributes first
//! (`AUTO_INVAL_DATA`, and attributes of a file that is open for writing do not hold): that answer
//! waits until the pages are gone.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use parking_lot::Mutex;
use pelago_fuse::Notifier;
use pelago_fuse::ids::NodeId;
use pelago_wire::InodeId;

/// Ranges to drop by file. Its lock is a leaf.
#[derive(Default)]
pub(crate) struct StalePages {
    shared: Arc<Shared>,
    worker: Mutex<Option<Sender<InodeId>>>,
}

#[derive(Default)]
struct Shared {
    files: Mutex<HashMap<u64, Left>>,
    count: AtomicUsize,
}

/// What is left to do for a file.
#[derive(Default)]
struct Left {
    range: Option<Range>,
    waiting: Vec<Waiting>,
}

type Waiting = Box<dyn FnOnce() + Send>;

/// Bytes `start` to `end` of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
}

impl StalePages {
    /// Starts the thread that drops pages.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub(crate) fn start(&self, kernel: Notifier) -> io::Result<()> {
        let (wake, woken) = channel();
        let shared = Arc::clone(&self.shared);
        let drop_pages = move |ino: InodeId, Range { start, end }: Range| {
            let offset = i64::try_from(start).unwrap_or(i64::MAX);
            let length = i64::try_from(end - start).unwrap_or(i64::MAX);
            if let Err(error) = kernel.inval_inode(NodeId(ino.raw()), offset, length) {
                tracing::debug!(%error, "the kernel drops no pages of a file");
            }
        };
        thread::Builder::new()
            .name("fuse-pages".to_owned())
            .spawn(move || work(&shared, &woken, drop_pages))?;
        *self.worker.lock() = Some(wake);
        Ok(())
    }

    /// Bytes were written past the pages; to be called before the write is answered.
    pub(crate) fn add(&self, ino: InodeId, offset: u64, length: u64) {
        let worker = self.worker.lock();
        let Some(worker) = &*worker else { return };
        self.shared.add(ino, Range { start: offset, end: offset.saturating_add(length) });
        if worker.send(ino).is_err() {
            tracing::error!("the thread that drops pages has ended");
            self.shared.finish(ino);
        }
    }

    /// Whether no page of any file is stale.
    pub(crate) fn is_empty(&self) -> bool {
        self.shared.count.load(Ordering::Acquire) == 0
    }

    /// Calls `go` when no page of the file is stale: at once, or on the thread that drops them.
    pub(crate) fn when_clean(&self, ino: InodeId, go: impl FnOnce() + Send + 'static) {
        let mut files = self.shared.files.lock();
        match files.get_mut(&ino.raw()) {
            Some(left) => left.waiting.push(Box::new(go)),
            None => {
                drop(files);
                go();
            }
        }
    }
}

impl Shared {
    fn add(&self, ino: InodeId, range: Range) {
        let mut files = self.files.lock();
        let left = files.entry(ino.raw()).or_insert_with(|| {
            self.count.fetch_add(1, Ordering::AcqRel);
            Left::default()
        });
        left.range = Some(left.range.map_or(range, |other| other.with(range)));
    }

    /// What is left to do for a file now; a file with nothing left is not kept.
    fn take(&self, ino: InodeId) -> Option<Left> {
        let mut files = self.files.lock();
        let left = std::mem::take(files.get_mut(&ino.raw())?);
        if left.range.is_none() && left.waiting.is_empty() {
            files.remove(&ino.raw());
            self.count.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        Some(left)
    }

    fn finish(&self, ino: InodeId) {
        while let Some(left) = self.take(ino) {
            left.waiting.into_iter().for_each(|go| go());
        }
    }
}

impl Range {
    /// The smallest range that has both.
    fn with(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// Drops pages until nobody can ask for it any more.
fn work(shared: &Shared, woken: &Receiver<InodeId>, drop_pages: impl Fn(InodeId, Range)) {
    while let Ok(ino) = woken.recv() {
        while let Some(left) = shared.take(ino) {
            if let Some(range) = left.range {
                drop_pages(ino, range);
            }
            left.waiting.into_iter().for_each(|go| go());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeId = InodeId::from_raw(9);
    const OTHER: InodeId = InodeId::from_raw(10);

    /// Who asks while pages are stale is answered behind all that was written before, and nobody
    /// else waits.
    #[test]
    fn who_asks_waits_for_the_pages_of_that_file() {
        let stale = StalePages::default();
        let (wake, woken) = channel();
        *stale.worker.lock() = Some(wake);
        let log = Arc::new(Mutex::new(Vec::new()));
        let note = |text: &'static str| {
            let log = Arc::clone(&log);
            move || log.lock().push(text.to_owned())
        };
        stale.when_clean(FILE, note("before"));
        stale.add(FILE, 4096, 100);
        stale.add(FILE, 8192, 10);
        stale.when_clean(FILE, note("asked"));
        stale.when_clean(OTHER, note("other"));
        assert_eq!(*log.lock(), ["before", "other"]);
        let shared = Arc::clone(&stale.shared);
        let (again, dropped) = (AtomicUsize::new(0), Arc::clone(&log));
        let drop_pages = |ino: InodeId, Range { start, end }: Range| {
            dropped.lock().push(format!("{} {start} {end}", ino.raw()));
            // One more write ends while the pages of others are dropped, and somebody asks.
            if again.fetch_add(1, Ordering::AcqRel) == 0 {
                stale.shared.add(FILE, Range { start: 0, end: 1 });
                stale.when_clean(FILE, note("asked again"));
            }
        };
        *stale.worker.lock() = None;
        work(&shared, &woken, drop_pages);
        let rest = log.lock().split_off(2);
        assert_eq!(rest, ["9 4096 8202", "asked", "9 0 1", "asked again"]);
        assert_eq!(shared.count.load(Ordering::Acquire), 0);
        assert!(shared.files.lock().is_empty());
    }
}
