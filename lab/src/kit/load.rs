//! Loads: threads that repeat operations until the time is over, each in one folder, with the
//! latencies, the failures and the findings of all of them.
//!
//! Threads are not joined: one may be stuck in a mount until that is unmounted by force. A load
//! whose threads do not end is an error.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pelago_random::Random;

use super::clock::{self, Gaps};
use super::latency::{Kind, Latencies};

/// How long a thread may take to end after the time is over; one that takes longer is stuck.
const PATIENCE: Duration = Duration::from_secs(120);
/// Findings whose text is kept; the others are counted.
const KEPT: usize = 20;

/// Findings: results that threads should not have seen.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The texts of the first ones.
    pub(crate) first: Vec<String>,
    /// The number of all.
    pub(crate) count: u64,
}

/// Failed operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    /// All of them.
    pub(crate) errors: u64,
    /// Those with `EAGAIN`.
    pub(crate) again: u64,
}

/// The results of a load.
pub(crate) struct Outcome {
    pub(crate) started: Instant,
    pub(crate) seconds: f64,
    pub(crate) latencies: Latencies,
    /// Zeros, unless [`Load::with_clock`] was called.
    pub(crate) gaps: Gaps,
    pub(crate) failures: Failures,
    pub(crate) findings: Findings,
}

/// Threads that work at the same time.
pub(crate) struct Load {
    shared: Arc<Shared>,
    seed: u64,
    pause: Duration,
    stack_bytes: Option<usize>,
    has_clock: bool,
    threads: u64,
    started: Instant,
    ended_sender: Sender<Ended>,
    ended: Receiver<Ended>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    errors: AtomicU64,
    again: AtomicU64,
    findings: Mutex<Findings>,
}

/// The last message of a thread.
enum Ended {
    Worker(Box<Latencies>),
    Clock(Gaps),
}

impl Load {
    /// Returns a load without threads, whose workers pause for this time between two steps.
    pub(crate) fn new(seed: u64, pause: Duration) -> Self {
        let (ended_sender, ended) = channel();
        Self {
            shared: Arc::default(),
            seed,
            pause,
            stack_bytes: None,
            has_clock: false,
            threads: 0,
            started: Instant::now(),
            ended_sender,
            ended,
        }
    }

    /// Adds a thread that only reads the clock, for [`Outcome::gaps`].
    pub(crate) fn with_clock(mut self) -> Self {
        self.has_clock = true;
        self
    }

    /// Gives the threads stacks of this size, so that there may be thousands.
    pub(crate) fn with_stacks(mut self, bytes: usize) -> Self {
        self.stack_bytes = Some(bytes);
        self
    }

    /// Starts a thread that works in `folder`. An error of it ends the thread, and is a finding.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub(crate) fn start(
        &mut self,
        name: &str,
        folder: &Path,
        work: impl FnOnce(&mut Worker) -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        let number = self.threads + 1;
        let place = folder.file_name().unwrap_or_default().display();
        let name = format!("{name}-{number}-{place}");
        let ended = self.ended_sender.clone();
        let mut worker = Worker {
            shared: Arc::clone(&self.shared),
            name: name.clone(),
            folder: folder.to_owned(),
            latencies: Latencies::default(),
            random: Random::new(self.seed.wrapping_mul(1 << 20).wrapping_add(number)),
            pause: self.pause,
        };
        self.spawn(name, move || {
            if let Err(why) = work(&mut worker) {
                worker.finding(&why);
            }
            // The load may have given up.
            let _gone = ended.send(Ended::Worker(Box::new(worker.latencies)));
        })?;
        self.threads = number;
        Ok(())
    }

    /// Lets the threads work for so long, and returns the results.
    ///
    /// # Errors
    /// If threads do not end.
    pub(crate) fn finish(&mut self, duration: Duration) -> Result<Outcome, String> {
        if self.has_clock {
            let shared = Arc::clone(&self.shared);
            let ended = self.ended_sender.clone();
            self.spawn("clock".to_owned(), move || {
                let gaps = clock::spin(|| shared.is_over.load(Ordering::Relaxed));
                // The load may have given up.
                let _gone = ended.send(Ended::Clock(gaps));
            })?;
        }
        thread::sleep(duration);
        self.shared.is_over.store(true, Ordering::Relaxed);
        let seconds = self.started.elapsed().as_secs_f64();
        let mut latencies = Latencies::default();
        let mut gaps = Gaps::default();
        let deadline = Instant::now() + PATIENCE;
        for left in (1..=self.threads + u64::from(self.has_clock)).rev() {
            match self.ended.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Ended::Worker(of_one)) => latencies.add(&of_one),
                Ok(Ended::Clock(seen)) => gaps = seen,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let waited = PATIENCE.as_secs();
                    return Err(format!("{left} threads are stuck for {waited} s"));
                }
            }
        }
        let failures = self.failures();
        let mut findings = self.shared.findings.lock().unwrap_or_else(PoisonError::into_inner);
        let findings = std::mem::take(&mut *findings);
        Ok(Outcome { started: self.started, seconds, latencies, gaps, failures, findings })
    }

    /// Returns the value of an operation that prepares the load; counts a failure.
    pub(crate) fn value_of<T, E: Into<io::Error>>(&self, done: Result<T, E>) -> Option<T> {
        self.shared.value_of(done)
    }

    /// Returns the failures up to now.
    pub(crate) fn failures(&self) -> Failures {
        Failures {
            errors: self.shared.errors.load(Ordering::Relaxed),
            again: self.shared.again.load(Ordering::Relaxed),
        }
    }

    fn spawn(&self, name: String, work: impl FnOnce() + Send + 'static) -> Result<(), String> {
        let mut thread = thread::Builder::new().name(name);
        if let Some(bytes) = self.stack_bytes {
            thread = thread.stack_size(bytes);
        }
        thread.spawn(work).map(|_| ()).map_err(|why| format!("no thread: {why}"))
    }
}

