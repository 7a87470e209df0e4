//! Stale pages in the kernel's cache: a direct write has gone past them, another session has
//! changed their file, or the lease has ended under which they were read.
//!
//! Linux drops the pages of a range before a direct write and after it, but skips the latter for an
//! asynchronous write: a page that was read meanwhile stays, with the old bytes. So the range of
//! each direct write is invalidated from here, too.
//!
//! To invalidate a page, Linux takes its lock, which it holds over the READ that fills the page.
//! One of our event loops must reply to that READ, and the reply may wait for the reply to a write.
//! Sent from an event loop, the notice would be a deadlock. So a thread of its own sends it, and
//! the write gets its reply meanwhile. A reader through pages requests attributes first
//! (`AUTO_INVAL_DATA`, and attributes of a file that is open for writing have no lifetime). The
//! reply to that request waits until the stale pages are dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::{io, thread};

use parking_lot::Mutex;
use pelago_fuse::Notifier;
use pelago_fuse::ids::NodeId;
use pelago_wire::InodeId;

/// Stale ranges by file. Its lock is a leaf.
#[derive(Default)]
pub(crate) struct StalePages {
    shared: Arc<Shared>,
    worker: Mutex<Option<Sender<InodeId>>>,
}

#[derive(Default)]
struct Shared {
    files: Mutex<HashMap<u64, Work>>,
    count: AtomicUsize,
}

/// The range that is left to invalidate of a file, and the callbacks that wait for it.
#[derive(Default)]
struct Work {
    range: Option<Range>,
    waiting: Vec<Waiting>,
}

type Waiting = Box<dyn FnOnce() + Send>;

/// The bytes of a file from `start` up to `end`, which is not included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
}

impl StalePages {
    /// Starts the thread that drops pages.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(&self, kernel: Notifier) -> io::Result<()> {
        let (wake, woken) = channel();
        let shared = Arc::clone(&self.shared);
        let drop_pages = move |ino: InodeId, Range { start, end }: Range| {
            let offset = i64::try_from(start).unwrap_or(i64::MAX);
            let length = i64::try_from(end - start).unwrap_or(i64::MAX);
            if let Err(error) = kernel.inval_inode(NodeId(ino.raw()), offset, length) {
                tracing::debug!(%error, "stale pages of a file cannot be dropped");
            }
        };
        thread::Builder::new()
            .name("fuse-pages".to_owned())
            .spawn(move || work(&shared, &woken, drop_pages))?;
        *self.worker.lock() = Some(wake);
        Ok(())
    }

    /// Records a direct write; must be called before the reply to it.
    pub(crate) fn add(&self, ino: InodeId, offset: u64, length: u64) {
        let worker = self.worker.lock();
        let Some(worker) = &*worker else { return };
        self.shared.add(ino, Range { start: offset, end: offset.saturating_add(length) });
        if worker.send(ino).is_err() {
            tracing::error!("stale pages are not dropped: reads may return old bytes");
            self.shared.finish(ino);
        }
    }

    /// Returns whether no page of any file is stale.
    pub(crate) fn is_empty(&self) -> bool {
        self.shared.count.load(Ordering::Acquire) == 0
    }

    /// Calls `go` once no page of the file is stale: at once, or on the thread that drops pages.
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
            Work::default()
        });
        left.range = Some(left.range.map_or(range, |other| other.with(range)));
    }

    /// Takes the work that is left for a file, and removes the file if there is none.
    fn take(&self, ino: InodeId) -> Option<Work> {
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
    /// Returns the smallest range that contains both.
    fn with(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// Drops pages until all senders are gone.
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

    /// A reader of a file with stale pages waits for all earlier writes, and no other reader waits.
    #[test]
    fn attributes_wait_for_the_stale_pages_of_their_file() {
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
        let again = AtomicUsize::new(0);
        let dropped = Arc::clone(&log);
        let drop_pages = |ino: InodeId, Range { start, end }: Range| {
            dropped.lock().push(format!("{} {start} {end}", ino.raw()));
            // Another write ends while pages are dropped, and another reader asks.
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
