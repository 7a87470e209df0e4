//! The recalls that a client has not answered, and the time for which it is granted no leases
//! because of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::boot_time;

/// The recalls of one session that are not answered. Times are of [`boot_time`].
#[derive(Debug, Default)]
pub(super) struct Recalls {
    /// The body of each recall by its number, and the time since when it waits for its answer.
    unanswered: BTreeMap<u64, (Arc<[u8]>, Duration)>,
    distrust: Distrust,
}

impl Recalls {
    /// Notes a recall that is sent now.
    pub(super) fn sent(&mut self, number: u64, body: Arc<[u8]>) {
        self.unanswered.insert(number, (body, boot_time()));
    }

    /// Records an answer. Returns whether a recall has waited for it.
    pub(super) fn answered(&mut self, number: u64) -> bool {
        let has_waited = self.unanswered.remove(&number).is_some();
        if has_waited {
            self.distrust = Distrust::default();
        }
        has_waited
    }

    /// Returns the recalls without an answer, in the order of their numbers.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = (u64, &Arc<[u8]>)> {
        self.unanswered.iter().map(|(number, (body, _))| (*number, body))
    }

    /// Returns whether a recall has no answer, or the client is distrusted because of one.
    pub(super) fn is_overdue(&self) -> bool {
        !self.unanswered.is_empty() || self.distrust.lasts()
    }

    /// Returns whether a recall waits for longer than `limit`.
    pub(super) fn has_older(&self, now: Duration, limit: Duration) -> bool {
        self.unanswered.values().any(|(_, since)| now.saturating_sub(*since) > limit)
    }

    /// Forgets the recalls that wait for longer than `limit`, and distrusts the client for a while.
    pub(super) fn forget_older(&mut self, now: Duration, limit: Duration) {
        self.unanswered.retain(|_, (_, since)| now.saturating_sub(*since) <= limit);
        self.distrust.grow(now, limit);
    }

    /// Gives the client the whole time for each recall again.
    pub(super) fn restart(&mut self, now: Duration) {
        for (_, since) in self.unanswered.values_mut() {
            *since = now;
        }
    }
}

/// The distrust of a client that has not answered a recall: it gets no leases for a while, twice as
/// long each time.
#[derive(Debug, Default)]
struct Distrust {
    times: u32,
    /// By [`boot_time`].
    until: Duration,
}

impl Distrust {
    /// The number of times after which the time is not doubled any more.
    const MOST_TIMES: u32 = 6;

    fn grow(&mut self, now: Duration, limit: Duration) {
        self.times = (self.times + 1).min(Self::MOST_TIMES);
        self.until = now + limit * (1 << self.times);
    }

    fn lasts(&self) -> bool {
        self.times > 0 && boot_time() < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    /// A client cannot answer a recall while the server takes no connections.
    #[test]
    fn a_client_can_get_the_whole_time_for_a_recall_again() {
        let mut recalls = Recalls::default();
        recalls.sent(1, Arc::from(*b"recall"));
        let late = boot_time() + LIMIT + Duration::from_secs(1);
        assert!(recalls.has_older(late, LIMIT));
        recalls.restart(late);
        assert!(!recalls.has_older(late + LIMIT, LIMIT) && recalls.is_overdue());
        assert!(recalls.has_older(late + LIMIT + Duration::from_millis(1), LIMIT));
    }

    #[test]
    fn a_client_that_has_not_answered_is_distrusted_until_it_answers() {
        let mut recalls = Recalls::default();
        recalls.sent(1, Arc::from(*b"one"));
        recalls.forget_older(boot_time() + LIMIT * 2, LIMIT);
        assert_eq!(recalls.unanswered().count(), 0);
        assert!(recalls.is_overdue() && !recalls.answered(1));
        recalls.sent(2, Arc::from(*b"other"));
        assert!(recalls.answered(2) && !recalls.is_overdue());
    }
}