impl Shared {
    fn value_of<T, E: Into<io::Error>>(&self, done: Result<T, E>) -> Option<T> {
        match done {
            Ok(value) => Some(value),
            Err(error) => {
                self.errors.fetch_add(1, Ordering::Relaxed);
                if error.into().kind() == io::ErrorKind::WouldBlock {
                    self.again.fetch_add(1, Ordering::Relaxed);
                }
                None
            }
        }
    }

    fn finding(&self, what: String) {
        let mut findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        findings.count += 1;
        if findings.first.len() < KEPT {
            findings.first.push(what);
        }
    }
}

/// A thread of a load.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    name: String,
    /// The folder in which the thread works.
    pub(crate) folder: PathBuf,
    latencies: Latencies,
    pub(crate) random: Random,
    pause: Duration,
}

impl Worker {
    /// Returns whether there is time left.
    pub(crate) fn goes_on(&self) -> bool {
        !self.shared.is_over.load(Ordering::Relaxed)
    }

    /// Pauses between two steps.
    pub(crate) fn rest(&self) {
        if !self.pause.is_zero() {
            thread::sleep(self.pause);
        }
    }

    /// Carries out one operation, and records its latency.
    pub(crate) fn timed<T>(&mut self, kind: Kind, operation: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = operation();
        self.latencies.record(kind, start, start.elapsed());
        done
    }

    /// Returns the value of an operation; counts a failure.
    pub(crate) fn value_of<T, E: Into<io::Error>>(&self, done: Result<T, E>) -> Option<T> {
        self.shared.value_of(done)
    }

    /// Reports something that must not be.
    pub(crate) fn finding(&self, what: &str) {
        self.shared.finding(format!("{}: {what}", self.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_failures_and_findings_of_all_threads_are_counted() {
        let mut load = Load::new(1, Duration::from_millis(1)).with_clock();
        for _ in 0..3 {
            let work = |worker: &mut Worker| {
                while worker.goes_on() {
                    worker.timed("nothing", || ());
                    worker.rest();
                }
                worker.value_of(Err::<(), _>(io::Error::from(io::ErrorKind::WouldBlock)));
                Err("seen".to_owned())
            };
            load.start("worker", Path::new("/a/folder"), work).unwrap();
        }
        load.value_of(Err::<(), _>(io::Error::from(io::ErrorKind::NotFound)));
        let outcome = load.finish(Duration::from_millis(20)).unwrap();
        assert!(outcome.latencies.of("nothing").count >= 3 && outcome.gaps.rate > 0.0);
        assert_eq!(outcome.failures, Failures { errors: 4, again: 3 });
        assert_eq!(outcome.findings.count, 3);
        assert!(outcome.findings.first.contains(&"worker-2-folder: seen".to_owned()));
    }
}
