//! `loss`: power that fails below a server, at many more moments than `test` has time for.

use std::process::ExitCode;

use crate::{Answer, process, workspace};

const DEFAULT_MOMENTS: u32 = 500;

/// Runs the `loss` tests of the server with so many seeded moments.
pub(crate) fn run(arguments: &[String]) -> Answer {
    let moments = match arguments {
        [] => DEFAULT_MOMENTS,
        [count] => count.parse().map_err(|why| format!("`{count}` moments: {why}"))?,
        _ => return Err("takes one number of moments".to_owned()),
    };
    let test = ["test", "--release", "--package", "pelago-server", "--test", "loss"];
    let mut command = workspace::cargo(&test);
    command.args(["--", "--nocapture"]).env("PELAGO_LOSS_MOMENTS", moments.to_string());
    let status = process::run_foreground(command.env("PELAGO_TEST", "1"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
