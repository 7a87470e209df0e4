//! Reading what a libtest binary prints.
//!
//! Child processes of tests may write to the same stdout, so a verdict's line can be torn. What is
//! printed at the end is not: the summary and the list of failures decide wherever they exist, and
//! the names come from `--list`.

use std::collections::{BTreeMap, BTreeSet};

/// A test that cannot run prints a line that begins so, and returns.
const SKIP: &str = "skipped:";

/// How one test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It ran and held.
    Passed,
    /// It ran and did not hold.
    Failed,
    /// It did not run what it is for; the reason.
    Skipped(String),
    /// The binary ended before this test had a verdict.
    Lost,
}

/// What one run of a test binary said.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// By test name.
    pub(crate) verdicts: BTreeMap<String, Verdict>,
    /// What each test printed, if it printed anything.
    pub(crate) outputs: BTreeMap<String, String>,
    /// Every group of tests that began also printed its summary.
    pub(crate) finished: bool,
}

/// The names that `--list --format terse` prints.
pub(crate) fn parse_list(stdout: &str) -> Vec<String> {
    let lines = stdout.lines().filter_map(|line| line.strip_suffix(": test"));
    lines.map(str::to_owned).collect()
}

/// Reads stdout of a run with `--show-output`; `listed` are the tests that should have run.
pub(crate) fn parse_run(stdout: &str, listed: &[String]) -> Report {
    let outputs = sections(stdout);
    let failed = failed_names(stdout);
    let finished = is_finished(stdout);
    let mut verdicts = BTreeMap::new();
    for line in stdout.lines() {
        if let Some((name, verdict)) = verdict_line(line) {
            verdicts.insert(name.to_owned(), verdict);
        }
    }
    let unheard = if finished { Verdict::Passed } else { Verdict::Lost };
    for name in listed {
        verdicts.entry(name.clone()).or_insert_with(|| unheard.clone());
    }
    for name in failed {
        verdicts.insert(name, Verdict::Failed);
    }
    for (name, verdict) in &mut verdicts {
        let reason = outputs.get(name).and_then(|output| skip_reason(output));
        if let (Verdict::Passed, Some(reason)) = (&*verdict, reason) {
            *verdict = Verdict::Skipped(reason);
        }
    }
    Report { verdicts, outputs, finished }
}

/// Reads stdout of one test run by itself with `--nocapture`: all of it is its output.
pub(crate) fn parse_alone(stdout: &str, test: &str) -> Verdict {
    if !stdout.lines().any(|line| line == "running 1 test") {
        return Verdict::Lost;
    }
    let mut report = parse_run(stdout, &[test.to_owned()]);
    let verdict = report.verdicts.remove(test).unwrap_or(Verdict::Lost);
    // The first line that a test prints may follow its name.
    let own = stdout.replacen(&format!("test {test} ... "), "", 1);
    match (verdict, skip_reason(&own)) {
        (Verdict::Passed, Some(reason)) => Verdict::Skipped(reason),
        (verdict, _) => verdict,
    }
}

/// The reason a test printed for not running.
fn skip_reason(output: &str) -> Option<String> {
    let reason = output.lines().find_map(|line| line.strip_prefix(SKIP))?;
    Some(reason.trim().to_owned())
}

/// `test NAME ... ok`, `FAILED`, `ignored` or `ignored, REASON`.
fn verdict_line(line: &str) -> Option<(&str, Verdict)> {
    let (name, said) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let bare = name.split(" - should panic").next().unwrap_or(name);
    let bare = bare.split(" - compile").next().unwrap_or(bare);
    let verdict = match said.trim_end() {
        "ok" => Verdict::Passed,
        "FAILED" => Verdict::Failed,
        "ignored" => Verdict::Skipped("ignored".to_owned()),
        other => Verdict::Skipped(other.strip_prefix("ignored, ")?.to_owned()),
    };
    Some((bare, verdict))
}

/// The blocks `---- NAME stdout ----`.
fn sections(stdout: &str) -> BTreeMap<String, String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let mut open: Option<String> = None;
    for line in stdout.lines() {
        let header = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" ----"));
        if let Some(name) = header.and_then(|header| header.strip_suffix(" stdout")) {
            open = Some(name.to_owned());
        } else if ["successes:", "failures:"].contains(&line) || is_summary(line) {
            open = None;
        } else if let Some(name) = &open {
            let text = found.entry(name.clone()).or_default();
            text.push_str(line);
            text.push('\n');
        }
    }
    found
}

/// The names in each last list below `failures:`.
fn failed_names(stdout: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut block: Option<Vec<String>> = None;
    for line in stdout.lines() {
        if line == "failures:" {
            block = Some(Vec::new());
        } else if is_summary(line) {
            names.extend(block.take().unwrap_or_default());
        } else if let Some(block) = &mut block
            && let Some(name) = line.strip_prefix("    ")
            && !name.starts_with(' ')
        {
            block.push(name.to_owned());
        }
    }
    names
}

