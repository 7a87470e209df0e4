//! `sim-mutants`: plants bugs, one at a time. The simulation finds each, or a test of guests does,
//! or a test trips the assertion of an invariant.

mod guests;
mod invariants;
mod mirrors;
mod planted;
mod sites;

use std::process::Command;

use pelago_testbed::{VerbResult, verdict, workspace};

use self::invariants::{BUILD_LIMIT, LIMIT};
use self::planted::{Copy, Mutant, Tested};

/// Each bug is found within so many seeds.
const MOST_SEEDS: u32 = 500;
/// The arguments of a run that ends with the first seed that fails, of all seeds, of those with
/// guests, and of those with sites.
const SEEDS: &[&str] = &["--first"];
const GUEST_SEEDS: &[&str] = &["--first", "--guests"];
const SITE_SEEDS: &[&str] = &["--first", "--sites"];

/// Notes when each session was asked first: locks that were lost before it are lost 0.3 s later.
const TRUSTS_TOO_LONG: &str = r"
        use std::collections::BTreeMap;
        type Began = BTreeMap<(usize, Option<pelago_wire::SessionId>), std::time::Duration>;
        static BEGAN: parking_lot::Mutex<Began> = parking_lot::Mutex::new(BTreeMap::new());
        let client = std::ptr::from_ref(self).addr();
        let now = boot_time();
        let began = *BEGAN.lock().entry((client, self.session())).or_insert(now);
        let trusts = now < began + std::time::Duration::from_millis(300);
        let is_lost = |open| !trusts && self.locks.is_lost(open);
";

/// One for each rule of sessions and leases that some run breaks. Four rules are left to the tests
/// of their code. So many seeds do not meet three: what was kept back is sent before others go on,
/// a change waits for writes under a lease that has ended, and answers lengthen no lease while a
/// recall is not answered. And under a lock that is granted too late nothing goes well.
const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a recall drops no attributes",
        file: "crates/holder/src/recall.rs",
        from: "            state.cached.drop_touched(&touched);\n            let nodes",
        to: "            let nodes",
    },
    Mutant {
        name: "a recall is answered before bytes that were kept back are sent",
        file: "crates/holder/src/recall.rs",
        from: "of_pages.flush_all(&dirty, flushed)",
        to: "of_pages.flush_all(&[], flushed)",
    },
    Mutant {
        name: "bytes are sent beside others that they overlap",
        file: "crates/holder/src/dirty.rs",
        from: "!self.sent.iter().any(|sent| next.overlaps(sent.offset, sent.bytes))",
        to: "true",
    },
    Mutant {
        name: "leases that have ended drop nothing",
        file: "crates/holder/src/recall.rs",
        from: "(state.cached.drop_all(), opens)",
        to: "(Vec::new(), opens)",
    },
    Mutant {
        name: "an answer is kept that crossed a recall",
        file: "crates/holder/src/changes.rs",
        from: "            && self.ended[slot(key)] <= since.0\n",
        to: "",
    },
    Mutant {
        name: "a request does not wait for bytes that were kept back",
        file: "crates/holder/src/ordering.rs",
        from: "        let mut all = self.dirty.all();\n        if all.is_empty()",
        to: "        let mut all = Vec::new();\n        if all.is_empty()",
    },
    Mutant {
        name: "no program is told that bytes were lost",
        file: "crates/holder/src/write_behind.rs",
        from: "            self.opens.note_error(ino, code);\n",
        to: "            let _not_told = code;\n",
    },
    Mutant {
        name: "bytes are written although their lease was lost",
        file: "crates/server/src/service/shared.rs",
        from: "if era.is_some() && is_lost {",
        to: "if era.is_some() && is_lost && call.context.mutation == u64::MAX {",
    },
    Mutant {
        name: "a file is shown while another session keeps back its bytes",
        file: "crates/server/src/service/leases.rs",
        from: "self.leases.written_by_others(session, shown)",
        to: "self.leases.written_by_others(session, shown.take(0))",
    },
    Mutant {
        name: "the lease on bytes is granted while another session has the file open",
        file: "crates/data/src/open_table.rs",
        from: "shared.user == Some(session) && shared.opens > 0 && shared.openers == shared.opens",
        to: "shared.opens > 0 && session != SessionId::DIRECT",
    },
    Mutant {
        name: "a lease is granted on what was read before a change by another session",
        file: "crates/proto/src/leases/recency.rs",
        from: "since < if author == session { other } else { last }",
        to: "since > LeaseMoment(u64::MAX - 1) && author != session && other > last",
    },
    Mutant {
        name: "a lease is granted while another session changes the same",
        file: "crates/proto/src/leases/grantor.rs",
        from: "if !changes.unwrap_or(&[]).iter().all(is_author)",
        to: "if !changes.unwrap_or(&[]).iter().take(0).all(is_author)",
    },
    Mutant {
        name: "a change does not wait for recalls",
        file: "crates/proto/src/leases/grantor.rs",
        from: "        waits += recalls.len();\n",
        to: "        waits += 0;\n",
    },
    Mutant {
        name: "leases last a term from the answer, not from the request",
        file: "crates/net/src/remote/lease_clock.rs",
        from: "let until = asked + lease * 63 / 64;",
        to: "let until = boot_time().max(asked) + lease * 2;",
    },
    Mutant {
        name: "the server ends leases before their client does",
        file: "crates/net/src/sessions.rs",
        from: "session.leases_ended(now, lease_limit)",
        to: "session.leases_ended(now, self.lease / 16)",
    },
    Mutant {
        name: "the next run takes what this one has refused",
        file: "crates/server/src/service/session_end.rs",
        from: "                this.record_write_eras(&[(session, era)]);\n",
        to: "                let _forgotten = era;\n",
    },
    Mutant {
        name: "what was answered is forgotten before it is safe",
        file: "crates/proto/src/session/client.rs",
        from: "stamp.epoch == self.safe.epoch && stamp.sequence <= self.safe.sequence",
        to: "stamp.epoch == self.safe.epoch && stamp.sequence <= self.safe.sequence + 1_000",
    },
    Mutant {
        name: "other requests do not wait for sessions of the last run",
        file: "crates/server/src/service/starting.rs",
        from: "        if let Some(parked) = self.parts.grace.park(parked, is_placed) {",
        to: "        if is_placed || true {",
    },
    Mutant {
        name: "what the last run has carried out is carried out again",
        file: "crates/server/src/service/replay.rs",
        from: "let may_be_stored = replayed || self.is_of_earlier_epoch(context);",
        to: "let may_be_stored = !replayed && context.mutation == u64::MAX;",
    },
    Mutant {
        name: "two sessions hold one lock",
        file: "crates/proto/src/locks/ranges.rs",
        from: "            LockMode::Write => [Some(&self.writes), Some(&self.reads)],",
        to: "            LockMode::Write => [None, Some(&self.reads)],",
    },
    Mutant {
        name: "locks are not set again after a restart",
        file: "crates/net/src/remote/reclaim.rs",
        from: "        self.locks.begin_reclaim();\n",
        to: "",
    },
    Mutant {
        name: "a mount trusts its lock for 0.3 s after it was lost",
        file: "crates/net/src/remote/locks.rs",
        from: "        let is_lost = |open| self.locks.is_lost(open);\n",
        to: TRUSTS_TOO_LONG,
    },
    Mutant {
        name: "a lock that is given up while it is lost was not lost",
        file: "crates/proto/src/locks/client.rs",
        from: "self.under_way.clear().filter(|unlocking| !unlocking.opens.is_empty())",
        to: "self.under_way.clear().take(0)",
    },
];

