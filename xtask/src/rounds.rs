//! `crash`, `disaster`, `loss`, `soak` and `strangers`: tests with more rounds, or longer ones,
//! than `test` has time for.

mod faults;

use pelago_testbed::{VerbResult, arguments, process, verdict};

use crate::io_uring::SwitchedOn;
use crate::test;

/// A test whose rounds an environment variable sets.
struct Rounds {
    package: &'static str,
    test: &'static str,
    /// Only the tests whose names begin with this.
    filter: &'static str,
    variable: &'static str,
    default: u32,
    unit: &'static str,
}

const CRASH: Rounds = Rounds {
    package: "pelago-cli",
    test: "crash",
    filter: "",
    variable: "PELAGO_CRASH_ROUNDS",
    default: 200,
    unit: "rounds",
};

const LOSS: Rounds = Rounds {
    package: "pelago-server",
    test: "loss",
    filter: "",
    variable: "PELAGO_LOSS_MOMENTS",
    default: 500,
    unit: "moments",
};

const DISASTER: Rounds =
    Rounds { variable: "PELAGO_DISASTER_ROUNDS", test: "disaster", default: 1_000, ..CRASH };

const STRANGERS: Rounds = Rounds {
    package: "pelago-cli",
    test: "far",
    filter: "strangers",
    variable: "PELAGO_STRANGERS_SECONDS",
    default: 30,
    unit: "seconds",
};

const NOTICES: Rounds = Rounds { variable: "PELAGO_NOTICE_ROUNDS", test: "notices", ..CRASH };

const FAR: Rounds = Rounds { variable: "PELAGO_CRASH_FAR_ROUNDS", test: "far_crash", ..CRASH };

const PAIRS: Rounds = Rounds {
    test: "pairs",
    variable: "PELAGO_PAIRS_NAMES",
    default: 10_000,
    unit: "names",
    ..CRASH
};

const SOAK: Rounds = Rounds {
    test: "soak",
    variable: "PELAGO_SOAK_SECONDS",
    default: 600,
    unit: "seconds",
    ..CRASH
};

/// Has two offices and a machine of one of them work in the same folders for this number of
/// seconds, while servers are killed and the line is cut.
pub(crate) fn soak(arguments: &[String]) -> VerbResult {
    run(&SOAK, arguments)
}

/// Lets two mounts race for this number of names.
pub(crate) fn pairs(arguments: &[String]) -> VerbResult {
    run(&PAIRS, arguments)
}

/// Sends garbage to every socket of a server for this number of seconds, beside 10,000 silent
/// connections and two good mounts.
pub(crate) fn strangers(arguments: &[String]) -> VerbResult {
    run(&STRANGERS, arguments)
}

/// Kills the binary with `kill -9` in each round, or with `--far` the server of a far mount; a
/// witness compares. With `--notices` servers, far mounts and guards are killed while they notify
/// the kernel of a change.
pub(crate) fn crash(arguments: &[String]) -> VerbResult {
    match arguments {
        [ring, rest @ ..] if ring == "--ring" => {
            let _switched_on = SwitchedOn::new()?;
            let (rounds, rest) = of_the_ring(rest);
            run_with(rounds, rest, &[("PELAGO_FUSE_RING", "1")])
        }
        [notices, rest @ ..] if notices == "--notices" => run(&NOTICES, rest),
        [far, rest @ ..] if far == "--far" => run(&FAR, rest),
        _ => run(&CRASH, arguments),
    }
}

/// Has writers work on a volume with a mirror, cuts the line and kills the primary in each round;
/// the mirror has all that was promised. `PELAGO_DISASTER_SEED` repeats a round.
pub(crate) fn disaster(arguments: &[String]) -> VerbResult {
    run(&DISASTER, arguments)
}

/// Cuts the power below a server at this number of seeded moments, or fails each call to the disk.
pub(crate) fn loss(arguments: &[String]) -> VerbResult {
    match arguments {
        [errors, rest @ ..] if errors == "--errors" => faults::run(rest),
        _ => run(&LOSS, arguments),
    }
}

/// Returns the rounds that `--ring` is for, and their arguments.
fn of_the_ring(arguments: &[String]) -> (&'static Rounds, &[String]) {
    match arguments {
        [notices, rest @ ..] if notices == "--notices" => (&NOTICES, rest),
        _ => (&CRASH, arguments),
    }
}

fn run(rounds: &Rounds, arguments: &[String]) -> VerbResult {
    run_with(rounds, arguments, &[])
}

/// The same with these environment variables.
fn run_with(rounds: &Rounds, arguments: &[String], variables: &[(&str, &str)]) -> VerbResult {
    let count = arguments::count(arguments, rounds.default, rounds.unit)?;
    let suite = test::built(rounds.package, rounds.test)?;
    let mut command = suite.command(rounds.filter);
    command.arg("--nocapture").env(rounds.variable, count.to_string());
    command.envs(variables.iter().copied());
    verdict(process::run_foreground(&mut command)?.success())
}
