//! Attributes of an entry, held for the next request of the thread that gets the entry.
//!
//! A kernel that may cache nothing of a file looks a name up, or makes a file, and then sends
//! GETATTR for that file at once: for a check of permissions, and for `stat`. For a far server that
//! would be a second round trip for attributes that the first has brought. So they are held for the
//! thread that waits for the entry, and answer its next request if that is GETATTR for this file:
//! once, within [`HOLDS`], and unless this mount has changed the file meanwhile. Any other request
//! of the thread drops them, so they answer no request of a later call, except if the call that
//! looked the name up needed no attributes (an open with `O_PATH`). Attributes under a lease are
//! not held here: the holder of the lease answers for them.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pelago_wire::{Attr, Entry, InodeId};

use crate::striped::StripedMap;

/// Time for which attributes are held. The kernel goes on within microseconds, unless the machine
/// is loaded.
const HOLDS: Duration = Duration::from_millis(1);
/// Threads of one stripe. With more, all of the stripe are dropped: most belong to threads that
/// have ended.
const THREADS: usize = 64;
/// Counts of changes; those of different files may share one.
const COUNTS: usize = 64;

/// The attributes of entries, by the thread that waits for them.
pub(crate) struct EntryAttrs {
    threads: StripedMap<Kept>,
    changes: [AtomicU64; COUNTS],
}

struct Kept {
    entry: Entry,
    since: Instant,
    /// The count of changes of the file when the entry came.
    changes: u64,
}

impl Default for EntryAttrs {
    fn default() -> Self {
        let changes = array::from_fn(|_| AtomicU64::new(0));
        Self { threads: StripedMap::default(), changes }
    }
}

impl EntryAttrs {
    /// Holds the attributes of an entry that is about to be sent to this thread.
    pub(crate) fn keep(&self, thread: u32, entry: &Entry) {
        if thread == 0 {
            return;
        }
        let changes = self.count(entry.attr.ino).load(Ordering::Acquire);
        let kept = Kept { entry: *entry, since: Instant::now(), changes };
        let mut stripe = self.threads.lock(thread.into());
        if stripe.len() >= THREADS {
            stripe.clear();
        }
        stripe.insert(thread.into(), kept);
    }

    /// Returns whether the attributes that are held for this thread are those of this file.
    pub(crate) fn is_about(&self, thread: u32, ino: InodeId) -> bool {
        let kept = self.threads.lock(thread.into());
        kept.get(&thread.into()).is_some_and(|kept| kept.entry.attr.ino == ino)
    }

    /// Takes the attributes of this file that are held for this thread.
    pub(crate) fn take(&self, thread: u32, ino: InodeId) -> Option<Attr> {
        let Kept { entry, since, changes } = self.threads.remove(thread.into())?;
        let is_same = entry.attr.ino == ino && changes == self.count(ino).load(Ordering::Acquire);
        (is_same && since.elapsed() < HOLDS).then_some(entry.attr)
    }

    /// Drops the attributes that are held for a thread: it sends another request.
    pub(crate) fn forget(&self, thread: u32) {
        self.threads.remove(thread.into());
    }

    /// Records that this mount changes a file.
    pub(crate) fn changes(&self, ino: InodeId) {
        self.count(ino).fetch_add(1, Ordering::AcqRel);
    }

    fn count(&self, ino: InodeId) -> &AtomicU64 {
        &self.changes[ino.raw() as usize % COUNTS]
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::{FileKind, Handle};

    use super::*;

    const FILE: InodeId = InodeId::from_raw(9);

    fn entry(kind: FileKind) -> Entry {
        Entry { handle: Handle::own(FILE), attr: Attr::empty(FILE, kind) }
    }

    #[test]
    fn attributes_answer_the_next_question_of_the_same_thread_once() {
        let kept = EntryAttrs::default();
        kept.keep(7, &entry(FileKind::Regular));
        assert!(kept.is_about(7, FILE) && !kept.is_about(7, InodeId::ROOT));
        assert_eq!(kept.take(8, FILE), None);
        assert_eq!(kept.take(7, FILE).map(|attr| attr.ino), Some(FILE));
        assert_eq!(kept.take(7, FILE), None);
    }

    #[test]
    fn another_request_or_a_change_or_a_pause_forgets_them() {
        let kept = EntryAttrs::default();
        kept.keep(7, &entry(FileKind::Regular));
        kept.forget(7);
        assert_eq!(kept.take(7, FILE), None);
        kept.keep(7, &entry(FileKind::Regular));
        assert_eq!(kept.take(7, InodeId::ROOT), None);
        assert_eq!(kept.take(7, FILE), None, "another file was asked for");
        kept.keep(7, &entry(FileKind::Regular));
        kept.changes(FILE);
        assert_eq!(kept.take(7, FILE), None);
        kept.keep(7, &entry(FileKind::Regular));
        // They are forgotten by the clock.
        std::thread::sleep(HOLDS);
        assert_eq!(kept.take(7, FILE), None);
    }

    #[test]
    fn requests_without_a_thread_keep_nothing() {
        let kept = EntryAttrs::default();
        kept.keep(0, &entry(FileKind::Regular));
        assert_eq!(kept.take(0, FILE), None);
    }

    #[test]
    fn threads_that_have_ended_take_no_memory_for_ever() {
        let kept = EntryAttrs::default();
        for thread in 1..100_000 {
            kept.keep(thread, &entry(FileKind::Regular));
        }
        let count: usize = kept.threads.stripes().map(|stripe| stripe.len()).sum();
        assert!(count <= 16 * THREADS, "{count}");
    }
}
