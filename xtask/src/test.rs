//! `test`: runs every test that a fresh machine can run.
//!
//! Builds all test binaries once and runs each with a time limit, stdin closed and its output in a
//! file. A failed test is run again alone. If it then passes, it is flaky: a bug, which is listed
//! and does not hide the others. Tests that look for lost data are not run again. Each failure is
//! printed with all that is needed to understand it from the log alone. The last line is `N passed,
//! N failed, N skipped`.

mod libtest;
mod package;
mod suite;
mod tally;

use std::path::Path;
use std::time::{Duration, Instant};

use pelago_testbed::process::Ending;
use pelago_testbed::{VerbResult, machine, process, verdict, workspace};

use self::libtest::{Report, Verdict};
pub(crate) use self::package::Package;
use self::suite::Paths;
pub(crate) use self::suite::{Suite, table_of_suites};
use self::tally::{Failure, Tally};
use crate::io_uring::SwitchedOn;
use crate::setup;

/// Most time in which a binary lists its tests.
const LIST_LIMIT: Duration = Duration::from_secs(60);
/// The number of times that a failed test is run again, alone.
const RERUNS: u32 = 2;
/// Most time of one such run.
const RERUN_LIMIT: Duration = Duration::from_secs(300);
/// Time after which no further test is run again: if everything fails, the report must not take
/// hours.
const RERUN_TOTAL: Duration = Duration::from_secs(900);
/// Bytes of a long output that are printed, from its end.
const SHOWN_BYTES: usize = 64 * 1024;

/// The arguments.
struct Wanted {
    quick: bool,
    /// Only the suites that know other paths, with these; `None` for all suites.
    paths: Option<Paths>,
    filter: Option<String>,
    /// The package that the filter names: only its tests are built.
    package: Option<Package>,
}

/// Runs the tests and prints the counts.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    let mut wanted = parse(arguments)?;
    if let Some((package, rest)) =
        wanted.filter.as_deref().map(Package::named_by).transpose()?.flatten()
    {
        wanted.package = Some(package);
        wanted.filter = rest;
    }
    let start = Instant::now();
    println!("{}", machine::describe());
    let mut tally = Tally::default();
    if let Err(why) = run_all(&wanted, &mut tally) {
        println!("\nerror: {why}\n{}", machine::pressure());
        tally.fail("preparation", &why);
    }
    println!("\nall steps: {:.1} s", start.elapsed().as_secs_f64());
    let is_strict = machine::is_ci() || machine::is_root();
    for remark in tally.remarks(is_strict) {
        println!("{remark}");
    }
    println!("{}", tally.counts());
    verdict(tally.is_good(is_strict))
}

/// Builds all tests, and returns those of one target of a package.
pub(crate) fn built(package: &str, target: &str) -> Result<Suite, String> {
    let name = format!("{package}::{target}");
    let found = suite::build(None)?.into_iter().find(|suite| suite.name == name);
    found.ok_or_else(|| format!("no tests are called {name}"))
}

/// Builds all tests, and returns the suites of these names, whichever package they are of.
pub(crate) fn built_suites(names: &[&str]) -> Result<Vec<Suite>, String> {
    let mut suites = suite::build(None)?;
    suites.retain(|suite| names.contains(&suite.target()));
    if suites.is_empty() {
        return Err(format!("no tests are called {}", names.join(" or ")));
    }
    Ok(suites)
}

fn parse(arguments: &[String]) -> Result<Wanted, String> {
    let mut wanted = Wanted { quick: false, paths: None, filter: None, package: None };
    let usual = Paths { ring: false, passthrough: true };
    for argument in arguments {
        match argument.as_str() {
            "--quick" => wanted.quick = true,
            "--ring" => wanted.paths.get_or_insert(usual).ring = true,
            "--no-passthrough" => wanted.paths.get_or_insert(usual).passthrough = false,
            option if option.starts_with('-') => return Err(format!("no option `{option}`")),
            _ if wanted.filter.is_some() => return Err("takes one filter".to_owned()),
            filter => wanted.filter = Some(filter.to_owned()),
        }
    }
    Ok(wanted)
}

