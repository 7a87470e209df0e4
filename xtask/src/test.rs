//! `test`: every test a fresh machine can run.
//!
//! Builds all test binaries once and runs each itself, with a time limit, stdin closed and its
//! output in a file. A test that fails is run again alone: one that then passes is a flaky test,
//! which is a bug; it is listed and does not hide the others. Tests of what a crash may lose are
//! not run again. What a failure needs to be understood from its log alone is printed beside it.
//! The last line is `N passed, N failed, N skipped`.

mod libtest;
mod suite;
mod tally;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use self::libtest::{Report, Verdict};
use self::suite::Suite;
use self::tally::{Failure, Tally};
use crate::process::Ending;
use crate::{VerbResult, machine, process, setup, workspace};

/// How long a binary may take to list its tests.
const LIST_LIMIT: Duration = Duration::from_secs(60);
/// Documentation tests are compiled first, one by one.
const DOC_LIMIT: Duration = Duration::from_secs(1_800);
const DOC_BUDGET: u64 = 120;
/// Runs alone of a test that failed.
const RERUNS: u32 = 2;
/// All reruns together; a build that breaks everything must not take hours to say so.
const RERUN_TOTAL: Duration = Duration::from_secs(900);
/// One test alone.
const RERUN_LIMIT: Duration = Duration::from_secs(300);
/// Of a long output its end is printed, bytes.
const SHOWN_BYTES: usize = 64 * 1024;

/// What the command line asked for.
struct Wanted {
    quick: bool,
    filter: Option<String>,
}

/// One step that ran to an end.
struct Ran<'a> {
    name: &'a str,
    /// Seconds.
    budget: u64,
    ending: Ending,
    report: Report,
}

