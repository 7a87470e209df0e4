//! The record of a peer, which outlives its sessions: the share of the server's memory that they
//! have in common, and the peer's unanswered recalls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_wire::limits;

use crate::account::Account;
use crate::clock::boot_time;

/// The state that all sessions of one peer have in common.
#[derive(Default)]
pub(crate) struct PeerRecord {
    /// A leaf lock.
    distrust: Mutex<PeerDistrust>,
    /// The time until which the peer is granted no leases: milliseconds of [`boot_time`], 0 if it
    /// may be.
    until: AtomicU64,
    /// The number of its requests that wait for locks.
    lock_waiters: AtomicUsize,
}

/// The count of recalls to a peer that were not answered.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct PeerDistrust {
    times: u32,
    /// When a recall was not answered last, by [`boot_time`].
    last: Duration,
    /// The time until which the peer gets no leases, by [`boot_time`].
    until: Duration,
}

impl PeerDistrust {
    /// The number of times after which the time is not doubled any more.
    const MOST_TIMES: u32 = 7;
    /// The time without an unanswered recall after which one of those before is forgotten.
    const FORGIVEN_AFTER: Duration = Duration::from_secs(600);

    /// Notes that a recall was not answered within `limit`. Sessions that miss it together, as
    /// those of a machine that sleeps, count once.
    fn grow(&mut self, now: Duration, limit: Duration) {
        if self.times > 0 && now.saturating_sub(self.last) < limit {
            return;
        }
        self.times = self.left(now).min(Self::MOST_TIMES - 1) + 1;
        self.last = now;
        // The first unanswered recall costs nothing: a client may have been killed.
        self.until = now + limit * ((1 << (self.times - 1)) - 1);
    }

    /// Returns the number of unanswered recalls that are not forgotten.
    fn left(&self, now: Duration) -> u32 {
        let quiet = now.saturating_sub(self.until).as_secs() / Self::FORGIVEN_AFTER.as_secs();
        self.times.saturating_sub(u32::try_from(quiet).unwrap_or(u32::MAX))
    }
}

impl PeerRecord {
    /// Notes that a session of the peer has not answered a recall within `limit`. From the second
    /// time on the peer gets no leases for a while, about twice as long each time, also in later
    /// sessions: each lease may delay a change by others for as long.
    pub(crate) fn not_answered(&self, now: Duration, limit: Duration) {
        let mut distrust = self.distrust.lock();
        distrust.grow(now, limit);
        let until = u64::try_from(distrust.until.as_millis()).unwrap_or(u64::MAX);
        self.until.store(until, Ordering::Relaxed);
    }

    /// Returns whether the peer gets no leases now.
    pub(crate) fn is_distrusted(&self) -> bool {
        match self.until.load(Ordering::Relaxed) {
            0 => false,
            until => boot_time() < Duration::from_millis(until),
        }
    }

    /// Returns whether there is something to remember when the peer has no session.
    pub(crate) fn is_remembered(&self, now: Duration) -> bool {
        self.distrust.lock().left(now) > 0
    }

    /// Counts a request that waits for a lock, until the guard is dropped; `None` if the peer has
    /// its share.
    pub(crate) fn wait_for_lock(self: &Arc<Self>) -> Option<LockWaiterGuard> {
        let guard = LockWaiterGuard { peer: Arc::clone(self) };
        let before = self.lock_waiters.fetch_add(1, Ordering::Relaxed);
        (before < limits::PEER_LOCK_WAITERS).then_some(guard)
    }
}

/// A request that waits for a lock.
pub(crate) struct LockWaiterGuard {
    peer: Arc<PeerRecord>,
}

impl Drop for LockWaiterGuard {
    fn drop(&mut self) {
        self.peer.lock_waiters.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes for the heads of all mutations that a client repeats after a start, and for their answers:
/// besides its window and its buffered writes, which go before others.
const REPEATED_HEADS: usize = 2 * limits::SESSION_MUTATIONS as usize * limits::REQUEST_BYTES;

/// The share of a session in the memory of the server.
pub(crate) struct SessionShare {
    /// The bytes that it may hold.
    pub(crate) bytes: usize,
    /// The bytes that it holds.
    pub(crate) account: Arc<Account>,
    /// The record that it has in common with the other sessions of its peer.
    pub(crate) peer: Arc<PeerRecord>,
}

impl SessionShare {
    /// Returns the share of a session that holds nothing.
    pub(crate) fn new(bytes: usize, peer: Arc<PeerRecord>) -> Self {
        Self { bytes, account: Account::new(bytes), peer }
    }

    /// Lets the session hold more than any other: no request is carried out before its client has
    /// repeated all mutations that an earlier epoch has answered, and sent its buffered writes.
    pub(crate) fn widen(&self) {
        self.account.set_limit(limits::SESSION_BYTES + limits::DIRTY_BYTES + REPEATED_HEADS);
    }

    /// Returns the most bytes that a client has under way. The client counts alike.
    pub(crate) const fn window(&self) -> usize {
        self.bytes / 2 + self.bytes / 16
    }

    /// Ends [`SessionShare::widen`].
    pub(crate) fn narrow(&self) {
        self.account.set_limit(self.bytes);
    }
}

/// Returns the bytes that a new session may hold. The other sessions of its peer have `taken`.
pub(crate) fn share(taken: usize) -> usize {
    let left = limits::PEER_BYTES.saturating_sub(taken);
    (left / 4).clamp(limits::SESSION_LEAST_BYTES, limits::SESSION_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_peer_that_never_answers_is_trusted_less_each_time_and_more_with_time() {
        let mut distrust = PeerDistrust::default();
        distrust.grow(at(1000), LIMIT);
        assert_eq!((distrust.times, distrust.until), (1, at(1000)));
        distrust.grow(at(1005), LIMIT);
        assert_eq!((distrust.times, distrust.until), (1, at(1000)), "the same recall");
        let mut now = at(1010);
        for expected in [10, 30, 70, 150, 310, 630, 630] {
            distrust.grow(now, LIMIT);
            assert_eq!(distrust.until - now, at(expected));
            now = distrust.until + LIMIT;
        }
        assert_eq!(distrust.left(distrust.until), 7);
        assert_eq!(distrust.left(distrust.until + at(600)), 6);
        assert_eq!(distrust.left(distrust.until + at(4200)), 0);
        distrust.grow(distrust.until + at(4200), LIMIT);
        assert_eq!(distrust.times, 1);
    }

    #[test]
    fn the_sessions_of_a_peer_share_its_bytes() {
        let mut taken = 0;
        let shares: Vec<usize> = (0..limits::PEER_SESSIONS)
            .map(|_| {
                let bytes = share(taken);
                taken += bytes;
                bytes
            })
            .collect();
        assert_eq!(shares[0], limits::SESSION_BYTES);
        assert!(shares.is_sorted_by(|one, next| one >= next));
        let least = limits::PEER_SESSIONS * limits::SESSION_LEAST_BYTES;
        assert!(taken <= limits::PEER_BYTES + least);
    }

    #[test]
    fn a_peer_has_a_share_of_the_requests_that_wait_for_locks() {
        let peer = Arc::new(PeerRecord::default());
        let mut guards: Vec<_> =
            (0..limits::PEER_LOCK_WAITERS).map(|_| peer.wait_for_lock().unwrap()).collect();
        assert!(peer.wait_for_lock().is_none());
        guards.pop();
        assert!(peer.wait_for_lock().is_some());
    }
}