fn run_all(wanted: &Wanted, tally: &mut Tally) -> Result<(), String> {
    let logs = workspace::target_folder()?.join("xtask");
    std::fs::create_dir_all(&logs).map_err(|why| format!("{}: {why}", logs.display()))?;
    println!("{}", machine::pressure_and_space(&logs));
    if (machine::is_ci() || machine::is_root() && !setup::is_complete())
        && let Err(why) = timed("setup", || setup::ensure(&logs))
    {
        // Tests that need it are skipped, and a skip fails the run on such a machine.
        println!("setup: {why}");
    }
    let suites = timed("build", || suite::build(wanted.package.as_ref()))?;
    match wanted.paths {
        Some(paths) => run_by(paths, &suites, wanted, &logs, tally)?,
        None => {
            run_suites(suites.clone(), wanted, &logs, tally);
            // All suites have run with the machine's own switch; these run again by the ring,
            // without passthrough.
            let paths = Paths { ring: true, passthrough: false };
            if let Err(why) = run_by(paths, &suites, wanted, &logs, tally) {
                println!("{why}");
            }
        }
    }
    if tally.is_empty() { Err("no test has such a name".to_owned()) } else { Ok(()) }
}

/// Runs a preparation and prints its seconds.
fn timed<T>(name: &str, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    println!("\n{name} …");
    let start = Instant::now();
    let result = work();
    println!("{name}: {:.1} s", start.elapsed().as_secs_f64());
    result
}

/// Runs the suites that know other paths with these.
///
/// # Errors
/// Why this machine cannot.
fn run_by(
    paths: Paths,
    suites: &[Suite],
    wanted: &Wanted,
    logs: &Path,
    tally: &mut Tally,
) -> Result<(), String> {
    let cannot = |why| format!("no suite with requests over io_uring: {why}");
    let _switched_on = paths.ring.then(SwitchedOn::new).transpose().map_err(cannot)?;
    let suites = suites.iter().filter_map(|suite| suite.by(paths)).collect();
    run_suites(suites, wanted, logs, tally);
    Ok(())
}

/// Runs those of the suites that are wanted, and those tests again that fail.
fn run_suites(suites: Vec<Suite>, wanted: &Wanted, logs: &Path, tally: &mut Tally) {
    let (suites, filter) = select(suites, wanted);
    let mut failed = Vec::new();
    for suite in &suites {
        match run_suite(suite, filter, logs, tally) {
            Ok(failures) => failed.extend(failures.into_iter().map(|failure| (suite, failure))),
            Err(why) => {
                println!("{}: FAILED: {why}", suite.name);
                tally.fail(&suite.name, &why);
            }
        }
    }
    rerun(failed, logs, tally);
}

/// Returns the suites to run. A filter that names no suite is returned too, for their tests.
fn select(mut suites: Vec<Suite>, wanted: &Wanted) -> (Vec<Suite>, Option<&str>) {
    let mut filter = wanted.filter.as_deref();
    if let Some(name) = filter {
        if suites.iter().any(|suite| suite.name.contains(name)) {
            suites.retain(|suite| suite.name.contains(name));
            filter = None;
        }
    } else if wanted.package.is_none()
        && wanted.paths.is_none()
        && !suites.iter().any(Suite::has_paths)
    {
        suites.push(Suite::documentation());
    }
    if wanted.quick {
        suites.retain(|suite| {
            let why = suite.why_slow();
            if let Some(why) = &why {
                println!("{}: left out by --quick ({why})", suite.name);
            }
            why.is_none()
        });
    }
    (suites, filter)
}

/// Runs a suite, prints and counts its verdicts, and returns the failures.
fn run_suite(
    suite: &Suite,
    filter: Option<&str>,
    logs: &Path,
    tally: &mut Tally,
) -> Result<Vec<Failure>, String> {
    let name = &suite.name;
    let log = suite.log(logs);
    let listed = match suite.list(filter) {
        Some(mut list) => {
            let stdout = process::run_limited(&mut list, &log, LIST_LIMIT)?.stdout;
            let listed = libtest::parse_list(&stdout).into_iter();
            listed.filter(|test| suite.has(test)).collect()
        }
        None => Vec::new(),
    };
    if filter.is_some() && listed.is_empty() {
        return Ok(Vec::new());
    }
    println!("{name} … {} tests", listed.len());
    let ending = process::run_limited(&mut suite.run(filter, &listed), &log, suite.limit)?;
    let report = libtest::parse_run(&ending.stdout, &listed);
    let (counts, failures) = tally.count(suite, &report);
    let seconds = ending.duration.as_secs_f64();
    let budget = suite.budget;
    let over = if seconds > budget as f64 { ", OVER" } else { "" };
    println!("{name}: {seconds:.1} s (budget {budget} s{over}) {counts}");
    if ending.left_processes {
        println!("{name}: left processes behind; they were killed");
    }
    if !failures.is_empty() || !ending.is_success() {
        print_failures(name, &ending, &report, &failures, logs);
    }
    if failures.is_empty() && !ending.is_success() {
        // Every test passed and the process failed: no test to run again.
        tally.fail(name, &ending.describe());
    }
    Ok(failures)
}

