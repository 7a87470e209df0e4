//! `loss`: power that fails below a server, at many more moments than `test` has time for; and
//! every call to the medium that can fail, one after the other.

use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;

use crate::{Answer, process, workspace};

const DEFAULT_MOMENTS: u32 = 500;
const DEFAULT_SEED: u64 = 1;
/// What the test of failing calls reads its choice from.
const CHOICE: &str = "PELAGO_LOSS_ERRORS";

/// Runs the `loss` tests of the server with so many seeded moments, or every call that fails.
pub(crate) fn run(arguments: &[String]) -> Answer {
    let moments = match arguments {
        [] => DEFAULT_MOMENTS,
        [errors, rest @ ..] if errors == "--errors" => return run_errors(rest),
        [count] => count.parse().map_err(|why| format!("`{count}` moments: {why}"))?,
        _ => return Err("takes one number of moments, or --errors".to_owned()),
    };
    let mut command = test("loss");
    command.args(["--", "--nocapture"]).env("PELAGO_LOSS_MOMENTS", moments.to_string());
    let status = process::run_foreground(command.env("PELAGO_TEST", "1"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Fails every call of the program of a seed, a part of them on each processor; or one, as its
/// failure was printed.
fn run_errors(arguments: &[String]) -> Answer {
    let choices = match arguments {
        [case] if case.contains(',') => vec![case.clone()],
        [] => parts(DEFAULT_SEED, ""),
        [seed] => parts(number(seed)?, ""),
        [seed, within] => parts(number(seed)?, within),
        _ => {
            return Err("--errors takes a seed and a part of a case's line, or one case".to_owned());
        }
    };
    let built = process::run_foreground(test("faults").arg("--no-run"))?;
    if !built.success() {
        return Ok(ExitCode::FAILURE);
    }
    let started: Vec<_> = choices.iter().map(|choice| start(choice)).collect();
    let mut all_well = true;
    for child in started {
        let status = child?.wait().map_err(|why| format!("cannot wait for a part: {why}"))?;
        all_well &= status.success();
    }
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn parts(seed: u64, within: &str) -> Vec<String> {
    let parts = thread::available_parallelism().map_or(1, usize::from);
    (0..parts)
        .map(|part| format!("all {seed} {part} {parts} {within}").trim_end().to_owned())
        .collect()
}

fn number(seed: &str) -> Result<u64, String> {
    seed.parse().map_err(|why| format!("seed `{seed}`: {why}"))
}

fn start(choice: &str) -> Result<Child, String> {
    let mut command = test("faults");
    command.args(["--", "no_call_that_fails_breaks_a_promise", "--nocapture"]);
    command.env("PELAGO_TEST", "1").env(CHOICE, choice).stdin(Stdio::null());
    command.spawn().map_err(|why| format!("cannot start the tests: {why}"))
}

/// A test of the server.
fn test(name: &str) -> Command {
    workspace::cargo(&["test", "--release", "--package", "pelago-server", "--test", name])
}
