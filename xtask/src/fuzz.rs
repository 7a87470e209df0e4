//! `fuzz`: runs one fuzz target for some seconds, on the stable toolchain.

use pelago_testbed::{VerbResult, arguments, machine, process, verdict, workspace};

const DEFAULT_SECONDS: u32 = 60;

/// Runs `cargo fuzz`, which must be installed.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    let Some((target, rest)) = arguments.split_first() else {
        return Err("needs a target, and takes a number of seconds".to_owned());
    };
    let seconds = arguments::count(rest, DEFAULT_SECONDS, "seconds")?;
    if machine::find_program("cargo-fuzz").is_none() {
        return Err("cargo-fuzz is not installed: run `cargo install cargo-fuzz`".to_owned());
    }
    // Sanitizers need a nightly toolchain. Without one the crates' own assertions still work.
    let mut command = workspace::cargo(&["fuzz", "run", "--sanitizer", "none", target, "--"]);
    let status = process::run_foreground(command.arg(format!("-max_total_time={seconds}")))?;
    verdict(status.success())
}
