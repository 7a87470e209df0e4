//! Disasters: a volume and its mirror at the other end of a line that loses packets, writers whose
//! syncs are of several levels, in half of the rounds a relay at the primary's site; then the line
//! is cut and the primary killed, also with its relay. The mirror is promoted by force, and has all
//! that a level has promised which survives this.
//!
//! `PELAGO_DISASTER_ROUNDS` sets the number of rounds, by default 20, and `PELAGO_DISASTER_SEED`
//! the seed of the first one. The next ones have the next seeds, so a failing round is repeated
//! alone with its own.

mod round;
mod sites;

use std::collections::BTreeMap;
use std::path::Path;

use pelago_workload::ledger::{self, LevelCounts};

use crate::disaster::round::Round;
use crate::disaster::sites::Sites;
use crate::harness::volume::cannot_mount;

const ROUNDS: u64 = 20;

/// Set for a test binary that is to be the writers: directory, ledger, seed and levels, one in a
/// line.
const WRITERS: &str = "PELAGO_TEST_WRITERS";

/// Not a test of its own: the writers, as a process that the test below starts.
#[test]
fn as_writers() {
    let Ok(told) = std::env::var(WRITERS) else { return };
    let mut told = told.lines();
    let root = Path::new(told.next().unwrap());
    let path = Path::new(told.next().unwrap());
    let seed = told.next().unwrap().parse().unwrap();
    let levels: Vec<&str> = told.collect();
    match ledger::run(root, path, seed, &levels, None) {
        Ok(ran) => println!("answered {}, ended by {:?}", ran.steps, ran.died),
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn nothing_is_lost_that_was_answered_at_a_level_that_survives() {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let rounds: u64 = number("PELAGO_DISASTER_ROUNDS").unwrap_or(ROUNDS);
    let first: u64 = number("PELAGO_DISASTER_SEED").unwrap_or(1);
    let mut all = Sum::default();
    for seed in first..first + rounds {
        let round = Round::of(seed);
        let Some(sites) = Sites::new(&round) else { return };
        match sites.suffer(&round) {
            Ok((fates, went_on)) => {
                println!(
                    "{round}: {fates}{}",
                    if went_on { "; the mirror was cut off" } else { "" }
                );
                all.add(&fates.levels, went_on);
            }
            Err(why) => panic!("{round}: {why}\nrepeat it with PELAGO_DISASTER_SEED={seed}"),
        }
    }
    println!("{rounds} disasters; {all}");
    for level in ["remote", "network"] {
        let answered = all.levels.get(level).map_or(0, |counts| counts.answered);
        assert!(rounds < ROUNDS || answered > 0, "no sync at {level} was answered");
    }
}

/// The syncs of all rounds.
#[derive(Default)]
struct Sum {
    levels: BTreeMap<String, LevelCounts>,
    /// Rounds in which a sync of level *remote* may have meant *local* before the end.
    went_on: u64,
}

impl Sum {
    fn add(&mut self, levels: &BTreeMap<String, LevelCounts>, went_on: bool) {
        self.went_on += u64::from(went_on);
        for (level, counts) in levels {
            let sum = self.levels.entry(level.clone()).or_default();
            sum.answered += counts.answered;
            sum.missing += counts.missing;
        }
    }
}

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (level, LevelCounts { answered, missing }) in &self.levels {
            write!(f, "of {answered} syncs at {level} {missing} are missing; ")?;
        }
        write!(f, "in {} rounds the mirror was cut off before the end", self.went_on)
    }
}