/// Prints the ending, the outputs of the failed tests, and the state of the machine.
fn print_failures(name: &str, ending: &Ending, report: &Report, failures: &[Failure], logs: &Path) {
    println!("\n==== {name}: {}\n{}", ending.describe(), machine::pressure_and_space(logs));
    for failure in failures {
        println!("---- {} ({})", failure.full_name, failure.how());
        println!("{}", report.outputs.get(&failure.test).map_or("(no output)", String::as_str));
    }
    if !report.finished {
        println!("---- stdout of {name}\n{}", tail(&ending.stdout));
    }
    println!("---- stderr of {name}\n{}\n====\n", tail(&ending.stderr));
}

/// Returns the end of a long text.
fn tail(text: &str) -> &str {
    let mut from = text.len().saturating_sub(SHOWN_BYTES);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

/// Runs each failed test again, alone, and counts the last verdict.
fn rerun(failed: Vec<(&Suite, Failure)>, logs: &Path, tally: &mut Tally) {
    let start = Instant::now();
    for (suite, failure) in failed {
        let attempts = if suite.is_final() { 0 } else { RERUNS };
        let passed = (1..=attempts).find_map(|attempt| {
            if start.elapsed() > RERUN_TOTAL {
                println!("{}: not run again, reruns took too long", failure.full_name);
                return None;
            }
            println!("{}: alone, {attempt} of {RERUNS} …", failure.full_name);
            let verdict = run_alone(suite, &failure, &logs.join(format!("alone-{attempt}")));
            matches!(verdict, Verdict::Passed | Verdict::Skipped(_)).then_some(verdict)
        });
        match passed {
            Some(verdict) => tally.flaky(&failure, verdict),
            None => tally.fail(&failure.full_name, failure.how()),
        }
    }
}

fn run_alone(suite: &Suite, failure: &Failure, log: &Path) -> Verdict {
    let ending = match process::run_limited(&mut suite.alone(&failure.test), log, RERUN_LIMIT) {
        Ok(ending) => ending,
        Err(why) => {
            println!("{}: {why}", failure.full_name);
            return Verdict::Lost;
        }
    };
    let verdict = match libtest::parse_alone(&ending.stdout, &failure.test) {
        verdict if ending.is_success() => verdict,
        _ => Verdict::Failed,
    };
    println!("{}: alone: {verdict:?}, {}", failure.full_name, ending.describe());
    if verdict == Verdict::Failed {
        println!("{}", machine::pressure());
        println!("---- its stdout\n{}", tail(&ending.stdout));
        println!("---- its stderr\n{}\n====\n", tail(&ending.stderr));
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn arguments_are_read_or_refused() {
        let wanted = parse(&words("--quick store::lib")).unwrap();
        assert!(wanted.quick);
        assert_eq!(wanted.filter.as_deref(), Some("store::lib"));
        assert_eq!(wanted.paths, None);
        let wanted = parse(&words("--ring mounted")).unwrap();
        assert_eq!(wanted.paths, Some(Paths { ring: true, passthrough: true }));
        let wanted = parse(&words("--no-passthrough")).unwrap();
        assert_eq!(wanted.paths, Some(Paths { ring: false, passthrough: false }));
        assert!(parse(&words("--slow")).is_err());
        assert!(parse(&words("one two")).is_err());
    }

    #[test]
    fn a_tail_begins_at_a_character() {
        let long = "ä".repeat(SHOWN_BYTES);
        assert!(tail(&long).chars().all(|letter| letter == 'ä'));
        assert!(tail(&format!("{long}x")).len() <= SHOWN_BYTES);
    }
}
