//! `schedules`: runs programs of several threads over the shard and open files in chosen orders.

use pelago_testbed::{VerbResult, arguments, process, verdict, workspace};

const DEFAULT_ROUNDS: u32 = 500;

/// Builds `schedules/`, a workspace of its own because its locks are not those of the product, and
/// runs it.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    let rounds = arguments::count(arguments, DEFAULT_ROUNDS, "rounds")?;
    let manifest = ["run", "--release", "--manifest-path", "schedules/Cargo.toml", "--"];
    let mut command = workspace::cargo(&manifest);
    let status = process::run_foreground(command.arg(rounds.to_string()))?;
    verdict(status.success())
}
