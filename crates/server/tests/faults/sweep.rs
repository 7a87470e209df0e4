//! Many cases and their results.

use std::collections::{BTreeMap, BTreeSet};

use pelago_lossfs::{Call, Injection, Random};

use super::belief::Kept;
use super::case::{CLASSES, Case, OPERATIONS, PHASES, Phase, failure_of, name_of};
use super::run::{self, Counts, Outcome};

/// Which cases are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// One call of each kind in each class of files.
    Sample,
    /// All whose number leaves this rest when it is divided by that.
    All {
        /// The rest.
        part: usize,
        /// The divisor.
        of: usize,
    },
}

/// What a sweep came to.
#[derive(Default)]
pub(crate) struct Report {
    /// Cases in which every promise was kept.
    pub(crate) kept: usize,
    /// Cases with fewer calls than the program has in which nothing fails.
    pub(crate) not_reached: usize,
    /// Lines of cases in which a promise was broken.
    pub(crate) broken: Vec<String>,
    /// The kinds and classes that were met.
    met: BTreeSet<(&'static str, &'static str)>,
}

/// Runs the cases of one program, one start and one making that have `within` in their line.
pub(crate) fn run(seed: u64, choice: Choice, within: &str) -> Kept<Report> {
    let mut report = Report::default();
    let mut number = 0;
    for (_, phase) in PHASES {
        let counts = run::count(phase, seed)?;
        report.met.extend(counts.keys().map(|call| (name_of(call.operation), call.class)));
        for case in cases(phase, seed, &counts, choice) {
            if !case.to_string().contains(within) {
                continue;
            }
            number += 1;
            if let Choice::All { part, of } = choice
                && number % of != part
            {
                continue;
            }
            report.add(&case);
        }
    }
    Ok(report)
}

impl Report {
    fn add(&mut self, case: &Case) {
        match run::run(case, false) {
            Outcome::Kept => self.kept += 1,
            Outcome::NotReached => self.not_reached += 1,
            Outcome::Broken(why) => {
                println!("BROKEN {case}: {why}");
                self.broken.push(format!("{case}: {why}"));
            }
        }
    }

    /// What no program has met.
    pub(crate) fn never_met(&self) -> Vec<String> {
        let all = OPERATIONS.iter().flat_map(|(kind, _)| CLASSES.map(|class| (*kind, class)));
        all.filter(|one| !self.met.contains(one))
            .map(|(kind, class)| format!("{kind} {class}"))
            .collect()
    }
}

/// The cases of a phase in which there are so many calls.
fn cases(phase: Phase, seed: u64, counts: &Counts, choice: Choice) -> Vec<Case> {
    let mut random = Random(seed);
    let mut cases = Vec::new();
    for (call, count) in counts {
        let failures = Case::failures(call.operation);
        let mut add = |failure, nth, lasting| {
            let Some(failure) = failure_of(failure) else { return };
            let injection = Injection { call: *call, nth, lasting, failure };
            cases.push(Case { phase, seed, injection });
        };
        if choice == Choice::Sample {
            let failure = failures[random.below(failures.len() as u64) as usize];
            add(failure, random.below(*count) + 1, random.coin());
            continue;
        }
        for failure in failures {
            for nth in 1..=*count {
                add(failure, nth, false);
                add(failure, nth, true);
            }
        }
    }
    cases
}

/// Prints how many calls of each kind there are.
pub(crate) fn print_counts(seed: u64) -> Kept {
    for (_, phase) in PHASES {
        let counts = run::count(phase, seed)?;
        let mut by_kind: BTreeMap<(&str, &str), [u64; 2]> = BTreeMap::new();
        for (Call { operation, class, ours }, count) in counts {
            by_kind.entry((name_of(operation), class)).or_default()[usize::from(!ours)] = count;
        }
        println!("{phase:?} {seed}: calls of ours, and of the engine's threads");
        for ((kind, class), [ours, engine]) in by_kind {
            println!("  {kind:10} {class:8} {ours:5} {engine:5}");
        }
    }
    Ok(())
}
