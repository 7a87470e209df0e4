//! `crash`: the witness of kill -9, for many more rounds than `test` has time for.

use std::process::ExitCode;

use crate::{Answer, process, workspace};

const DEFAULT_ROUNDS: u32 = 200;

/// Runs the `crash` tests of the binary with so many rounds.
pub(crate) fn run(arguments: &[String]) -> Answer {
    let rounds = match arguments {
        [] => DEFAULT_ROUNDS,
        [count] => count.parse().map_err(|why| format!("`{count}` rounds: {why}"))?,
        _ => return Err("takes one number of rounds".to_owned()),
    };
    let test = ["test", "--release", "--package", "pelago-cli", "--test", "crash"];
    let mut command = workspace::cargo(&test);
    command.args(["--", "--nocapture"]).env("PELAGO_CRASH_ROUNDS", rounds.to_string());
    let status = process::run_foreground(command.env("PELAGO_TEST", "1"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
