//! Own files whose bytes are at other sites: those that are being brought home, and the opens of
//! their nodes that are being made.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use parking_lot::Mutex;
use pelago_data::OpenKey;
use pelago_wire::{Code, Error, Handle, InodeId};

/// Called once something has happened, or has failed.
pub(crate) type OnDone = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// The most files that are brought home at a time. Others wait for their turn.
const AT_ONCE: usize = 8;

/// A file whose bytes are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The file.
    pub(crate) file: Handle,
    /// The node of another site that has its bytes.
    pub(crate) node: InodeId,
    /// They are brought home; else the other site is to write nothing there any more.
    pub(crate) is_pulled: bool,
}

/// A request that waits until the bytes of a file are home.
struct Waiter {
    /// When it is answered with `Busy`.
    until: Instant,
    then: OnDone,
}

/// Own files whose bytes are at other sites, and what waits for these.
#[derive(Default)]
pub(crate) struct Homecomings {
    /// A leaf lock.
    coming: Mutex<Comings>,
    /// Opens for which the node is being opened. A leaf lock.
    opening: Mutex<HashMap<OpenKey, Vec<OnDone>>>,
}

#[derive(Default)]
struct Comings {
    waiting: HashMap<InodeId, Vec<Waiter>>,
    /// Number of files that are being brought.
    under_way: usize,
    /// Files whose turn comes later.
    next: VecDeque<Wanted>,
}

/// The way of a request that needs the bytes of a file at home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coming {
    /// They are to be brought, for this request and others that come meanwhile.
    Begins,
    /// They are being brought, or will be.
    UnderWay,
}

impl Homecomings {
    /// Has `then` called once the bytes of a file are home, or with `Busy` at a time.
    pub(crate) fn wait(&self, wanted: Wanted, until: Instant, then: OnDone) -> Coming {
        let mut coming = self.coming.lock();
        let waiter = Waiter { until, then };
        if let Some(waiting) = coming.waiting.get_mut(&wanted.file.ino) {
            waiting.push(waiter);
            return Coming::UnderWay;
        }
        coming.waiting.insert(wanted.file.ino, vec![waiter]);
        if coming.under_way >= AT_ONCE {
            coming.next.push_back(wanted);
            return Coming::UnderWay;
        }
        coming.under_way += 1;
        Coming::Begins
    }

    /// Answers those that have waited for too long, for this file or for their turn.
    pub(crate) fn give_up(&self, file: InodeId, now: Instant) {
        let mut late = Vec::new();
        let mut coming = self.coming.lock();
        let mut give_up = |waiting: &mut Vec<Waiter>| {
            let (over, rest) = std::mem::take(waiting).into_iter().partition(|it| it.until <= now);
            *waiting = rest;
            late.extend::<Vec<Waiter>>(over);
        };
        coming.waiting.get_mut(&file).into_iter().for_each(&mut give_up);
        let queued: Vec<InodeId> = coming.next.iter().map(|wanted| wanted.file.ino).collect();
        for queued in queued {
            coming.waiting.get_mut(&queued).into_iter().for_each(&mut give_up);
        }
        drop(coming);
        late.into_iter().for_each(|waiter| (waiter.then)(Err(Code::Busy.into())));
    }

    /// Ends the wait for a file. Returns the next one to be brought.
    pub(crate) fn end(&self, file: InodeId, result: Result<(), Error>) -> Option<Wanted> {
        let mut coming = self.coming.lock();
        let waiting = coming.waiting.remove(&file).unwrap_or_default();
        let next = coming.next.pop_front();
        if next.is_none() {
            coming.under_way -= 1;
        }
        drop(coming);
        waiting.into_iter().for_each(|waiter| (waiter.then)(result));
        next
    }

    /// Has `then` called once the node of an open is open. Returns whether it is to be opened.
    pub(crate) fn begin_opening(&self, open: OpenKey, then: OnDone) -> bool {
        let mut opening = self.opening.lock();
        let waiting = opening.entry(open).or_default();
        waiting.push(then);
        waiting.len() == 1
    }

    /// Records that the node of an open is open, or cannot be opened.
    pub(crate) fn end_opening(&self, open: OpenKey, result: Result<(), Error>) {
        let waiting = self.opening.lock().remove(&open).unwrap_or_default();
        waiting.into_iter().for_each(|then| then(result));
    }
}
