//! The bytes that a session, or a connection without one, holds in memory. If it holds too many,
//! its connections are paused: they are not read until it holds less.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use mio::Token;
use parking_lot::Mutex;

use crate::clock::boot_time;

/// A thread that reads connections.
pub(crate) trait Resume: Send + Sync {
    /// Reads a connection again that was paused.
    fn resume(&self, token: Token);
}

/// The bytes of one session.
///
/// One thread writes `is_paused` and then reads `held`; others write `held` and then read
/// `is_paused`. The accesses are `SeqCst`: otherwise each could miss the other's write, and the
/// connection would stay paused.
pub(crate) struct Account {
    held: AtomicUsize,
    /// The bytes that may be held. Beyond them connections are paused.
    limit: AtomicUsize,
    /// A connection is paused.
    is_paused: AtomicBool,
    /// The paused connections. A leaf lock.
    waiting: Mutex<Vec<(Arc<dyn Resume>, Token)>>,
    /// When connections were resumed last: milliseconds of [`boot_time`].
    resumed: AtomicU64,
}

impl Account {
    /// Returns an account without bytes.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            held: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
            is_paused: AtomicBool::new(false),
            waiting: Mutex::default(),
            resumed: AtomicU64::new(0),
        })
    }

    /// Sets how many bytes may be held from now on.
    pub(crate) fn set_limit(&self, limit: usize) {
        if self.limit.swap(limit, Ordering::SeqCst) < limit && self.has_room() {
            self.resume();
        }
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Counts bytes until the guard is dropped.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> HoldGuard {
        self.add(bytes);
        HoldGuard { account: Arc::clone(self), bytes }
    }

    pub(crate) fn let_go(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let left = self.held.fetch_sub(bytes, Ordering::SeqCst) - bytes;
        let limit = self.limit.load(Ordering::Relaxed);
        // Three quarters of the limit are more than a client has under way: a client that keeps to
        // its window does not stay paused.
        if left <= limit - limit / 4 && self.is_paused() {
            self.resume();
        }
    }

    /// Returns whether more may be read.
    pub(crate) fn has_room(&self) -> bool {
        self.held.load(Ordering::SeqCst) <= self.limit.load(Ordering::SeqCst)
    }

    /// Returns whether a connection is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::SeqCst)
    }

    /// Returns when connections were resumed last, by [`boot_time`]; 0 if none was paused.
    pub(crate) fn resumed(&self) -> Duration {
        Duration::from_millis(self.resumed.load(Ordering::SeqCst))
    }

    /// Pauses a connection until a quarter of the limit is free.
    pub(crate) fn pause(&self, reader: &Arc<dyn Resume>, token: Token) {
        let mut waiting = self.waiting.lock();
        if !waiting.iter().any(|(other, known)| *known == token && Arc::ptr_eq(other, reader)) {
            waiting.push((Arc::clone(reader), token));
        }
        self.is_paused.store(true, Ordering::SeqCst);
    }

    /// Resumes all paused connections.
    pub(crate) fn resume(&self) {
        let waiting = {
            let mut waiting = self.waiting.lock();
            let now = u64::try_from(boot_time().as_millis()).unwrap_or(u64::MAX);
            self.resumed.store(now, Ordering::SeqCst);
            self.is_paused.store(false, Ordering::SeqCst);
            std::mem::take(&mut *waiting)
        };
        waiting.into_iter().for_each(|(reader, token)| reader.resume(token));
    }
}

/// Bytes that are counted until this is dropped.
pub(crate) struct HoldGuard {
    account: Arc<Account>,
    bytes: usize,
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        self.account.let_go(self.bytes);
    }
}
