//! Reads the output of a libtest binary.
//!
//! Child processes of tests may write to the same stdout and tear the line of a verdict. The end of
//! the output is not torn: the names come from `--list`, and the summary and the list of failures
//! decide if they are there.

use std::collections::{BTreeMap, BTreeSet};

/// Begins a line that a test prints if it cannot do its work.
const SKIP: &str = "skipped:";

/// The verdict of one test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The test passed.
    Passed,
    /// The test failed.
    Failed,
    /// The test could not do its work, for this reason.
    Skipped(String),
    /// The binary ended before the test had a verdict.
    Lost,
}

/// The parsed output of one run of a test binary.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The verdicts by the names of the tests.
    pub(crate) verdicts: BTreeMap<String, Verdict>,
    /// The output of each test that printed something.
    pub(crate) outputs: BTreeMap<String, String>,
    /// The binary printed its summary.
    pub(crate) finished: bool,
}

/// Returns the names in the output of `--list --format terse`.
pub(crate) fn parse_list(stdout: &str) -> Vec<String> {
    let lines = stdout.lines().filter_map(|line| line.strip_suffix(": test"));
    lines.map(str::to_owned).collect()
}

/// Reads stdout of a run with `--show-output`; `listed` are the tests of the binary.
pub(crate) fn parse_run(stdout: &str, listed: &[String]) -> Report {
    let outputs = sections(stdout);
    let failed = failed_names(stdout);
    let finished = stdout.lines().any(is_summary);
    let mut verdicts = BTreeMap::new();
    for line in stdout.lines() {
        if let Some((name, verdict)) = verdict_line(line) {
            verdicts.insert(name.to_owned(), verdict);
        }
    }
    let silent = if finished { Verdict::Passed } else { Verdict::Lost };
    for name in listed {
        verdicts.entry(name.clone()).or_insert_with(|| silent.clone());
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

/// Reads stdout of one test that ran alone with `--nocapture`: all of it is the test's output.
pub(crate) fn parse_alone(stdout: &str, test: &str) -> Verdict {
    if !stdout.lines().any(|line| line == "running 1 test") {
        return Verdict::Lost;
    }
    let mut report = parse_run(stdout, &[test.to_owned()]);
    let verdict = report.verdicts.remove(test).unwrap_or(Verdict::Lost);
    // The first line of a test's output may follow its name.
    let own = stdout.replacen(&format!("test {test} ... "), "", 1);
    match (verdict, skip_reason(&own)) {
        (Verdict::Passed, Some(reason)) => Verdict::Skipped(reason),
        (verdict, _) => verdict,
    }
}

/// Returns the reason that a skipped test printed.
fn skip_reason(output: &str) -> Option<String> {
    let reason = output.lines().find_map(|line| line.strip_prefix(SKIP))?;
    Some(reason.trim().to_owned())
}

/// Reads `test NAME ... ok`, `FAILED`, `ignored` or `ignored, REASON`.
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

/// Returns the text of each block `---- NAME stdout ----`.
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

/// Returns the names in the last list below `failures:` of each summary.
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
    fn empty_output_is_not_finished() {
        assert!(!parse_run("", &[]).finished);
    }
}
