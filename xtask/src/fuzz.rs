//! `fuzz`: one fuzz target for a while, on the stable toolchain.

use std::process::ExitCode;

use crate::{Answer, machine, process, workspace};

const DEFAULT_SECONDS: u32 = 60;

/// Runs `cargo fuzz`, which has to be installed.
pub(crate) fn run(arguments: &[String]) -> Answer {
    let (target, seconds) = match arguments {
        [target] => (target, DEFAULT_SECONDS),
        [target, seconds] => {
            (target, seconds.parse().map_err(|why| format!("`{seconds}` seconds: {why}"))?)
        }
        _ => return Err("needs a target and may take seconds".to_owned()),
    };
    if machine::find_program("cargo-fuzz").is_none() {
        return Err("cargo-fuzz is not installed: run `cargo install cargo-fuzz`".to_owned());
    }
    // Sanitizers need a nightly toolchain; without one the crate's own assertions still speak.
    let mut command = workspace::cargo(&["fuzz", "run", "--sanitizer", "none", target, "--"]);
    let status = process::run_foreground(command.arg(format!("-max_total_time={seconds}")))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
