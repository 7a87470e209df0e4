//! Interrupts that come before their request, beside a ring.
//!
//! The kernel sends an interrupt by the device, perhaps before the thread of the queue has called
//! the file system with its request. It takes none back for a request of a ring, unlike for one
//! that was read from the device. So a thread asks the file system again for a while.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The time between two questions about an interrupt, and how often there is one: 10 seconds.
const INTERVAL: Duration = Duration::from_millis(10);
const QUESTIONS: u32 = 1000;
/// Limit of the interrupts that are kept; each is that of a process that waits.
const KEPT: usize = 4096;

/// The interrupts that came too early.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    kept: Mutex<Kept>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Kept {
    /// The requests that are to be interrupted, and how often that was tried.
    requests: Vec<(u64, u32)>,
    has_ended: bool,
}

impl Retries {
    /// Keeps the interrupt of a request.
    pub(crate) fn add(&self, request: u64) {
        let mut kept = self.kept.lock();
        if kept.requests.len() >= KEPT {
            tracing::warn!(request, "an interrupt is dropped: too many came too early");
            return;
        }
        kept.requests.push((request, 0));
        self.changed.notify_all();
    }

    /// Delivers what is kept until [`Retries::end`]. `ask` is
    /// [`Filesystem::interrupt`](crate::Filesystem::interrupt).
    pub(crate) fn run(&self, ask: impl Fn(u64) -> bool) {
        let mut kept = self.kept.lock();
        while !kept.has_ended {
            if kept.requests.is_empty() {
                self.changed.wait(&mut kept);
                continue;
            }
            self.changed.wait_for(&mut kept, INTERVAL);
            let mut requests = std::mem::take(&mut kept.requests);
            drop(kept);
            requests.retain_mut(|(request, questions)| {
                *questions += 1;
                !ask(*request) && *questions < QUESTIONS
            });
            kept = self.kept.lock();
            kept.requests.append(&mut requests);
        }
    }

    /// Ends [`Retries::run`].
    pub(crate) fn end(&self) {
        self.kept.lock().has_ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn an_interrupt_is_delivered_once_its_request_is_known() {
        let (retries, asked) = (Retries::default(), AtomicU32::new(0));
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
}
