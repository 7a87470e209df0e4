//! Own files whose bytes are at other sites: those that are being brought home, and the opens of
//! their nodes that are being made.

use std::collections::HashMap;
use std::time::Instant;

use parking_lot::Mutex;
use pelago_data::OpenKey;
use pelago_wire::{Code, Error, InodeId};

/// Called once something has happened, or has failed.
pub(crate) type OnDone = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// The most files that are brought home at a time.
const AT_ONCE: usize = 8;

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
    coming: Mutex<HashMap<InodeId, Vec<Waiter>>>,
    /// Opens for which the node is being opened. A leaf lock.
    opening: Mutex<HashMap<OpenKey, Vec<OnDone>>>,
}

/// The way of a request that needs the bytes of a file at home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coming {
    /// They are to be brought, for this request and others that come meanwhile.
    Begins,
    /// They are being brought.
    UnderWay,
}

impl Homecomings {
    /// Has `then` called once the bytes of a file are home, or with `Busy` at a time.
    ///
    /// # Errors
    /// `then`, if too many files are being brought home.
    pub(crate) fn wait(
        &self,
        file: InodeId,
        until: Instant,
        then: OnDone,
    ) -> Result<Coming, OnDone> {
        let mut coming = self.coming.lock();
        if let Some(waiting) = coming.get_mut(&file) {
            waiting.push(Waiter { until, then });
            return Ok(Coming::UnderWay);
        }
        if coming.len() >= AT_ONCE {
            return Err(then);
        }
        coming.insert(file, vec![Waiter { until, then }]);
        Ok(Coming::Begins)
    }

    /// Answers those that have waited for too long.
    pub(crate) fn give_up(&self, file: InodeId, now: Instant) {
        let mut late = Vec::new();
        if let Some(waiting) = self.coming.lock().get_mut(&file) {
            let (over, rest) = std::mem::take(waiting).into_iter().partition(|it| it.until <= now);
            *waiting = rest;
            late = over;
        }
        late.into_iter().for_each(|waiter| (waiter.then)(Err(Code::Busy.into())));
    }

    /// Ends the wait for a file.
    pub(crate) fn end(&self, file: InodeId, result: Result<(), Error>) {
        let waiting = self.coming.lock().remove(&file).unwrap_or_default();
        waiting.into_iter().for_each(|waiter| (waiter.then)(result));
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
