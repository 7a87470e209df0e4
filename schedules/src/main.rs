//! Runs small programs of several threads over open files and the shard, in many orders of their
//! steps, on one thread of the system.
//!
//! A program fails if its threads wait for each other (invariant I-9, one order of locks), if an
//! assertion of the product fails, or if memory and table disagree at its end. The scheduler then
//! prints the order; `PELAGO_SCHEDULE` with that text runs it again.
//!
//! Usage: `pelago-schedules [ROUNDS]`; each round runs every program once in a random order, and
//! once in an order of the PCT scheduler (few, well placed switches).

mod program;
mod rig;

use std::process::ExitCode;

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, Runner};

/// Switches of threads that the PCT scheduler places.
const PCT_DEPTH: usize = 4;
/// Bytes of the stack of a thread: encoding and content files need more than the default.
const STACK_BYTES: usize = 1 << 20;
const ROUNDS: usize = 500;

fn main() -> ExitCode {
    let rounds = match std::env::args().nth(1).map(|text| text.parse()) {
        None => ROUNDS,
        Some(Ok(rounds)) => rounds,
        Some(Err(error)) => {
            eprintln!("pelago-schedules: the number of rounds: {error}");
            return ExitCode::from(2);
        }
    };
    if let Ok(schedule) = std::env::var("PELAGO_SCHEDULE") {
        for program in program::ALL {
            run(ReplayScheduler::new_from_encoded(&schedule), program.run);
        }
        return ExitCode::SUCCESS;
    }
    for program in program::ALL {
        run(RandomScheduler::new(rounds), program.run);
        run(PctScheduler::new(PCT_DEPTH, rounds), program.run);
        println!("{}: {} orders, none fails", program.name, 2 * rounds);
    }
    ExitCode::SUCCESS
}

fn run(scheduler: impl Scheduler + 'static, program: fn()) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    Runner::new(scheduler, config).run(program);
}
