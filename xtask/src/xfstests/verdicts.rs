//! Verdicts of tests, from the output of xfstests' `check`.

use std::collections::BTreeMap;

use crate::counts::Counts;

/// The verdict of one test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    /// Failed, with the output about it.
    Failed(String),
    /// Was not run, for this reason of xfstests.
    NotRun(String),
}

/// The verdicts by the names of the tests.
#[derive(Debug, Default)]
pub(super) struct Verdicts(BTreeMap<String, Verdict>);

/// The state of a run, from its output so far.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) verdicts: Verdicts,
    /// The test that runs now.
    pub(super) running: Option<String>,
}

impl Progress {
    /// Reads the output: a line begins with the name of a test, its verdict follows when the test
    /// ends, and differences are on indented lines.
    pub(super) fn parse(output: &str) -> Self {
        let mut progress = Self::default();
        // The output after the last test does not belong to it.
        let mut last: Option<String> = None;
        for line in output.split_inclusive('\n') {
            if line.starts_with("generic/") {
                let (name, rest) = line.split_once([' ', '\n']).unwrap_or((line, ""));
                progress.running = None;
                last = Some(name.to_owned());
                if !line.ends_with('\n') {
                    progress.running = Some(name.to_owned());
                    break;
                }
                progress.verdicts.0.insert(name.to_owned(), verdict(rest));
            } else if line.starts_with("Ran:") {
                break;
            } else if let Some(name) = &last {
                progress.verdicts.add(name, line);
            }
        }
        progress
    }
}

impl Verdicts {
    pub(super) fn of(&self, test: &str) -> Option<&Verdict> {
        self.0.get(test)
    }

    pub(super) fn fail(&mut self, test: &str, why: String) {
        self.0.insert(test.to_owned(), Verdict::Failed(why));
    }

    /// Adds the verdicts of another run.
    pub(super) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Returns the numbers of tests; a test that was not run counts as skipped.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for verdict in self.0.values() {
            match verdict {
                Verdict::Passed => counts.passed += 1,
                Verdict::Failed(_) => counts.failed += 1,
                Verdict::NotRun(_) => counts.skipped += 1,
            }
        }
        counts
    }

    /// Adds a line about a test. A test that passed has no further lines.
    fn add(&mut self, test: &str, line: &str) {
        match self.0.get_mut(test) {
            Some(Verdict::Failed(said)) => said.push_str(line),
            Some(verdict @ Verdict::Passed) if !line.trim().is_empty() => {
                *verdict = Verdict::Failed(line.to_owned());
            }
            _ => {}
        }
    }
}

/// Reads the rest of the line after the name: `3s`, `[not run] REASON`, or a failure.
fn verdict(rest: &str) -> Verdict {
    if let Some((_, why)) = rest.split_once("[not run]") {
        return Verdict::NotRun(why.trim().to_owned());
    }
    // The seconds of an earlier run are before the dots.
    let took = rest.rsplit("...").next().unwrap_or_default();
    let seconds = took.trim().strip_suffix('s').unwrap_or_default();
    if !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit()) {
        return Verdict::Passed;
    }
    Verdict::Failed(format!("{}\n", rest.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "FSTYP         -- fuse\n\n\
         generic/001         5s\n\
         generic/003        [failed, exit status 1]- output mismatch (see results)\n    \
         --- a\n    +++ b\n\
         generic/010        [not run] dbtest not built\n\
         generic/011        - output mismatch\n";

    #[test]
    fn verdicts_are_read() {
        let output = format!("{OUTPUT}Ran: generic/001\nNot run: generic/010\n");
        let Progress { verdicts, running } = Progress::parse(&output);
        assert_eq!(verdicts.counts(), Counts { passed: 1, failed: 2, skipped: 1 });
        assert_eq!(verdicts.of("generic/001"), Some(&Verdict::Passed));
        let why = "dbtest not built".to_owned();
        assert_eq!(verdicts.of("generic/010"), Some(&Verdict::NotRun(why)));
        let Some(Verdict::Failed(said)) = verdicts.of("generic/003") else {
            panic!("{verdicts:?}");
        };
        assert!(said.starts_with("[failed, exit status 1]") && said.ends_with("+++ b\n"), "{said}");
        assert_eq!(running, None);
    }

    /// A line without an end is a running test; a complaint after a pass is a failure.
    #[test]
    fn a_running_test_has_no_verdict() {
        let Progress { verdicts, running } = Progress::parse(&format!("{OUTPUT}generic/020    "));
        assert_eq!(running.as_deref(), Some("generic/020"));
        assert_eq!(verdicts.of("generic/020"), None);
        let said = "generic/001  5s\n_check_dmesg: something found in dmesg\n";
        assert_eq!(Progress::parse(said).verdicts.counts().failed, 1);
        let said = "generic/001  5s ...  4s\n";
        assert_eq!(Progress::parse(said).verdicts.counts().passed, 1);
    }
}
