//! Threads that work for a while, each in one mount, and what they have measured and found.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::latency::{self, Gaps, Kind, Times};

/// How long a thread may take to end after the time is over; one that takes longer is stuck.
const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes of a sync of the disk, and the time between two.
const SYNCED: usize = 4096;
const BETWEEN_SYNCS: Duration = Duration::from_millis(100);
/// Findings that are kept; the others are counted.
const KEPT: usize = 20;

/// What is wrong: the first findings, and the number of all.
#[derive(Debug, Default)]
pub(super) struct Wrong {
    pub(super) first: Vec<String>,
    pub(super) count: u64,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    wrong: Mutex<Wrong>,
}

impl Shared {
    fn wrong(&self, what: String) {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.count += 1;
        if wrong.first.len() < KEPT {
            wrong.first.push(what);
        }
    }
}

/// What one phase has measured and found.
pub(super) struct Outcome {
    pub(super) started: Instant,
    pub(super) seconds: f64,
    pub(super) times: Times,
    pub(super) gaps: Gaps,
    pub(super) wrong: Wrong,
}

/// Threads that work at the same time. They are not joined: one may be stuck in a mount until that
/// is unmounted by force.
pub(super) struct Phase {
    shared: Arc<Shared>,
    seed: u64,
    pause: Duration,
    threads: u64,
    started: Instant,
    ended: (Sender<Ended>, Receiver<Ended>),
}

enum Ended {
    Worker(Box<Times>),
    Spinner(Gaps),
}

impl Phase {
    pub(super) fn new(seed: u64, pause: Duration) -> Self {
        let started = Instant::now();
        Self { shared: Arc::default(), seed, pause, threads: 0, started, ended: channel() }
    }

    /// Starts a thread that works in the mount `point`. An error ends it, and is a finding.
    pub(super) fn start<T: Send + Sync + 'static>(
        &mut self,
        name: &str,
        point: &Path,
        with: &Arc<T>,
        work: impl FnOnce(&T, &mut Worker) -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        self.threads += 1;
        let place = point.file_name().unwrap_or_default().display();
        let name = format!("{name}-{}-{place}", self.threads);
        let with = Arc::clone(with);
        let ended = self.ended.0.clone();
        let mut worker = Worker {
            shared: Arc::clone(&self.shared),
            name: name.clone(),
            point: point.to_owned(),
            times: Times::default(),
            random: Random(self.seed.wrapping_mul(1 << 20).wrapping_add(self.threads)),
            pause: self.pause,
        };
        spawn(name, move || {
            if let Err(why) = work(&with, &mut worker) {
                worker.wrong(&why);
            }
            // The phase may have given up.
            let _gone = ended.send(Ended::Worker(Box::new(worker.times)));
        })
    }

    /// Lets the threads work for so long, and returns what they have measured.
    pub(super) fn finish(self, duration: Duration) -> Result<Outcome, String> {
        let shared = Arc::clone(&self.shared);
        let ended = self.ended.0.clone();
        spawn("spinner".to_owned(), move || {
            let gaps = latency::spin(|| shared.is_over.load(Ordering::Relaxed));
            // The phase may have given up.
            let _gone = ended.send(Ended::Spinner(gaps));
        })?;
        thread::sleep(duration);
        self.shared.is_over.store(true, Ordering::Relaxed);
        let seconds = self.started.elapsed().as_secs_f64();
        let mut times = Times::default();
        let mut gaps = Gaps::default();
        let deadline = Instant::now() + PATIENCE;
        for left in (0..=self.threads).rev() {
            match self.ended.1.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Ended::Worker(of_one)) => times.add(&of_one),
                Ok(Ended::Spinner(seen)) => gaps = seen,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let waited = PATIENCE.as_secs();
                    return Err(format!("{} threads are stuck for {waited} s", left + 1));
                }
            }
        }
        let mut wrong = self.shared.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Outcome {
            started: self.started,
            seconds,
            times,
            gaps,
            wrong: std::mem::take(&mut *wrong),
        })
    }
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let spawned = thread::Builder::new().name(name).spawn(work);
    spawned.map(|_| ()).map_err(|why| format!("no thread: {why}"))
}

/// A thread that works in one mount.
pub(super) struct Worker {
    shared: Arc<Shared>,
    name: String,
    pub(super) point: PathBuf,
    times: Times,
    pub(super) random: Random,
    pause: Duration,
}

impl Worker {
    /// Returns whether there is time left.
    pub(super) fn goes_on(&self) -> bool {
        !self.shared.is_over.load(Ordering::Relaxed)
    }

    /// Pauses as the command line wants it.
    pub(super) fn rest(&self) {
        if !self.pause.is_zero() {
            thread::sleep(self.pause);
        }
    }

    /// Does one operation and remembers how long it took.
    pub(super) fn timed<T>(&mut self, kind: Kind, operation: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = operation();
        self.times.note(kind, start, start.elapsed());
        done
    }

    /// Reports something that must not be.
    pub(super) fn wrong(&self, what: &str) {
        self.shared.wrong(format!("{}: {what}", self.name));
    }
}

/// Writes and syncs a file beside the volume, as a group commit does, until the time is over.
pub(super) fn sync(worker: &mut Worker) -> Result<(), String> {
    let path = worker.point.join("synced");
    let said = |why: std::io::Error| format!("{}: {why}", path.display());
    let mut file = File::create(&path).map_err(said)?;
    while worker.goes_on() {
        let synced = worker
            .timed(Kind::Disk, || file.write_all(&[0; SYNCED]).and_then(|()| file.sync_data()));
        synced.map_err(said)?;
        thread::sleep(BETWEEN_SYNCS);
    }
    Ok(())
}

/// Numbers that follow from a seed (SplitMix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    /// Returns a number below `limit`, which is not 0.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}
