//! `loss --errors`: fails each call to the disk, one after the other.

use std::process::{Child, Stdio};
use std::thread;

use pelago_testbed::{VerbResult, arguments, verdict};

use crate::test::{self, Suite};

const DEFAULT_SEED: u64 = 1;
/// The variable that tells the test which calls to fail.
const CHOICE: &str = "PELAGO_LOSS_ERRORS";

/// Fails every call of a seed's program, a part of them on each processor; or one call, as a
/// failure has printed it.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    let seed = |word: &String| arguments::number(word, "as a seed");
    let choices = match arguments {
        [case] if case.contains(',') => vec![case.clone()],
        [] => parts(DEFAULT_SEED, ""),
        [word] => parts(seed(word)?, ""),
        [word, within] => parts(seed(word)?, within),
        _ => {
            return Err("--errors takes a seed and a part of a case's line, or one case".to_owned());
        }
    };
    let suite = test::built("pelago-server", "faults")?;
    let started: Vec<_> = choices.iter().map(|choice| start(&suite, choice)).collect();
    let mut all_passed = true;
    for child in started {
        let status = child?.wait().map_err(|why| format!("cannot wait for a part: {why}"))?;
        all_passed &= status.success();
    }
    verdict(all_passed)
}

fn parts(seed: u64, within: &str) -> Vec<String> {
    let parts = thread::available_parallelism().map_or(1, usize::from);
    (0..parts)
        .map(|part| format!("all {seed} {part} {parts} {within}").trim_end().to_owned())
        .collect()
}

fn start(suite: &Suite, choice: &str) -> Result<Child, String> {
    let mut command = suite.command("no_call_that_fails_breaks_a_promise");
    command.arg("--nocapture");
    command.env(CHOICE, choice).stdin(Stdio::null());
    command.spawn().map_err(|why| format!("cannot start the tests: {why}"))
}
