//! The cost of creating files: the time, and the CPU time of the processes that a caller waits for.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::process::{own_cpu, threads_cpu};
use crate::{BenchError, Contender};

/// Bytes of each file.
const BYTES: usize = 100;

/// The beginning of the names of the daemon's threads that answer the kernel: a caller waits for
/// them.
const ANSWERING: &str = "fuse";

/// The cost of creating some files.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CreateCost {
    /// Files per second.
    pub rate: f64,
    /// CPU microseconds per file: of this process, and of the threads of the daemon that answer it.
    pub caller_us: f64,
    /// CPU microseconds per file of all other threads of the daemon.
    pub behind_us: f64,
}

/// Creates `count` files of 100 bytes in a new folder `name` of a directory, which is on a FUSE
/// mount, in one thread.
///
/// # Errors
/// [`BenchError::Fill`] with the first call that fails.
pub fn create_cost(dir: &Path, name: &str, count: u64) -> Result<CreateCost, BenchError> {
    let daemons = Contender::new(dir).daemons;
    let folder = dir.join(name);
    let failed = |source: io::Error| BenchError::Fill { path: folder.clone(), source };
    fs::create_dir(&folder).map_err(failed)?;
    let cpu = |answers: bool| -> Duration {
        let threads = daemons.iter().flat_map(|pid| threads_cpu(*pid));
        let threads = threads.filter(|(name, _)| name.starts_with(ANSWERING) == answers);
        threads.map(|(_, time)| time).sum()
    };
    let own = own_cpu();
    let [answering, others] = [true, false].map(cpu);
    let began = Instant::now();
    for number in 0..count {
        let made = File::create(folder.join(format!("f{number:08}")));
        made.and_then(|mut file| file.write_all(&[b'x'; BYTES])).map_err(failed)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let each = |time: Duration| time.as_secs_f64() * 1e6 / count.max(1) as f64;
    Ok(CreateCost {
        rate: if seconds > 0.0 { count as f64 / seconds } else { 0.0 },
        caller_us: each(own_cpu() - own + cpu(true).saturating_sub(answering)),
        behind_us: each(cpu(false).saturating_sub(others)),
    })
}
