//! Steps of a suite, each on a new volume that `pelago check` must find whole afterwards.

use std::time::Instant;

use pelago_testbed::mounted::{self, Mounted};
use pelago_testbed::run_as::{RunAs, Way};
use pelago_testbed::{VerbResult, tools, verdict};

use crate::counts::Counts;

/// The work of a step with its volume; an error says why it failed.
type Work<'a> = dyn Fn(&Mounted) -> Result<(), String> + 'a;

/// One step.
pub(crate) struct Step<'a> {
    /// The name in the output.
    pub(crate) name: String,
    /// The data path of its volume.
    pub(crate) path: &'static str,
    /// The mounts of its volume.
    pub(crate) ways: &'static [Way],
    /// Debian's packages that it needs.
    pub(crate) packages: &'static [&'static str],
    /// Only root can run it.
    pub(crate) needs_root: bool,
    pub(crate) run: Box<Work<'a>>,
}

/// Runs the steps of a verb one after the other, and prints the counts.
pub(crate) fn run_all(verb: &str, run_as: &RunAs, steps: &[Step<'_>]) -> VerbResult {
    let logs = mounted::log_folder(verb)?;
    let pelago = mounted::build()?;
    let mut counts = Counts::default();
    let mut failed = Vec::new();
    for step in steps {
        let name = &step.name;
        if step.needs_root && !run_as.is_root() {
            counts.skipped += 1;
            println!("skipped: {name}: needs root");
            continue;
        }
        let start = Instant::now();
        let volume = tools::install_packages(step.packages, &logs).and_then(|()| {
            Mounted::start(&pelago, &logs, verb, &run_as.on(step.path).by(step.ways))
        });
        let ran = volume.and_then(|volume| {
            (step.run)(&volume)?;
            volume.finish()
        });
        match ran {
            Ok(()) => println!("{name} ok, {:.0} s", start.elapsed().as_secs_f64()),
            Err(why) => {
                println!("{name} failed: {why}");
                failed.push(name);
            }
        }
    }
    for name in &failed {
        println!("failed: {name}");
    }
    counts.failed = failed.len();
    counts.passed = steps.len() - counts.failed - counts.skipped;
    println!("{counts}");
    verdict(failed.is_empty())
}
