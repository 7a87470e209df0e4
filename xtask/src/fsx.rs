//! `fsx`: random reads, writes, mappings, truncates and holes, compared with memory.
//!
//! A mode is a file of `conformance/fsx` and a data path. The operations of a mode are divided
//! among many processes, several at a time, each with its own seed and file, which disturb each
//! other. The seeds are fixed, so a run can be repeated.

mod two;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use pelago_testbed::mounted::{self, Mounted};
use pelago_testbed::run_as::Way;
use pelago_testbed::{VerbResult, arguments, run_as, tools, workspace};

use crate::steps::{self, Step};

const VERSION: &str = "0.3.2";
const DEFAULT_OPERATIONS: u64 = 1_000_000;
/// Processes at the same time.
const PROCESSES: u64 = 4;
/// Most operations of one process. fsx 0.3.2 never unmaps its mappings for reads, and each truncate
/// goes through all mappings: 100,000 operations take far longer than ten times 10,000.
const OPERATIONS_EACH: u64 = 10_000;
/// The seed of the first process of the first mode; each further process has one more.
const FIRST_SEED: u64 = 20_071;
/// Between the first seeds of two modes.
const SEEDS_OF_A_MODE: usize = 1_000_000;

/// One way to exercise files.
struct Mode {
    name: &'static str,
    /// A file in `conformance/fsx`, without `.toml`.
    config: &'static str,
    path: &'static str,
    mounts: Mounts,
}

/// The mount that a mode uses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mounts {
    /// The server's own, or one far mount.
    Any,
    /// That of a guest.
    Guest,
}

const fn mode(name: &'static str, config: &'static str, path: &'static str) -> Mode {
    Mode { name, config, path, mounts: Mounts::Any }
}

const MODES: &[Mode] = &[
    mode("passthrough", "mapped", "always"),
    mode("mmap", "mapped", "never"),
    mode("daemon", "unmapped", "never"),
    mode("small", "small", "never"),
    Mode { mounts: Mounts::Guest, ..mode("guest", "mapped", "never") },
    Mode { mounts: Mounts::Guest, ..mode("guest-small", "small", "never") },
];

/// Runs every mode on a volume of its own, for the given number of operations; or, with `--two`,
/// one file in several mounts.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    if let [two, rest @ ..] = arguments
        && two == "--two"
    {
        return two::run(rest);
    }
    run_as::enter("fsx", arguments, |run_as, rest| {
        let operations = arguments::count(rest, DEFAULT_OPERATIONS, "operations")?;
        let fsx = &tools::install_crate("fsx", VERSION)?;
        let seeds = (FIRST_SEED..).step_by(SEEDS_OF_A_MODE);
        let is_chosen = |path: &str| match run_as.is_far() {
            true => path == "never",
            false => run_as.path.is_none_or(|only| path == only),
        };
        let chosen = MODES.iter().zip(seeds).filter(|(mode, _)| is_chosen(mode.path));
        let steps = chosen.map(|(mode, seed)| Step {
            name: mode.name.to_owned(),
            path: mode.path,
            ways: if mode.mounts == Mounts::Guest { &[Way::Guest] } else { run_as.ways },
            packages: &[],
            needs_root: mode.path == "always",
            run: Box::new(move |volume| exercise(fsx, mode, operations, seed, volume)),
        });
        steps::run_all("fsx", run_as, &steps.collect::<Vec<_>>())
    })
}

/// Runs the operations of a mode. The files of fsx about a failure stay beside the logs.
fn exercise(
    fsx: &Path,
    mode: &Mode,
    operations: u64,
    seed: u64,
    volume: &Mounted,
) -> Result<(), String> {
    let fsx = volume.bring(fsx)?;
    let config = volume.bring(&config(mode))?;
    let runs = operations.div_ceil(OPERATIONS_EACH).max(1);
    let each = operations.div_ceil(runs);
    println!("{}: {runs} times {each} operations, seeds from {seed}", mode.name);
    let one = |worker: u64, seed: u64| {
        let step = format!("{}-{worker}", mode.name);
        let mut command = Command::new(&fsx);
        command.arg("-f").arg(&config).arg("-P").arg(volume.scratch());
        command.args(["-N", &each.to_string(), "-S", &seed.to_string()]);
        command.arg(volume.point().join(format!("seed-{seed}"))).env("NO_COLOR", "1");
        volume.step(&step, &mut command).map(|_| ()).map_err(|why| format!("seed {seed}: {why}"))
    };
    let done = in_processes(runs, |worker, run| one(worker, seed + run));
    if done.is_err() {
        keep_artifacts(&volume.scratch());
    }
    done
}

/// Calls `one` with the number of a worker and that of each run, on a few threads, until one fails.
fn in_processes(
    runs: u64,
    one: impl Fn(u64, u64) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let next = AtomicU64::new(0);
    let some = |worker: u64| {
        loop {
            let run = next.fetch_add(1, Ordering::Relaxed);
            if run >= runs {
                return Ok(());
            }
            one(worker, run)?;
        }
    };
    let ended: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let some = &some;
        let workers: Vec<_> =
            (0..PROCESSES).map(|worker| scope.spawn(move || some(worker))).collect();
        let joined = workers.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.map(|run| run.unwrap_or_else(|_| Err("a thread of xtask panicked".into()))).collect()
    });
    ended.into_iter().collect()
}

/// Copies the files of fsx about a failure beside the logs.
fn keep_artifacts(from: &Path) {
    let Ok(logs) = mounted::log_folder("fsx") else { return };
    let entries = std::fs::read_dir(from).into_iter().flatten().filter_map(Result::ok);
    for entry in entries {
        if let Err(why) = std::fs::copy(entry.path(), logs.join(entry.file_name())) {
            println!("{}: {why}", entry.path().display());
        }
    }
}

fn config(mode: &Mode) -> PathBuf {
    workspace::root().join(format!("conformance/fsx/{}.toml", mode.config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modes_are_there() {
        for mode in MODES {
            assert!(config(mode).is_file(), "{}", mode.name);
        }
        let folder = workspace::root().join("conformance/fsx");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_used = MODES.iter().any(|mode| config(mode) == path);
            assert!(is_used, "{}", path.display());
        }
    }
}
