//! `fsx`: random reads, writes, mappings, truncates and holes, compared with memory.
//!
//! A mode is a file of `conformance/fsx` and a way of the bytes. Many processes, several at a time,
//! each with a seed and a file of its own, share the operations of a mode, and disturb each other.
//! The seeds are fixed: a run can be repeated.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::manner::Manner;
use crate::mounted::{self, Mounted};
use crate::{Answer, tools, workspace};

const VERSION: &str = "0.3.2";
const DEFAULT_OPERATIONS: u64 = 1_000_000;
/// Processes at a time.
const PROCESSES: u64 = 4;
/// Of one process, at most. fsx 0.3.2 never unmaps what it maps to read, and each truncate goes
/// through all mappings: 100,000 operations take far longer than ten times 10,000.
const OPERATIONS_EACH: u64 = 10_000;
/// The seed of the first process of the first mode; each next one has one more.
const FIRST_SEED: u64 = 20_071;
/// Between the first seeds of two modes.
const SEEDS_OF_A_MODE: usize = 1_000_000;

/// One way to exercise files.
struct Mode {
    name: &'static str,
    /// A file in `conformance/fsx`, without `.toml`.
    config: &'static str,
    way: &'static str,
}

const MODES: &[Mode] = &[
    Mode { name: "passthrough", config: "mapped", way: "always" },
    Mode { name: "mmap", config: "mapped", way: "never" },
    Mode { name: "daemon", config: "unmapped", way: "never" },
    Mode { name: "small", config: "small", way: "never" },
];

/// Every mode on a volume of its own, for so many operations.
pub(crate) fn run(arguments: &[String]) -> Answer {
    let (manner, rest) = Manner::take(arguments)?;
    let operations = match rest.as_slice() {
        [] => DEFAULT_OPERATIONS,
        [count] => count.parse().map_err(|why| format!("`{count}` operations: {why}"))?,
        _ => return Err("takes one number of operations".to_owned()),
    };
    if let Some(code) = manner.enter("fsx", arguments)? {
        return Ok(code);
    }
    let logs = mounted::log_folder("fsx")?;
    let fsx = tools::install_crate("fsx", VERSION)?;
    let pelago = mounted::build()?;

    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (mode, seed) in MODES.iter().zip((FIRST_SEED..).step_by(SEEDS_OF_A_MODE)) {
        let name = mode.name;
        if manner.way.is_some_and(|way| way != mode.way) {
            continue;
        }
        if mode.way == "always" && !manner.may_pass() {
            skipped += 1;
            println!("skipped: {name}: needs root");
            continue;
        }
        let start = Instant::now();
        let volume = Mounted::start(&pelago, &logs, &format!("fsx-{name}"), &manner.on(mode.way));
        let run = volume.and_then(|volume| exercise(&fsx, mode, (operations, seed), volume));
        match run {
            Ok(done) => {
                passed += 1;
                println!("{name} ok, {done} operations, {:.0} s", start.elapsed().as_secs_f64());
            }
            Err(why) => {
                failed += 1;
                println!("{name} failed: {why}");
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Operations done, all processes together. What fsx wrote about a failure stays in the logs.
fn exercise(
    fsx: &Path,
    mode: &Mode,
    (operations, seed): (u64, u64),
    volume: Mounted,
) -> Result<u64, String> {
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
    let next = AtomicU64::new(0);
    let some = |worker: u64| {
        loop {
            let run = next.fetch_add(1, Ordering::Relaxed);
            if run >= runs {
                return Ok(());
            }
            one(worker, seed + run)?;
        }
    };
    let ended: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let some = &some;
        let workers: Vec<_> =
            (0..PROCESSES).map(|worker| scope.spawn(move || some(worker))).collect();
        let joined = workers.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.map(|run| run.unwrap_or_else(|_| Err("a thread of ours ended".into()))).collect()
    });
    if let Some(why) = ended.into_iter().find_map(Result::err) {
        keep_artifacts(&volume.scratch());
        return Err(why);
    }
    volume.finish()?;
    Ok(each * runs)
}

/// Copies what fsx wrote about a failure beside the logs.
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