/// Runs the tests and prints the counts.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    let wanted = parse(arguments)?;
    let start = Instant::now();
    println!("{}", machine::describe());
    let tally = match run_all(&wanted) {
        Ok(tally) => tally,
        Err(why) => {
            println!("\nerror: {why}\n{}", machine::pressure());
            let mut tally = Tally::default();
            tally.fail("preparation", &why);
            tally
        }
    };
    println!("\nall steps: {:.1} s", start.elapsed().as_secs_f64());
    let strict = machine::is_ci() || machine::is_root();
    for remark in tally.remarks(strict) {
        println!("{remark}");
    }
    println!("{}", tally.counts());
    Ok(if tally.is_good(strict) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn parse(arguments: &[String]) -> Result<Wanted, String> {
    let mut wanted = Wanted { quick: false, filter: None };
    for argument in arguments {
        match argument.as_str() {
            "--quick" => wanted.quick = true,
            option if option.starts_with('-') => return Err(format!("no option `{option}`")),
            _ if wanted.filter.is_some() => return Err("takes one filter".to_owned()),
            filter => wanted.filter = Some(filter.to_owned()),
        }
    }
    Ok(wanted)
}

fn run_all(wanted: &Wanted) -> Result<Tally, String> {
    let logs = workspace::target_folder()?.join("xtask");
    std::fs::create_dir_all(&logs).map_err(|why| format!("{}: {why}", logs.display()))?;
    println!("{}", machine::pressure_and_space(&logs));
    if (machine::is_ci() || machine::is_root() && !setup::is_complete())
        && let Err(why) = step("setup", || setup::ensure(&logs))
    {
        // The tests that need it skip, and a skip fails where it matters.
        println!("setup: {why}");
    }
    let suites = step("build", suite::build)?;
    let (suites, test_filter) = select(suites, wanted);
    let mut tally = Tally::default();
    let mut again = Vec::new();
    for suite in &suites {
        let failures = run_suite(suite, test_filter.as_deref(), &logs, &mut tally);
        again.extend(failures.into_iter().map(|failure| (suite, failure)));
    }
    if wanted.filter.is_none() {
        run_doc_tests(&logs, &mut tally);
    }
    rerun(again, &logs, &mut tally);
    if tally.is_empty() {
        return Err("no test ran: nothing has such a name".to_owned());
    }
    Ok(tally)
}

/// Runs one preparation and prints its seconds.
fn step<T>(name: &str, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    println!("\n{name} …");
    let start = Instant::now();
    let result = work();
    println!("{name}: {:.1} s", start.elapsed().as_secs_f64());
    result
}

/// The binaries to run, and the filter to hand them if it names no binary.
fn select(suites: Vec<Suite>, wanted: &Wanted) -> (Vec<Suite>, Option<String>) {
    let (mut suites, mut test_filter) = (suites, None);
    if let Some(filter) = &wanted.filter {
        if suites.iter().any(|suite| suite.name.contains(filter)) {
            suites.retain(|suite| suite.name.contains(filter));
        } else {
            test_filter = Some(filter.clone());
        }
    }
    if wanted.quick {
        suites.retain(|suite| {
            if let Some(why) = suite.why_slow() {
                println!("{}: left out by --quick ({why})", suite.name);
            }
            suite.why_slow().is_none()
        });
    }
    (suites, test_filter)
}

/// Runs one binary, prints its line, counts, and returns what has to be run again.
fn run_suite(
    suite: &Suite,
    test_filter: Option<&str>,
    logs: &Path,
    tally: &mut Tally,
) -> Vec<Failure> {
    let log = suite.log(logs);
    let listed = list(suite, test_filter, &log);
    if test_filter.is_some() && listed.is_empty() {
        return Vec::new();
    }
    println!("{} … {} tests", suite.name, listed.len());
    let mut command = suite.command();
    let ending =
        process::run_limited(command.args(test_filter).arg("--show-output"), &log, suite.limit);
    let ending = match ending {
        Ok(ending) => ending,
        Err(why) => {
            println!("{}: FAILED: {why}", suite.name);
            tally.fail(&suite.name, &why);
            return Vec::new();
        }
    };
    let report = libtest::parse_run(&ending.stdout, &listed);
    conclude(&Ran { name: &suite.name, budget: suite.budget, ending, report }, logs, tally)
}

fn list(suite: &Suite, test_filter: Option<&str>, log: &Path) -> Vec<String> {
    let mut command = suite.command();
    command.args(test_filter).args(["--list", "--format", "terse"]);
    let ending = process::run_limited(&mut command, log, LIST_LIMIT);
    ending.map(|ending| libtest::parse_list(&ending.stdout)).unwrap_or_default()
}

/// Prints and counts what a run said; returns what has to be run again.
fn conclude(ran: &Ran<'_>, logs: &Path, tally: &mut Tally) -> Vec<Failure> {
    let Ran { name, budget, ending, report } = ran;
    let (counts, failures) = tally.count(name, report);
    let seconds = ending.duration.as_secs_f64();
    let over = if seconds > *budget as f64 { ", OVER" } else { "" };
    println!("{name}: {seconds:.1} s (budget {budget} s{over}) {counts}");
    if ending.left_processes {
        println!("{name}: left processes behind; they were killed");
    }
    if failures.is_empty() && ending.is_success() {
        return failures;
    }
    print_failures(ran, &failures, logs);
    if failures.is_empty() {
        // Every test passed, yet the process did not end well: nothing to run again alone.
        tally.fail(name, &ending.describe());
    }
    failures
}

/// Everything a reader needs who has only this log.
fn print_failures(ran: &Ran<'_>, failures: &[Failure], logs: &Path) {
    let Ran { name, ending, report, .. } = ran;
    println!("\n==== {name}: {}", ending.describe());
    println!("{}", machine::pressure_and_space(logs));
    for failure in failures {
        println!("---- {} ({})", failure.full_name, failure.how());
        println!("{}", report.outputs.get(&failure.test).map_or("(no output)", String::as_str));
    }
    if !report.finished {
        println!("---- stdout of {name}\n{}", tail(&ending.stdout));
    }
    println!("---- stderr of {name}\n{}\n====\n", tail(&ending.stderr));
}

/// The end of a long text.
fn tail(text: &str) -> &str {
    let mut from = text.len().saturating_sub(SHOWN_BYTES);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

fn run_doc_tests(logs: &Path, tally: &mut Tally) {
    println!("doc …");
    let doc = ["test", "--release", "--workspace", "--doc", "--no-fail-fast"];
    let mut command = workspace::cargo(&doc);
    let ending =
        process::run_limited(command.env("PELAGO_TEST", "1"), &logs.join("doc"), DOC_LIMIT);
    match ending {
        Ok(ending) => {
            let report = libtest::parse_run(&ending.stdout, &[]);
            let ran = Ran { name: "doc", budget: DOC_BUDGET, ending, report };
            for failure in conclude(&ran, logs, tally) {
                tally.fail(&failure.full_name, failure.how());
            }
        }
        Err(why) => tally.fail("doc", &why),
    }
}

/// Runs each failed test alone, and counts it as what it then is.
fn rerun(again: Vec<(&Suite, Failure)>, logs: &Path, tally: &mut Tally) {
    let start = Instant::now();
    for (suite, failure) in again {
        if suite.counts_at_once() {
            tally.fail(&failure.full_name, failure.how());
            continue;
        }
        let mut passed = None;
        for attempt in 1..=RERUNS {
            if start.elapsed() > RERUN_TOTAL {
                println!("{}: not run again, reruns took too long", failure.full_name);
                break;
            }
            let verdict = run_alone(suite, &failure, attempt, logs);
            if matches!(verdict, Verdict::Passed | Verdict::Skipped(_)) {
                passed = Some(verdict);
                break;
            }
        }
        match passed {
            Some(verdict) => tally.flaky(&failure, verdict),
            None => tally.fail(&failure.full_name, failure.how()),
        }
    }
}

fn run_alone(suite: &Suite, failure: &Failure, attempt: u32, logs: &Path) -> Verdict {
    println!("{}: alone, {attempt} of {RERUNS} …", failure.full_name);
    let mut command = suite.command();
    // Not captured: what a test printed before it aborted is lost otherwise.
    command.args(["--exact", &failure.test, "--nocapture"]);
    let log: PathBuf = logs.join(format!("alone-{attempt}"));
    let ending = match process::run_limited(&mut command, &log, RERUN_LIMIT) {
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