fn is_summary(line: &str) -> bool {
    line.starts_with("test result: ")
}

fn is_finished(stdout: &str) -> bool {
    let begun = stdout.lines().filter(|line| {
        let count = line.strip_prefix("running ").and_then(|rest| rest.strip_suffix(" tests"));
        let count = count.or_else(|| line.strip_prefix("running ")?.strip_suffix(" test"));
        count.is_some_and(|count| count.parse::<u64>().is_ok())
    });
    let ended = stdout.lines().filter(|line| is_summary(line)).count();
    ended > 0 && begun.count() <= ended
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "
running 5 tests
test a::holds ... ok
test a::panics - should panic ... ok
test b::later ... ignored, needs a second machine
test b::mount ... ok
test b::breaks ... FAILED

successes:

---- b::mount stdout ----
looking for /dev/fuse
skipped: not here: no /dev/fuse


successes:
    a::holds
    a::panics
    b::mount

failures:

---- b::breaks stdout ----
thread 'b::breaks' panicked at src/lib.rs:1:
    left: 1

note: run with `RUST_BACKTRACE=1`


failures:
    b::breaks

test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s
";

    fn listed(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn every_kind_of_verdict_is_read() {
        let report = parse_run(RUN, &[]);
        assert!(report.finished);
        let verdict = |name: &str| report.verdicts[name].clone();
        assert_eq!(verdict("a::holds"), Verdict::Passed);
        assert_eq!(verdict("a::panics"), Verdict::Passed);
        let reason = "needs a second machine".to_owned();
        assert_eq!(verdict("b::later"), Verdict::Skipped(reason));
        let reason = "not here: no /dev/fuse".to_owned();
        assert_eq!(verdict("b::mount"), Verdict::Skipped(reason));
        assert_eq!(verdict("b::breaks"), Verdict::Failed);
        assert_eq!(report.verdicts.len(), 5);
    }

    #[test]
    fn output_belongs_to_its_test() {
        let report = parse_run(RUN, &[]);
        assert!(report.outputs["b::breaks"].contains("panicked"));
        assert!(!report.outputs["b::breaks"].contains("looking"));
        assert!(report.outputs["b::mount"].contains("looking"));
    }

    /// A torn line loses no test: the list names it and the summary says that all was well.
    #[test]
    fn a_torn_line_is_settled_by_the_summary() {
        let torn = "running 2 tests\ntest one ... daemon: listening\nok\ntest two ... FAILED\n\n\
                    failures:\n\n---- two stdout ----\nno\n\n\nfailures:\n    two\n\n\
                    test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered\n";
        let report = parse_run(torn, &listed(&["one", "two"]));
        assert_eq!(report.verdicts["one"], Verdict::Passed);
        assert_eq!(report.verdicts["two"], Verdict::Failed);
    }

    #[test]
    fn a_binary_that_dies_loses_the_rest() {
        let died = "running 3 tests\ntest one ... ok\ntest two ... ";
        let report = parse_run(died, &listed(&["one", "two", "three"]));
        assert!(!report.finished);
        assert_eq!(report.verdicts["one"], Verdict::Passed);
        assert_eq!(report.verdicts["two"], Verdict::Lost);
        assert_eq!(report.verdicts["three"], Verdict::Lost);
    }

    #[test]
    fn a_failed_test_that_also_says_skipped_has_failed() {
        let said = "running 1 test\ntest one ... FAILED\n\nfailures:\n\n---- one stdout ----\n\
                    skipped: half of it\n\nfailures:\n    one\n\ntest result: FAILED. 0 passed\n";
        assert_eq!(parse_run(said, &[]).verdicts["one"], Verdict::Failed);
    }

    #[test]
    fn one_test_alone_owns_all_output() {
        let said = |middle: &str, end: &str| {
            format!("\nrunning 1 test\ntest a ... {middle}\n\ntest result: {end}. 1 passed;\n")
        };
        assert_eq!(parse_alone(&said("ok", "ok"), "a"), Verdict::Passed);
        assert_eq!(parse_alone(&said("hello\nok", "ok"), "a"), Verdict::Passed);
        let reason = Verdict::Skipped("no moon".to_owned());
        assert_eq!(parse_alone(&said("skipped: no moon\nok", "ok"), "a"), reason);
        assert_eq!(parse_alone("\nrunning 1 test\ntest a ... bye\n", "a"), Verdict::Lost);
        assert_eq!(parse_alone(&said("FAILED", "FAILED"), "a"), Verdict::Failed);
        // Nothing ran, because no test has that name any more.
        let none = "\nrunning 0 tests\n\ntest result: ok. 0 passed;\n";
        assert_eq!(parse_alone(none, "a"), Verdict::Lost);
    }

    #[test]
    fn lists_name_tests_only() {
        assert_eq!(parse_list("a::b: test\nc: benchmark\nx y (line 3): test\n").len(), 2);
    }

    #[test]
    fn nothing_at_all_is_not_finished() {
        assert!(!parse_run("", &[]).finished);
    }
}
