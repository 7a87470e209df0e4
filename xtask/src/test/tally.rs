//! Counting: what passed, failed and was skipped, and what that means for the exit code.

use super::libtest::{Report, Verdict};

/// A skip with this reason is allowed everywhere: the machine itself cannot do it.
const NOT_HERE: &str = "not here:";

/// A test that did not pass in its binary's run.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// `package::target::test`.
    pub(crate) full_name: String,
    /// The name its binary knows.
    pub(crate) test: String,
    /// [`Verdict::Failed`] or [`Verdict::Lost`].
    pub(crate) how: Verdict,
}

impl Failure {
    /// In words.
    pub(crate) fn how(&self) -> &'static str {
        match self.how {
            Verdict::Lost => "no verdict: its binary ended before",
            _ => "failed",
        }
    }
}

/// The counts of a whole run. Failures count only once they are settled by their reruns.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Tests that held.
    pub(crate) passed: usize,
    /// Tests, or whole steps, that did not.
    pub(crate) failed: usize,
    /// Full name and reason.
    pub(crate) skipped: Vec<(String, String)>,
    flaky: Vec<String>,
    failures: Vec<String>,
}

impl Tally {
    /// Counts a report; returns its counts in words, and the failures, which are not yet counted.
    pub(crate) fn count(&mut self, suite: &str, report: &Report) -> (String, Vec<Failure>) {
        let (mut passed, mut skipped, mut failures) = (0, 0, Vec::new());
        for (test, verdict) in &report.verdicts {
            let full_name = format!("{suite}::{test}");
            match verdict {
                Verdict::Passed => passed += 1,
                Verdict::Skipped(reason) => {
                    skipped += 1;
                    self.skipped.push((full_name, reason.clone()));
                }
                how @ (Verdict::Failed | Verdict::Lost) => {
                    failures.push(Failure { full_name, test: test.clone(), how: how.clone() });
                }
            }
        }
        self.passed += passed;
        let failed = failures.len();
        (format!("{passed} passed, {failed} failed, {skipped} skipped"), failures)
    }

    /// Counts a failure that stands.
    pub(crate) fn fail(&mut self, name: &str, why: &str) {
        self.failed += 1;
        self.failures.push(format!("{name} ({why})"));
    }

    /// Counts a test that did not pass among others and did alone; it is listed all the same.
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

    /// Whether the run is good. If `strict`, a skipped test is only good if this machine cannot
    /// run it at all.
    pub(crate) fn is_good(&self, strict: bool) -> bool {
        self.failed == 0 && (!strict || self.forbidden().next().is_none())
    }

    /// What a reader must know above the counts, line by line.
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

    /// Skipped tests that this machine could run.
    fn forbidden(&self) -> impl Iterator<Item = &str> {
        let forbidden = self.skipped.iter().filter(|(_, why)| !why.starts_with(NOT_HERE));
        forbidden.map(|(name, _)| name.as_str())
    }

    /// Whether nothing was counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.passed + self.failed + self.skipped.len() == 0
    }

    /// The last line.
    pub(crate) fn counts(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped.len())
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
    fn failures_wait_for_their_rerun() {
        let mut tally = Tally::default();
        assert!(tally.is_empty());
        let said = [("a", Verdict::Passed), ("b", Verdict::Failed), ("c", Verdict::Lost)];
        let (counts, failures) = tally.count("p::t", &report(&said));
        assert_eq!(counts, "1 passed, 2 failed, 0 skipped");
        assert_eq!(tally.counts(), "1 passed, 0 failed, 0 skipped");
        tally.flaky(&failures[0], Verdict::Passed);
        assert!(tally.is_good(true));
        tally.fail(&failures[1].full_name, failures[1].how());
        assert_eq!(tally.counts(), "2 passed, 1 failed, 0 skipped");
        assert!(!tally.is_good(false));
    }

    /// As root everything can run but what this machine cannot do at all.
    #[test]
    fn a_skip_is_forbidden_where_it_could_run() {
        let mut tally = Tally::default();
        let excused = Verdict::Skipped("not here: no passthrough in this kernel".to_owned());
        tally.count("p::t", &report(&[("a", excused)]));
        assert!(tally.is_good(true));
        tally.count("p::t", &report(&[("b", Verdict::Skipped("needs root".to_owned()))]));
        assert!(tally.is_good(false));
        assert!(!tally.is_good(true));
        assert_eq!(tally.remarks(false).len(), 2);
        assert_eq!(tally.remarks(true).len(), 3);
        assert_eq!(tally.counts(), "0 passed, 0 failed, 2 skipped");
    }
}
