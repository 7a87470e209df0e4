//! System calls that the kernel begins again after `ESTALE`.
//!
//! Linux resolves a path first and uses the inode later: it opens it, or sets its mode. If the last
//! name of the inode is removed in between, the server has forgotten the inode, although a program
//! may make that name again at once. The reply is `ESTALE`, and Linux resolves the whole path once
//! more, with a LOOKUP for each name, and uses the inode that it finds. If that is gone too, the
//! program sees `ESTALE`. So the file that a thread finds by a name after it was answered `ESTALE`
//! is held open here until the thread has used it: it is used as it was when it had that name, as
//! in a local file system. Nothing is held, and no removal waits, unless a call was overtaken.
//!
//! A rename needs `ESTALE` for another reason. If both of its names lead to one inode, Linux
//! returns 0 without a request, and nothing happens. The first name may come from its cache:
//! another mount may have moved the file from it to the second name meanwhile, and the rename would
//! succeed on both mounts. Linux holds the locks of both directories meanwhile, so a notice cannot
//! invalidate the first name. But it sends a LOOKUP for the second name each time. If that leads to
//! an inode that was last seen under another name, and has no other name, others have moved it, and
//! the reply is `ESTALE`: then Linux looks up both names.
//!
//! Linux begins a call again once only. So the thread of a rename that has begun again gets the
//! entry.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pelago_wire::InodeId;

use crate::striped::StripedMap;
use crate::unlinked::Retained;

/// The longest time from one request of a call to the next.
const CALL: Duration = Duration::from_secs(2);
/// Limit of threads of one stripe. Beyond it, those are forgotten whose calls began again too long
/// ago.
const THREADS: usize = 64;
/// Limit of look-ups of a name whose file is removed before it is held. With a far server each
/// round is two round trips, in which a program there may often remove the name.
pub(crate) const LOOKUPS: u32 = 256;

/// The threads that were answered `ESTALE`, and the files that are held for them.
#[derive(Default)]
pub(crate) struct Retries {
    threads: StripedMap<Retry>,
    count: AtomicUsize,
}

struct Retry {
    since: Instant,
    why: Why,
    held: Option<HeldFile>,
}

/// The reason why a call began again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// An inode was gone when it was to be used.
    Gone,
    /// Others have moved the inode to which the name of this key led.
    Moved(u64),
}

/// A file that is held for a thread.
struct HeldFile {
    ino: InodeId,
    what: Retained,
}

impl Retries {
    /// Records that a thread is about to be answered `ESTALE`. Returns files that the caller must
    /// release.
    #[must_use]
    pub(crate) fn begin(&self, thread: u32, why: Why) -> Vec<Retained> {
        if thread == 0 {
            return Vec::new();
        }
        let now = Instant::now();
        let mut stripe = self.threads.lock(thread.into());
        let before = stripe.len();
        let mut ended: Vec<Retry> = stripe.remove(&thread.into()).into_iter().collect();
        if stripe.len() >= THREADS {
            ended.extend(stripe.extract_if(|_, retry| retry.is_over(now)).map(|(_, retry)| retry));
        }
        if stripe.len() < THREADS {
            stripe.insert(thread.into(), Retry { since: now, why, held: None });
        }
        self.count.fetch_add(stripe.len(), Ordering::AcqRel);
        self.count.fetch_sub(before, Ordering::AcqRel);
        ended.into_iter().filter_map(|retry| retry.held).map(|held| held.what).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Returns the reason why the call of a thread began again; `None` if it has not.
    pub(crate) fn why(&self, thread: u32) -> Option<Why> {
        if self.is_empty() {
            return None;
        }
        let now = Instant::now();
        let stripe = self.threads.lock(thread.into());
        stripe.get(&thread.into()).filter(|retry| !retry.is_over(now)).map(|retry| retry.why)
    }

    /// Holds a file for a thread until it has used it. Returns the file that the caller must
    /// release: the one that was held before, or this one if the call has not begun again.
    #[must_use]
    pub(crate) fn hold(&self, thread: u32, ino: InodeId, what: Retained) -> Option<Retained> {
        let mut stripe = self.threads.lock(thread.into());
        let Some(retry) = stripe.get_mut(&thread.into()) else { return Some(what) };
        retry.since = Instant::now();
        retry.held.replace(HeldFile { ino, what }).map(|held| held.what)
    }

    /// Ends the record of a thread. Returns the file that the caller must release.
    #[must_use]
    pub(crate) fn end(&self, thread: u32) -> Option<Retained> {
        if self.is_empty() {
            return None;
        }
        let retry = self.threads.remove(thread.into())?;
        self.count.fetch_sub(1, Ordering::AcqRel);
        retry.held.map(|held| held.what)
    }

    /// Returns the target of a symbolic link that is held.
    pub(crate) fn target(&self, thread: u32, ino: InodeId) -> Option<Vec<u8>> {
        let stripe = self.threads.lock(thread.into());
        match stripe.get(&thread.into())?.held.as_ref()? {
            HeldFile { ino: held, what: Retained::Target(target) } if *held == ino => {
                Some(target.clone())
            }
            _ => None,
        }
    }

    /// Ends the record of a rename whose name is missing. Any other call looks the name up once
    /// more.
    pub(crate) fn name_is_missing(&self, thread: u32) {
        match self.why(thread) {
            Some(Why::Moved(_)) => drop(self.end(thread)),
            Some(Why::Gone) | None => {}
        }
    }

    /// Ends the records of calls that began again too long ago. Returns files that the caller must
    /// release.
    pub(crate) fn end_old(&self, now: Instant) -> Vec<Retained> {
        let mut ended = Vec::new();
        for mut stripe in self.threads.stripes() {
            let before = stripe.len();
            ended.extend(stripe.extract_if(|_, retry| retry.is_over(now)));
            self.count.fetch_sub(before - stripe.len(), Ordering::AcqRel);
        }
        ended.into_iter().filter_map(|(_, retry)| retry.held).map(|held| held.what).collect()
    }
}

impl Retry {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) > CALL
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::OpenId;

