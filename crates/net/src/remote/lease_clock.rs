//! The clock of a session's leases.
//!
//! Only an answer lengthens the leases, counted from the time at which its request was sent: the
//! server has heard the client then or later, and counts from that. The client counts a little less
//! than the time of a lease, the server a little more, because clocks run differently.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_wire::{LeaseHolder, Recalled, Then};

use crate::clock::boot_time;

/// Pings that are remembered until they are answered.
const PINGS: usize = 8;

/// The end of the leases, and their holder.
#[derive(Default)]
pub(super) struct LeaseClock {
    /// When the leases end, by [`boot_time`], in nanoseconds; 0 if they have ended.
    until: AtomicU64,
    /// Locked until the holder has dropped everything under leases that have ended: no lease begins
    /// before.
    ending: Mutex<()>,
    holder: OnceLock<Weak<dyn LeaseHolder>>,
}

/// Pings that are not answered.
#[derive(Default)]
pub(super) struct Pings {
    last: u64,
    last_sent: Duration,
    /// The number of each ping, and when it was sent.
    sent: VecDeque<(u64, Duration)>,
}

impl LeaseClock {
    pub(super) fn set_holder(&self, holder: Weak<dyn LeaseHolder>) {
        let _is_first = self.holder.set(holder);
    }

    /// Returns the time until the leases end.
    pub(super) fn left(&self) -> Duration {
        let until = Duration::from_nanos(self.until.load(Ordering::Acquire));
        until.saturating_sub(boot_time())
    }

    /// Lengthens the leases, because a request is answered that was sent at `asked`.
    pub(super) fn renew(&self, asked: Duration, lease: Duration) {
        self.look();
        let until = asked + lease * 63 / 64;
        if until <= boot_time() {
            return;
        }
        let until = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        let lengthen = |present: u64| (present > 0).then(|| present.max(until));
        if self.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, lengthen).is_err() {
            // The old leases have ended, and new ones begin.
            let _ending = self.ending.lock();
            self.until.fetch_max(until, Ordering::AcqRel);
        }
    }

    /// Ends the leases if their time is over.
    pub(super) fn look(&self) {
        let until = self.until.load(Ordering::Acquire);
        if until > 0 && Duration::from_nanos(until) <= boot_time() {
            self.lose();
        }
    }

    /// Ends the leases. Returns when the holder uses nothing any more that was cached under them.
    pub(super) fn lose(&self) {
        let _ending = self.ending.lock();
        if self.until.swap(0, Ordering::AcqRel) > 0
            && let Some(holder) = self.holder()
        {
            holder.lost();
        }
    }

    /// Ends the leases, because the server refuses the session for good.
    pub(super) fn refuse(&self) {
        let _ending = self.ending.lock();
        self.until.store(0, Ordering::Release);
        if let Some(holder) = self.holder() {
            holder.refused();
        }
    }

    /// Recalls leases. Calls `then` once nothing that is named is cached any more.
    pub(super) fn recalled(&self, recalled: Recalled, then: Then) {
        match (recalled, self.holder()) {
            (Recalled::Things(touched), Some(holder)) => holder.recalled(touched.into(), then),
            (Recalled::Everything, Some(holder)) => {
                let _ending = self.ending.lock();
                self.until.store(0, Ordering::Release);
                holder.everything_recalled(then);
            }
            (_, None) => then(),
        }
    }

    /// Has the holder send the writes that were buffered under leases which have ended. Calls
    /// `then` once all are answered.
    pub(super) fn flush(&self, then: Then) {
        match self.holder() {
            Some(holder) => holder.flush(then),
            None => then(),
        }
    }

    fn holder(&self) -> Option<Arc<dyn LeaseHolder>> {
        self.holder.get()?.upgrade()
    }
}

impl Pings {
    /// Returns when the last ping was sent; 0 before the first.
    pub(super) const fn last_sent(&self) -> Duration {
        self.last_sent
    }

    /// Records that a ping is sent. Returns its number.
    pub(super) fn next(&mut self, now: Duration) -> u64 {
        self.last += 1;
        self.last_sent = now;
        if self.sent.len() == PINGS {
            self.sent.pop_front();
        }
        self.sent.push_back((self.last, now));
        self.last
    }

