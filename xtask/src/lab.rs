//! The verbs of the laboratories: each builds the program `lab` and passes its arguments on.

use std::process::ExitCode;

use pelago_testbed::{VerbResult, process, workspace};

/// Runs a verb of `lab` with these arguments, and returns its exit code.
///
/// # Errors
/// If cargo cannot be run. The laboratory prints its own errors.
pub(crate) fn run(verb: &str, arguments: &[String]) -> VerbResult {
    let run = ["run", "--release", "--quiet", "--package", workspace::LAB, "--", verb];
    let status = process::run_foreground(workspace::cargo(&run).args(arguments))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