    use super::*;

    const FILE: InodeId = InodeId::from_raw(9);

    fn open(number: u64) -> Retained {
        Retained::Open(OpenId(number))
    }

    #[test]
    fn what_is_held_for_a_thread_comes_back_once_it_has_used_it() {
        let retries = Retries::default();
        assert!(retries.why(7).is_none() && retries.end(7).is_none());
        assert_eq!(retries.hold(7, FILE, open(1)), Some(open(1)), "it has not begun again");
        assert_eq!(retries.begin(7, Why::Gone), []);
        assert!(retries.why(7) == Some(Why::Gone) && retries.why(8).is_none());
        assert_eq!(retries.hold(7, FILE, open(1)), None);
        assert_eq!(retries.hold(7, FILE, open(2)), Some(open(1)));
        assert_eq!(retries.begin(7, Why::Gone), [open(2)]);
        assert_eq!(retries.hold(7, FILE, open(3)), None);
        retries.name_is_missing(7);
        assert_eq!(retries.end(7), Some(open(3)));
        assert_eq!(retries.begin(7, Why::Moved(1)), []);
        assert_eq!(retries.why(7), Some(Why::Moved(1)));
        retries.name_is_missing(7);
        assert!(retries.why(7).is_none());
        assert_eq!(retries.count.load(Ordering::Acquire), 0);
    }

    #[test]
    fn what_is_held_is_not_held_for_ever() {
        let retries = Retries::default();
        let now = Instant::now();
        assert_eq!(retries.begin(7, Why::Gone), []);
        let target = Retained::Target(b"there".to_vec());
        assert_eq!(retries.hold(7, FILE, target), None);
        assert_eq!(retries.target(7, FILE), Some(b"there".to_vec()));
        assert_eq!((retries.target(8, FILE), retries.target(7, InodeId::ROOT)), (None, None));
        assert_eq!(retries.end_old(now + CALL), []);
        let target = Retained::Target(b"there".to_vec());
        assert_eq!(retries.end_old(now + 2 * CALL), [target]);
        assert!(retries.is_empty());
    }

    #[test]
    fn requests_without_a_thread_and_too_many_threads_are_not_held_for() {
        let retries = Retries::default();
        assert_eq!(retries.begin(0, Why::Gone), []);
        assert!(retries.why(0).is_none());
        for thread in 1..10_000 {
            assert_eq!(retries.begin(thread, Why::Gone), []);
        }
        assert_eq!(retries.count.load(Ordering::Acquire), 16 * THREADS);
    }
}
