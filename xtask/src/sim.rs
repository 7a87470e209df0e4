//! `sim`: runs a server, its clients and programs in turns, with faults, for many seeds.

pub(crate) mod mutants;

use std::process::Command;

use pelago_testbed::{VerbResult, arguments, process, verdict, workspace};

const DEFAULT_SEEDS: u32 = 1000;

/// Builds `pelago-sim` and runs this number of seeds, from 1 on. `pelago-sim SEED` prints the story
/// of one.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    let seeds = arguments::count(arguments, DEFAULT_SEEDS, "seeds")?;
    let program = workspace::build(&["--bin", "pelago-sim"], "pelago-sim")?;
    let mut command = Command::new(program);
    let status = process::run_foreground(command.args(["1", &seeds.to_string()]))?;
    verdict(status.success())
}
