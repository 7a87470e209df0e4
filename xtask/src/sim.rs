//! `sim`: runs a server, its clients and programs in turns, with faults, for many seeds.

pub(crate) mod mutants;

use std::process::Command;

use pelago_testbed::{VerbResult, arguments, process, verdict, workspace};

const DEFAULT_SEEDS: u32 = 1000;
/// Of so many seeds one more has a mirror that is promoted.
const SEEDS_OF_A_MIRROR: u32 = 2;

/// Builds `pelago-sim` and runs this number of seeds, from 1 on, and half as many with mirrors.
/// `pelago-sim SEED` prints the story of one.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    let seeds = arguments::count(arguments, DEFAULT_SEEDS, "seeds")?;
    let program = workspace::build(&["--bin", "pelago-sim"], "pelago-sim")?;
    let run = |seeds: u32, options: &[&str]| {
        let mut command = Command::new(&program);
        process::run_foreground(command.args(["1", &seeds.to_string()]).args(options))
    };
    let without = run(seeds, &[])?;
    let with = run(seeds.div_ceil(SEEDS_OF_A_MIRROR), &["--mirrors"])?;
    verdict(without.success() && with.success())
}
