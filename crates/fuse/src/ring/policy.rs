//! Choice of the scheduling policy `SCHED_IDLE` for the thread of a queue.
//!
//! Linux wakes a process on an idle processor if there is one. The processor on which a reply is
//! sent is not idle, since the thread of the queue runs there. So each reply would move the caller
//! to another processor, and to wake an idle one takes longer than most requests do. But a
//! processor that runs nothing but threads with `SCHED_IDLE` counts as idle (`sched_idle_cpu` in
//! `kernel/sched/fair.c`). With that policy the caller stays where it is.
//!
//! The price is that all other threads on the processor go first. So the thread has the policy only
//! while others hardly use the processor. It measures how long it waits for its processor, and
//! another thread finds one that waits too long ([`Watch`](super::watch::Watch)).

use std::time::{Duration, Instant};

/// Time over which delays are averaged.
const WINDOW: Duration = Duration::from_millis(10);
/// Time without a round after which a new burst of requests begins.
pub(super) const QUIET: Duration = Duration::from_millis(50);
/// Average delay above which other threads use the processor.
const LONG_DELAY: Duration = Duration::from_micros(250);
/// Average delay below which no other thread uses the processor.
const SHORT_DELAY: Duration = Duration::from_micros(50);
/// Time for which the thread keeps the usual policy after others have used its processor: the least
/// and the longest.
const LEAST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(3200);
/// A pause that follows another one within this time is twice as long.
const RELAPSE: Duration = Duration::from_secs(1);

/// A scheduling policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    /// `SCHED_OTHER`, which all threads have at first.
    Other,
    /// `SCHED_IDLE`.
    Idle,
}

/// The policy of a thread, as its watcher and itself know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The thread has this policy.
    Has(Policy),
    /// The watcher gave it `SCHED_OTHER`, because it had waited too long.
    Rescued,
}

/// The delays of a thread: how long it has waited for its processor (`/proc/TID/schedstat`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Delays {
    /// Sum of all waits.
    pub(super) total: Duration,
    /// Count of waits.
    pub(super) count: u64,
}

/// Chooses the policy of one thread.
#[derive(Debug, Default)]
pub(super) struct Choice {
    /// Time of the last round.
    last: Option<Instant>,
    /// The beginning of the window, and the delays before it.
    window: Option<(Instant, Delays)>,
    /// The end of the last pause, and its length.
    pause: Option<(Instant, Duration)>,
}

impl Choice {
    /// Returns the policy that the thread must take now; `None` if it keeps its own. Called in each
    /// round, after the wait.
    pub(super) fn round(
        &mut self,
        now: Instant,
        standing: Standing,
        delays: impl FnOnce() -> Delays,
    ) -> Option<Policy> {
        if standing == Standing::Rescued {
            self.begin_pause(now);
        }
        let is_burst = self.last.is_none_or(|last| now.duration_since(last) >= QUIET);
        self.last = Some(now);
        let average = match self.window {
            Some((since, _)) if !is_burst && now.duration_since(since) < WINDOW => return None,
            Some((_, before)) if !is_burst => {
                let delays = delays();
                self.window = Some((now, delays));
                Some(average(before, delays))
            }
            // Delays from before this burst say nothing about it.
            _ => {
                self.window = Some((now, delays()));
                None
            }
        };
        match standing {
            Standing::Has(Policy::Idle) if average.is_some_and(|average| average > LONG_DELAY) => {
                self.begin_pause(now);
                Some(Policy::Other)
            }
            Standing::Has(Policy::Other) if !self.is_paused(now) => {
                average.is_none_or(|average| average < SHORT_DELAY).then_some(Policy::Idle)
            }
            _ => None,
        }
    }

    fn is_paused(&self, now: Instant) -> bool {
        self.pause.is_some_and(|(end, _)| now < end)
    }

    fn begin_pause(&mut self, now: Instant) {
        let pause = match self.pause {
            Some((end, last)) if now < end + RELAPSE => (last * 2).min(LONGEST_PAUSE),
            _ => LEAST_PAUSE,
        };
        self.pause = Some((now + pause, pause));
    }
}

/// Returns the average of the delays that `after` has beyond `before`.
fn average(before: Delays, after: Delays) -> Duration {
    let count = u32::try_from(after.count.saturating_sub(before.count)).unwrap_or(u32::MAX);
    after.total.saturating_sub(before.total) / count.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Standing = Standing::Has(Policy::Idle);
    const OTHER: Standing = Standing::Has(Policy::Other);

    /// A thread that has a round each millisecond, and waits so long before each.
    struct Thread {
        choice: Choice,
        now: Instant,
        delays: Delays,
        standing: Standing,
    }

    impl Thread {
        fn new() -> Self {
            let now = Instant::now();
            let delays = Delays::default();
            Self { choice: Choice::default(), now, delays, standing: OTHER }
        }

        /// Returns the milliseconds until it has another policy, at most 10,000.
        fn run(&mut self, delay_micros: u64) -> u64 {
            for millis in 0..10_000 {
                self.now += Duration::from_millis(1);
                self.delays.count += 1;
                self.delays.total += Duration::from_micros(delay_micros);
                let delays = self.delays;
                if let Some(policy) = self.choice.round(self.now, self.standing, || delays) {
                    self.standing = Standing::Has(policy);
                    return millis;
                }
                if self.standing == Standing::Rescued {
                    self.standing = OTHER;
                }
            }
            10_000
        }
    }

    #[test]
    fn a_thread_alone_has_the_policy_from_its_first_request_on() {
        let mut thread = Thread::new();
        assert_eq!((thread.run(5), thread.standing), (0, IDLE));
        assert_eq!(thread.run(240), 10_000);
    }

    #[test]
    fn a_thread_that_waits_gives_the_policy_up_until_it_waits_no_more() {
        let mut thread = Thread::new();
        thread.run(5);
        assert!(thread.run(300) <= 10, "after a window");
        assert_eq!(thread.standing, OTHER);
        assert_eq!(thread.run(60), 10_000, "neither long nor short");
        assert!(thread.run(5) <= 20);
        assert_eq!(thread.standing, IDLE);
    }

    #[test]
    fn pauses_grow_while_others_stay() {
        let mut thread = Thread::new();
        thread.run(5);
        let pauses = [(); 7].map(|()| {
            thread.standing = Standing::Rescued;
            thread.run(5)
        });
        for (pause, least) in pauses.into_iter().zip([100, 200, 400, 800, 1600, 3200, 3200]) {
            assert!((least - 1..=least + 10).contains(&pause), "{pauses:?}");
        }
    }

    #[test]
    fn a_pause_long_after_another_one_is_short() {
        let mut thread = Thread::new();
        for _ in 0..3 {
            thread.run(5);
            thread.now += RELAPSE * 2;
            thread.standing = Standing::Rescued;
        }
        assert!(thread.run(5) <= 110);
    }

    #[test]
    fn a_burst_begins_with_the_policy_whatever_was_before() {
        let mut thread = Thread::new();
        thread.run(5);
        thread.standing = OTHER;
        thread.delays.total += Duration::from_secs(1);
        thread.now += QUIET;
        assert_eq!((thread.run(5), thread.standing), (0, IDLE));
    }
}
