//! Measures one step on one directory.

use std::time::{Duration, Instant};

use crate::Contender;
use crate::process::{cpu_of_all, own_cpu};

/// The measurement of one step on one directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    /// Operations.
    pub(crate) count: u64,
    /// Time of all operations together.
    pub(crate) elapsed: Duration,
    /// CPU time of this process.
    pub(crate) own_cpu: Duration,
    /// CPU time of the file system's processes.
    pub(crate) daemon_cpu: Duration,
    /// Nanoseconds of each operation, at most 4.29 s (`u32::MAX`).
    pub(crate) latencies: Vec<u32>,
    /// Time of the longest operation.
    pub(crate) worst: Duration,
}

/// Collects a [`Sample`] from [`Stopwatch::start`] to [`Stopwatch::stop`].
pub(crate) struct Stopwatch {
    daemons: Vec<u32>,
    own_cpu: Duration,
    daemon_cpu: Duration,
    started: Instant,
    last: Instant,
    sample: Sample,
}

impl Stopwatch {
    pub(crate) fn start(contender: &Contender) -> Self {
        let daemon_cpu = cpu_of_all(&contender.daemons);
        let own = own_cpu();
        let started = Instant::now();
        Self {
            daemons: contender.daemons.clone(),
            own_cpu: own,
            daemon_cpu,
            started,
            last: started,
            sample: Sample::default(),
        }
    }

    /// Ends an operation that counts as `count`, and begins the next one.
    pub(crate) fn lap(&mut self, count: u64) {
        let now = Instant::now();
        let took = now - self.last;
        self.last = now;
        self.sample.count += count;
        self.sample.worst = self.sample.worst.max(took);
        self.sample.latencies.push(u32::try_from(took.as_nanos()).unwrap_or(u32::MAX));
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.last - self.started
    }

    pub(crate) fn stop(mut self) -> Sample {
        self.sample.elapsed = self.started.elapsed();
        self.sample.own_cpu = own_cpu().saturating_sub(self.own_cpu);
        self.sample.daemon_cpu = cpu_of_all(&self.daemons).saturating_sub(self.daemon_cpu);
        self.sample
    }
}
