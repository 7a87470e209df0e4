//! A testbed for the built binary: the workspace that cargo builds, processes with time limits,
//! mounted volumes, the users that own them, and the tools of other projects.
//!
//! `cargo xtask` runs the suites of other projects on it, and the laboratories measure on it. Each
//! function returns an error that says in words what was missing on this machine. Nothing here is
//! shipped.

pub mod account;
pub mod arguments;
pub mod machine;
pub mod mounted;
pub mod process;
pub mod run_as;
pub mod tools;
pub mod workspace;

use std::process::ExitCode;

/// The exit code of a verb that has printed its own report, or why it could not run.
pub type VerbResult = Result<ExitCode, String>;

/// Returns exit code 0 if the verb found nothing wrong, 1 otherwise.
///
/// # Errors
/// Never; the type is that of a verb.
pub fn verdict(is_good: bool) -> VerbResult {
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