/// Returns the names and files of mutants whose text is not once in its file, as `text_of` returns
/// that: the file has changed since.
pub(crate) fn stale<'a>(
    text_of: impl Fn(&str) -> Option<&'a str>,
) -> Vec<(&'static str, &'static str)> {
    let count = |mutant: &Mutant| text_of(mutant.file).map(|it| it.matches(mutant.from).count());
    let tested = guests::TESTED.iter().chain(sites::TESTED).chain(mirrors::TESTED);
    let tested = tested.map(|tested| &tested.mutant);
    let of_runs = MUTANTS.iter().chain(guests::MUTANTS).chain(sites::MUTANTS);
    let all = of_runs.chain(tested).chain(invariants::mutants());
    let stale = all.filter(|mutant| count(mutant) != Some(1));
    stale.map(|mutant| (mutant.name, mutant.file)).collect()
}

/// Plants each bug whose name has the first argument in it, all if there is none, in a copy of the
/// sources.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    let filter = match arguments {
        [] => "",
        [filter] => filter.as_str(),
        _ => return Err("takes one word of the names of mutants".to_owned()),
    };
    let copy = Copy::make()?;
    let mut tried = 0;
    let mut left = invariants::run(&copy, filter, &mut tried)?;
    for mutant in MUTANTS.iter().filter(|mutant| mutant.name.contains(filter)) {
        tried += 1;
        let found = copy.with(mutant, || {
            build(&copy, mutant.name)?;
            simulate(&mut program(&copy, SEEDS))
        })?;
        note(found, mutant.name, &mut left);
    }
    for group in &GROUPS {
        run_group(group, &copy, filter, &mut tried, &mut left)?;
    }
    left.iter().for_each(|line| println!("{line}"));
    println!("{tried} bugs planted, {} not found", left.len());
    verdict(left.is_empty())
}

