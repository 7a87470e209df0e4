//! Times one step on one directory.

use std::time::{Duration, Instant};

use crate::Contender;
use crate::process;
use crate::process::cpu_of;

/// What one step on one directory took.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    /// Operations done.
    pub(super) count: u64,
    /// All of them together.
    pub(super) elapsed: Duration,
    /// CPU time of this process.
    pub(super) own_cpu: Duration,
    /// CPU time of the file system's process.
    pub(super) daemon_cpu: Duration,
    /// Nanoseconds of each operation; those above 4 s are 4 s.
    pub(super) latencies: Vec<u32>,
    /// The longest operation.
    pub(super) worst: Duration,
}

/// Measures from its start to its end.
pub(super) struct Stopwatch {
    daemon: Option<u32>,
    own_cpu: Duration,
    daemon_cpu: Duration,
    started: Instant,
    last: Instant,
    sample: Sample,
}

impl Stopwatch {
    pub(super) fn start(contender: &Contender) -> Self {
        let daemon_cpu = contender.daemon.and_then(cpu_of).unwrap_or_default();
        let own_cpu = process::own_cpu();
        let started = Instant::now();
        Self {
            daemon: contender.daemon,
            own_cpu,
            daemon_cpu,
            started,
            last: started,
            sample: Sample::default(),
        }
    }

    /// An operation is done, which did the work of `count`.
    pub(super) fn lap(&mut self, count: u64) {
        let now = Instant::now();
        let took = now - self.last;
        self.last = now;
        self.sample.count += count;
        self.sample.worst = self.sample.worst.max(took);
        self.sample.latencies.push(u32::try_from(took.as_nanos()).unwrap_or(u32::MAX));
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.last - self.started
    }

    pub(super) fn stop(mut self) -> Sample {
        self.sample.elapsed = self.started.elapsed();
        self.sample.own_cpu = process::own_cpu().saturating_sub(self.own_cpu);
        let daemon_cpu = self.daemon.and_then(cpu_of).unwrap_or_default();
        self.sample.daemon_cpu = daemon_cpu.saturating_sub(self.daemon_cpu);
        self.sample
    }
}
