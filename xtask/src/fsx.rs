//! `fsx`: random reads, writes, mappings, truncates and holes on one file, compared with memory.
//!
//! Each file in `conformance/fsx` is a mode. The seeds are fixed: a run can be repeated.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::mounted::{self, Mounted};
use crate::{Answer, tools, workspace};

const VERSION: &str = "0.3.2";
const DEFAULT_OPERATIONS: u64 = 200_000;
/// The seed of the first mode; each next one has one more.
const FIRST_SEED: u64 = 20_071;

/// Every mode on a volume of its own, for so many operations.
pub(crate) fn run(arguments: &[String]) -> Answer {
    let operations = match arguments {
        [] => DEFAULT_OPERATIONS,
        [count] => count.parse().map_err(|why| format!("`{count}` operations: {why}"))?,
        _ => return Err("takes one number of operations".to_owned()),
    };
    let modes = modes(&workspace::root().join("conformance/fsx"))?;
    let logs = mounted::log_folder("fsx")?;
    let fsx = tools::install_crate("fsx", VERSION)?;
    let pelago = mounted::build()?;

    let (mut passed, mut failed) = (0, 0);
    for (mode, seed) in modes.iter().zip(FIRST_SEED..) {
        let name = mode.file_stem().unwrap_or_default().to_string_lossy();
        println!("fsx {name}: {operations} operations, seed {seed}");
        let volume = Mounted::start(&pelago, &logs, &format!("fsx-{name}"));
        let run = volume.and_then(|volume| exercise(&fsx, mode, (operations, seed), volume));
        match run {
            Ok(seconds) => {
                passed += 1;
                println!("{name} ok {seconds:.0}");
            }
            Err(why) => {
                failed += 1;
                println!("{name} failed: {why}");
            }
        }
    }
    println!("{passed} passed, {failed} failed, 0 skipped");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The committed modes, by name.
fn modes(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    let is_toml = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "toml");
    let mut modes: Vec<PathBuf> = paths.filter(is_toml).collect();
    modes.sort_unstable();
    Ok(modes)
}

/// Seconds that it took. What fsx wrote about a failure stays in the logs.
fn exercise(
    fsx: &Path,
    mode: &Path,
    (operations, seed): (u64, u64),
    volume: Mounted,
) -> Result<f64, String> {
    let name = mode.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut command = Command::new(fsx);
    command.arg("-f").arg(mode).arg("-P").arg(mounted::log_folder("fsx")?);
    command.args(["-N", &operations.to_string(), "-S", &seed.to_string()]);
    command.arg(volume.point().join(&name)).env("NO_COLOR", "1");
    let ending = volume.step(&name, &mut command)?;
    volume.finish()?;
    Ok(ending.duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modes_are_there() {
        let modes = modes(&workspace::root().join("conformance/fsx")).unwrap();
        let names: Vec<_> = modes.iter().filter_map(|mode| mode.file_stem()).collect();
        assert_eq!(names, ["mapped", "small", "unmapped"]);
    }
}
