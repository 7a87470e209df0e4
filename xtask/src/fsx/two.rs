//! `fsx --two`: random operations on one file through two or three mounts of a volume, one after
//! the other, compared with memory.

use std::path::PathBuf;
use std::process::Command;

use pelago_testbed::mounted::Mounted;
use pelago_testbed::run_as::{RunAs, Way};
use pelago_testbed::{VerbResult, arguments, workspace};

use super::{OPERATIONS_EACH, in_processes};
use crate::steps::{self, Step};

const DEFAULT_OPERATIONS: u64 = 200_000;
const FIRST_SEED: u64 = 60_071;
/// Between the first seeds of two modes.
const SEEDS_OF_A_MODE: u64 = 1_000_000;

/// One set of mounts, and one size of file.
struct Mode {
    name: &'static str,
    ways: &'static [Way],
    path: &'static str,
    /// Bytes of the file, at most.
    longest: u64,
    /// Bytes of one operation, at most.
    largest: u64,
}

const LARGE: Mode = Mode { name: "", ways: &[], path: "never", longest: 262_144, largest: 65_536 };
/// The size crosses the inline limit in both directions.
const SMALL: Mode = Mode { longest: 6_000, largest: 1_500, ..LARGE };

const MODES: &[Mode] = &[
    Mode { name: "two-far", ways: &[Way::Tls, Way::Unix], ..LARGE },
    Mode { name: "two-far-small", ways: &[Way::Tls, Way::Unix], ..SMALL },
    Mode { name: "two-own", ways: &[Way::Own, Way::Tls], ..LARGE },
    Mode { name: "two-own-small", ways: &[Way::Own, Way::Tls], ..SMALL },
    Mode { name: "two-passthrough", ways: &[Way::Own, Way::Tls], path: "always", ..LARGE },
    Mode { name: "three", ways: &[Way::Own, Way::Tls, Way::Unix], path: "auto", ..LARGE },
];

/// Runs the given number of operations, divided among all modes, each on a volume of its own.
pub(super) fn run(arguments: &[String]) -> VerbResult {
    let operations = arguments::count(arguments, DEFAULT_OPERATIONS, "operations")?;
    let operations = operations.div_ceil(MODES.len() as u64);
    let program = &build()?;
    let steps = (0_u64..).zip(MODES).map(|(number, mode)| Step {
        name: mode.name.to_owned(),
        path: mode.path,
        ways: mode.ways,
        packages: &[],
        needs_root: mode.path == "always",
        run: Box::new(move |volume| {
            let seed = FIRST_SEED + number * SEEDS_OF_A_MODE;
            exercise(program, mode, operations, seed, volume)
        }),
    });
    steps::run_all("fsx", &RunAs::default(), &steps.collect::<Vec<_>>())
}

/// Builds the program that performs the operations, and returns its path.
fn build() -> Result<PathBuf, String> {
    workspace::build(&["--example", "together"], "examples/together")
}

fn exercise(
    program: &PathBuf,
    mode: &Mode,
    operations: u64,
    seed: u64,
    volume: &Mounted,
) -> Result<(), String> {
    let runs = operations.div_ceil(OPERATIONS_EACH).max(1);
    let each = operations.div_ceil(runs);
    println!("{}: {runs} times {each} operations, seeds from {seed}", mode.name);
    in_processes(runs, |worker, run| {
        let mut command = Command::new(program);
        let numbers = [seed + run, each, mode.longest, mode.largest];
        command.args(numbers.map(|number| number.to_string())).args(volume.points());
        volume.step(&format!("{}-{worker}", mode.name), &mut command).map(|_| ())
    })
}
