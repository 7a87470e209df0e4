//! The counts of verdicts, and the verdict on the run as a whole.

use super::libtest::{Report, Verdict};
use super::suite::Suite;
use crate::counts::Counts;

/// Begins the reason of a skip that is always allowed, because the machine lacks a feature.
const NOT_HERE: &str = "not here:";

/// A test that did not pass in the run of its suite.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// `package::target::test`.
    pub(crate) full_name: String,
    /// The name in its binary.
    pub(crate) test: String,
    /// [`Verdict::Failed`] or [`Verdict::Lost`].
    pub(crate) how: Verdict,
}

impl Failure {
    /// Returns how it failed, in words.
    pub(crate) fn how(&self) -> &'static str {
        match self.how {
            Verdict::Lost => "no verdict: its binary ended before",
            _ => "failed",
        }
    }
}

/// The counts of a whole run. A failure counts after its reruns.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    /// Full name and reason of each skipped test.
    skipped: Vec<(String, String)>,
    flaky: Vec<String>,
    /// Tests, and suites whose process failed.
    failures: Vec<String>,
}

impl Tally {
    /// Counts a report. Returns its counts, and the failures, which the tally does not count yet.
    pub(crate) fn count(&mut self, suite: &Suite, report: &Report) -> (Counts, Vec<Failure>) {
        let mut counts = Counts::default();
        let mut failures = Vec::new();
        for (test, verdict) in &report.verdicts {
            let name = suite.name_within(test).unwrap_or(test);
            let full_name = format!("{}::{name}", suite.name);
            match verdict {
                Verdict::Passed => counts.passed += 1,
                Verdict::Skipped(reason) => {
                    counts.skipped += 1;
                    self.skipped.push((full_name, reason.clone()));
                }
                how @ (Verdict::Failed | Verdict::Lost) => {
                    failures.push(Failure { full_name, test: test.clone(), how: how.clone() });
                }
            }
        }
        self.passed += counts.passed;
        counts.failed = failures.len();
        (counts, failures)
    }

    /// Counts a final failure.
    pub(crate) fn fail(&mut self, name: &str, why: &str) {
        self.failures.push(format!("{name} ({why})"));
    }

    /// Counts a test that failed among others and passed alone, and lists it.
    pub(crate) fn flaky(&mut self, failure: &Failure, verdict: Verdict) {
        let name = &failure.full_name;
        if let Verdict::Skipped(reason) = verdict {
            self.skipped.push((name.clone(), reason));
        } else {
            self.passed += 1;
        }
        self.flaky.push(match failure.how {
            Verdict::Lost => format!("lost: {name} (its binary ended before it, passed alone)"),
            _ => format!("flaky: {name} (failed once, passed alone; its first output above)"),
        });
    }

    /// Returns whether the run has passed. If `strict`, only skips for missing features are
    /// allowed.
    pub(crate) fn is_good(&self, strict: bool) -> bool {
        self.failures.is_empty() && (!strict || self.forbidden().next().is_none())
    }

    /// Returns the lines above the counts: flaky, failed and skipped tests.
    pub(crate) fn remarks(&self, strict: bool) -> Vec<String> {
        let mut lines = self.flaky.clone();
        lines.extend(self.failures.iter().map(|name| format!("failed: {name}")));
        lines.extend(self.skipped.iter().map(|(name, why)| format!("skipped: {name}: {why}")));
        if strict {
            let must = "as root or with CI=true it must run";
            lines.extend(self.forbidden().map(|name| format!("not allowed: {name} ({must})")));
        }
        lines
    }

    /// Returns the skipped tests that this machine could run.
    fn forbidden(&self) -> impl Iterator<Item = &str> {
        let forbidden = self.skipped.iter().filter(|(_, why)| !why.starts_with(NOT_HERE));
        forbidden.map(|(name, _)| name.as_str())
    }

    /// Returns whether nothing was counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.counts() == Counts::default()
    }

    /// Returns the counts of the whole run.
    pub(crate) fn counts(&self) -> Counts {
        let passed = self.passed;
        let failed = self.failures.len();
        let skipped = self.skipped.len();
        Counts { passed, failed, skipped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(verdicts: &[(&str, Verdict)]) -> Report {
        let verdicts = verdicts.iter().map(|(name, verdict)| ((*name).to_owned(), verdict.clone()));
        Report { verdicts: verdicts.collect(), ..Report::default() }
    }

    #[test]
    fn a_failure_counts_after_its_rerun() {
        let mut tally = Tally::default();
        assert!(tally.is_empty());
        let said = [("a", Verdict::Passed), ("b", Verdict::Failed), ("c", Verdict::Lost)];
        let (counts, failures) = tally.count(&Suite::documentation(), &report(&said));
        assert_eq!(counts.to_string(), "1 passed, 2 failed, 0 skipped");
        assert_eq!(tally.counts().to_string(), "1 passed, 0 failed, 0 skipped");
        tally.flaky(&failures[0], Verdict::Passed);
        assert!(tally.is_good(true));
        tally.fail(&failures[1].full_name, failures[1].how());
        assert_eq!(tally.counts().to_string(), "2 passed, 1 failed, 0 skipped");
        assert!(!tally.is_good(false));
    }

    /// Root can run every test for which the machine has the features.
    #[test]
    fn a_skip_is_forbidden_if_the_machine_could_run_the_test() {
        let mut tally = Tally::default();
        let excused = Verdict::Skipped("not here: no passthrough in this kernel".to_owned());
        tally.count(&Suite::documentation(), &report(&[("a", excused)]));
        assert!(tally.is_good(true));
        tally.count(
            &Suite::documentation(),
            &report(&[("b", Verdict::Skipped("needs root".to_owned()))]),
        );
        assert!(tally.is_good(false));
        assert!(!tally.is_good(true));
        assert_eq!(tally.remarks(false).len(), 2);
        assert_eq!(tally.remarks(true).len(), 3);
        assert_eq!(tally.counts().to_string(), "0 passed, 0 failed, 2 skipped");
    }
}