/// Bugs that are all in one build, which takes minutes.
struct Group {
    /// The name of the build.
    name: &'static str,
    /// The bugs that the simulation finds, and its seeds.
    mutants: &'static [Mutant],
    seeds: &'static [&'static str],
    /// The bugs that tests of the server find.
    tested: &'static [Tested],
}

const GROUPS: [Group; 3] = [
    Group {
        name: "all bugs of guests",
        mutants: guests::MUTANTS,
        seeds: GUEST_SEEDS,
        tested: guests::TESTED,
    },
    Group {
        name: "all bugs of sites",
        mutants: sites::MUTANTS,
        seeds: SITE_SEEDS,
        tested: sites::TESTED,
    },
    Group { name: "all bugs of mirrors", mutants: &[], seeds: SITE_SEEDS, tested: mirrors::TESTED },
];

/// Plants each bug of a group whose name has the filter in it.
fn run_group(
    group: &Group,
    copy: &Copy,
    filter: &str,
    tried: &mut u32,
    left: &mut Vec<String>,
) -> Result<(), String> {
    let Group { name, mutants, seeds, tested } = group;
    let is_meant = |mutant: &Mutant| mutant.name.contains(filter);
    let all: Vec<&Mutant> =
        mutants.iter().chain(tested.iter().map(|tested| &tested.mutant)).collect();
    if !all.iter().any(|mutant| is_meant(mutant)) {
        return Ok(());
    }
    copy.with_all(&all, || {
        if mutants.iter().any(is_meant) {
            build(copy, name)?;
        }
        for (number, mutant) in mutants.iter().enumerate() {
            if is_meant(mutant) {
                *tried += 1;
                let mut run = program(copy, seeds);
                let found = simulate(run.env(planted::SWITCHED, number.to_string()))?;
                note(found, mutant.name, left);
            }
        }
        for (index, tested) in tested.iter().enumerate() {
            let Tested { mutant, test, .. } = tested;
            if is_meant(mutant) {
                *tried += 1;
                match fails(copy, tested, mutants.len() + index)? {
                    true => println!("found by {test}: {}", mutant.name),
                    false => left.push(format!("not found by {test}: {}", mutant.name)),
                }
            }
        }
        Ok(())
    })
}

/// Returns whether the test of a bug fails in a copy with the bug of this number.
fn fails(copy: &Copy, tested: &Tested, number: usize) -> Result<bool, String> {
    let Tested { suite, test, .. } = tested;
    let built = [&["test", "--release", "--test", suite], &workspace::ALL[..]].concat();
    let said = copy.cargo_within(BUILD_LIMIT, &[built.as_slice(), &["--no-run"]].concat())?;
    let run = [built.as_slice(), &["--", "--exact", test]].concat();
    let told = copy.cargo_switched(LIMIT, &run, number)?;
    match (told.contains("test result: FAILED. 0 passed; 1 failed"), told.contains("1 passed")) {
        (true, _) => Ok(true),
        (false, true) => Ok(false),
        (false, false) => Err(format!("{test} does not run: {said}{told}")),
    }
}

/// Prints the seed that has found a bug, or adds the bug to those that are left.
fn note(found: Option<String>, name: &str, left: &mut Vec<String>) {
    match found {
        Some(found) => println!("found by {found}: {name}"),
        None => left.push(format!("not found in {MOST_SEEDS} seeds: {name}")),
    }
}

/// Builds the simulation of a copy, in which bugs are planted.
fn build(copy: &Copy, name: &str) -> Result<(), String> {
    let built = copy
        .cargo(&[&["build", "--release", "--bin", "pelago-sim"], &workspace::ALL[..]].concat())?;
    match built.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&built.stderr);
            Err(format!("with `{name}` it does not build: {said}"))
        }
    }
}

/// Returns the simulation of a copy with these arguments.
fn program(copy: &Copy, arguments: &[&str]) -> Command {
    let mut run = Command::new(copy.program("pelago-sim"));
    run.current_dir(copy.root()).args(["1", &MOST_SEEDS.to_string()]).args(arguments);
    run
}

/// Runs a simulation. Returns the seed that fails; `None` if none does.
fn simulate(run: &mut Command) -> Result<Option<String>, String> {
    let run = run.output().map_err(|why| format!("cannot run the simulation: {why}"))?;
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    let seed = said.lines().find_map(|line| line.strip_suffix(" failed:"));
    Ok((!run.status.success()).then(|| seed.unwrap_or("the run as a whole").to_owned()))
}
