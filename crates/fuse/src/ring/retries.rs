//! Interrupts beside a ring: those that come before their request, and those that are lost.
//!
//! Linux sends an interrupt by the device, perhaps before the thread of the queue has called the
//! file system with its request. An interrupt of a request of a ring cannot be sent back
//! (`EAGAIN`), unlike that of a request that was read from the device. So a thread delivers it
//! again and again for a while.
//!
//! If a program gets a signal in the instant in which the kernel hands its request to a slot, Linux
//! sends no interrupt at all (`fs/fuse/dev_uring.c` does not look again once the request is sent).
//! A program that waits for a lock could not be killed then. So the same thread looks at the
//! signals of programs that wait for locks, in `/proc`.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::slot::Slot;

/// Time between two deliveries of an interrupt, and the time for which it is delivered.
const INTERVAL: Duration = Duration::from_millis(10);
const KEPT_FOR: Duration = Duration::from_secs(10);
/// Least and longest time between two looks at a program that waits.
const LEAST_LOOK: Duration = Duration::from_millis(20);
const LONGEST_LOOK: Duration = Duration::from_secs(1);
/// Limit of the interrupts that are held; each is of a process that waits.
const KEPT: usize = 4096;

/// The interrupts that came too early.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    kept: Mutex<Kept>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Kept {
    /// The requests to interrupt, each with the time at which that is given up.
    requests: Vec<(u64, Instant)>,
    waits: Vec<Wait>,
    has_ended: bool,
}

/// A program that waits for the reply to a request in a slot.
#[derive(Debug)]
struct Wait {
    slot: Arc<Slot>,
    request: u64,
    thread: u32,
    /// Time of the next look at its signals.
    next: Instant,
    /// Time from the last look to the next.
    interval: Duration,
}

impl Retries {
    /// Looks at the signals of a thread from now on, until the request in a slot is answered.
    pub(super) fn watch(&self, slot: Arc<Slot>, request: u64, thread: u32) {
        let next = Instant::now() + LEAST_LOOK;
        let interval = LEAST_LOOK;
        self.kept.lock().waits.push(Wait { slot, request, thread, next, interval });
        self.changed.notify_all();
    }

    /// Adds the interrupt of a request.
    pub(crate) fn add(&self, request: u64) {
        let mut kept = self.kept.lock();
        if kept.requests.len() >= KEPT {
            tracing::warn!(request, "an interrupt is dropped: too many came too early");
            return;
        }
        kept.requests.push((request, Instant::now() + KEPT_FOR));
        self.changed.notify_all();
    }

    /// Delivers the interrupts until [`Retries::end`]. `ask` is
    /// [`Filesystem::interrupt`](crate::Filesystem::interrupt).
    pub(crate) fn run(&self, ask: impl Fn(u64) -> bool) {
        let mut kept = self.kept.lock();
        while !kept.has_ended {
            match kept.next() {
                Some(next) => drop(self.changed.wait_until(&mut kept, next)),
                None => self.changed.wait(&mut kept),
            }
            let mut requests = std::mem::take(&mut kept.requests);
            let mut waits = std::mem::take(&mut kept.waits);
            drop(kept);
            let now = Instant::now();
            // Attempts are not counted: each new interrupt and each new wait causes one for all.
            requests.retain(|(request, end)| !ask(*request) && now < *end);
            waits.retain_mut(|wait| wait.goes_on(now, &ask));
            kept = self.kept.lock();
            kept.requests.append(&mut requests);
            kept.waits.append(&mut waits);
        }
    }

    /// Ends [`Retries::run`].
    pub(crate) fn end(&self) {
        self.kept.lock().has_ended = true;
        self.changed.notify_all();
    }
}

impl Kept {
    /// Returns the time of the next delivery or look.
    fn next(&self) -> Option<Instant> {
        let retry = (!self.requests.is_empty()).then(|| Instant::now() + INTERVAL);
        retry.into_iter().chain(self.waits.iter().map(|wait| wait.next)).min()
    }
}

impl Wait {
    /// Interrupts the request if its program has a signal. Returns whether it still waits.
    fn goes_on(&mut self, now: Instant, ask: impl Fn(u64) -> bool) -> bool {
        if !self.slot.has(self.request) {
            return false;
        }
        if now < self.next {
            return true;
        }
        self.interval = (self.interval * 2).min(LONGEST_LOOK);
        self.next = now + self.interval;
        !has_signal(self.thread) || !ask(self.request)
    }
}

/// Returns whether a thread has a signal that it does not block; `false` for one that is gone, or
/// that this process cannot see.
fn has_signal(thread: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    is_signalled(&status)
}

/// Returns whether the status of a thread (`proc(5)`) has a signal that is not blocked.
fn is_signalled(status: &str) -> bool {
    let signals = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        u64::from_str_radix(line.trim(), 16).unwrap_or(0)
    };
    (signals("SigPnd:") | signals("ShdPnd:")) & !signals("SigBlk:") != 0
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn signals_that_are_not_blocked_are_seen() {
        let status = |own, shared, blocked| {
            format!(
                "Name:\tx\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\n"
            )
        };
        assert!(is_signalled(&status(0x100, 0, 0)));
        assert!(is_signalled(&status(0, 0x4000, 0x100)));
        assert!(!is_signalled(&status(0x100, 0, 0x100)));
        assert!(!is_signalled(&status(0, 0, 0)));
        assert!(!is_signalled(""));
    }

    #[test]
    fn an_interrupt_is_delivered_once_its_request_is_known() {
        let retries = Retries::default();
        let asked = AtomicU32::new(0);
        retries.add(7);
        thread::scope(|scope| {
            scope.spawn(|| {
                retries.run(|request| {
                    assert_eq!(request, 7);
                    asked.fetch_add(1, Ordering::Relaxed) == 2
                });
            });
            while !retries.kept.lock().requests.is_empty() || asked.load(Ordering::Relaxed) < 3 {
                thread::yield_now();
            }
            retries.end();
        });
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn an_interrupt_that_is_unknown_outlasts_many_that_are_known() {
        let retries = Retries::default();
        let asked = AtomicU32::new(0);
        let known = AtomicU32::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                retries.run(|request| {
                    let count = if request == 7 { &asked } else { &known };
                    count.fetch_add(1, Ordering::Relaxed);
                    request != 7
                });
            });
            let begin = Instant::now();
            let until = |count: &AtomicU32, least| {
                while count.load(Ordering::Relaxed) < least && begin.elapsed() < KEPT_FOR {
                    thread::yield_now();
                }
            };
            retries.add(7);
            for other in 1..=2000 {
                retries.add(1000 + u64::from(other));
                until(&known, other);
            }
            let before = asked.load(Ordering::Relaxed);
            until(&asked, before + 2);
            retries.end();
            assert!(asked.load(Ordering::Relaxed) >= before + 2);
        });
    }
}