    /// Returns when the ping of this number was sent, which a pong answers; `None` if there is
    /// none.
    pub(super) fn answered(&mut self, number: u64) -> Option<Duration> {
        let found = self.sent.iter().find(|(sent, _)| *sent == number).map(|(_, at)| *at);
        self.sent.retain(|(sent, _)| *sent > number);
        found
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;

    use pelago_wire::Touched;

    use super::*;

    /// A holder that counts the losses of leases.
    #[derive(Default)]
    struct Holder(Mutex<u32>);

    impl LeaseHolder for Holder {
        fn recalled(&self, _touched: Arc<[Touched]>, then: Then) {
            then();
        }

        fn lost(&self) {
            *self.0.lock() += 1;
        }

        fn flush(&self, then: Then) {
            then();
        }
    }

    const TERM: Duration = Duration::from_secs(64);

    #[test]
    fn leases_count_from_the_time_at_which_the_request_was_sent() {
        let clock = LeaseClock::default();
        assert_eq!(clock.left(), Duration::ZERO);
        let now = boot_time();
        clock.renew(now.saturating_sub(Duration::from_secs(60)), TERM);
        assert!(clock.left() <= Duration::from_secs(3));
        clock.renew(now, TERM);
        clock.renew(now.saturating_sub(Duration::from_secs(30)), TERM);
        let left = clock.left();
        assert!(left <= Duration::from_secs(63) && left > Duration::from_secs(40), "{left:?}");
    }

    #[test]
    fn leases_that_ended_are_lost_once_and_before_an_answer_lengthens_them() {
        let clock = LeaseClock::default();
        let holder = Arc::new(Holder::default());
        clock.set_holder(Arc::downgrade(&holder) as _);
        clock.look();
        assert_eq!(*holder.0.lock(), 0, "there was none");
        clock.until.store(1, Ordering::Relaxed);
        clock.renew(boot_time(), TERM);
        assert_eq!(*holder.0.lock(), 1);
        assert!(clock.left() > Duration::ZERO);
        clock.lose();
        clock.lose();
        assert_eq!((*holder.0.lock(), clock.left()), (2, Duration::ZERO));
    }

    /// A holder that takes its time to drop what it has cached.
    struct Slow(Sender<()>, Mutex<Receiver<()>>);

    impl LeaseHolder for Slow {
        fn recalled(&self, _touched: Arc<[Touched]>, then: Then) {
            then();
        }

        fn lost(&self) {
            self.0.send(()).unwrap();
            self.1.lock().recv().unwrap();
        }

        fn flush(&self, then: Then) {
            then();
        }
    }

    #[test]
    fn leases_begin_anew_once_what_had_ended_is_dropped() {
        let clock = LeaseClock::default();
        let (begun, begins) = channel();
        let (end, ends) = channel();
        let holder = Arc::new(Slow(begun, Mutex::new(ends)));
        clock.set_holder(Arc::downgrade(&holder) as _);
        clock.renew(boot_time(), TERM);
        thread::scope(|scope| {
            let losing = scope.spawn(|| clock.lose());
            begins.recv().unwrap();
            let renewing = scope.spawn(|| clock.renew(boot_time(), TERM));
            // Nothing shows that `renew` waits: if it did not, it would be over by then.
            thread::sleep(Duration::from_millis(20));
            let meanwhile = (clock.left(), renewing.is_finished());
            end.send(()).unwrap();
            losing.join().unwrap();
            renewing.join().unwrap();
            assert_eq!(meanwhile, (Duration::ZERO, false));
        });
        assert!(clock.left() > Duration::ZERO);
    }

    #[test]
    fn a_pong_says_when_its_ping_was_sent() {
        let mut pings = Pings::default();
        let at = Duration::from_secs;
        let numbers: Vec<u64> = (1..=10).map(|second| pings.next(at(second))).collect();
        assert_eq!(pings.answered(0), None);
        assert_eq!(pings.answered(numbers[0]), None, "too long ago");
        assert_eq!(pings.answered(numbers[5]), Some(at(6)));
        assert_eq!(pings.answered(numbers[4]), None, "a later one was answered");
        assert_eq!(pings.answered(numbers[9]), Some(at(10)));
    }
}
