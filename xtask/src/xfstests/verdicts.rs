//! How tests ended, from what `check` of xfstests prints.

use std::collections::BTreeMap;

/// How one test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    /// With what was printed about it.
    Failed(String),
    /// With xfstests' own reason.
    NotRun(String),
}

/// Tests by their names.
#[derive(Debug, Default)]
pub(super) struct Verdicts(BTreeMap<String, Verdict>);

/// What was printed so far.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) verdicts: Verdicts,
    /// Test begun last, unless it has ended.
    pub(super) running: Option<String>,
}

impl Progress {
    /// Reads the output: a test's name stands at the beginning of a line, and its verdict behind
    /// it once it has ended; what differs lies on indented lines.
    pub(super) fn parse(output: &str) -> Self {
        let mut progress = Self::default();
        // What is printed behind the last test is none of its own.
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

    /// Takes over what others say.
    pub(super) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Passed, failed, not run.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        let mut counts = (0, 0, 0);
        for verdict in self.0.values() {
            match verdict {
                Verdict::Passed => counts.0 += 1,
                Verdict::Failed(_) => counts.1 += 1,
                Verdict::NotRun(_) => counts.2 += 1,
            }
        }
        counts
    }

    /// Another line about a test. A pass has none.
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

/// Behind the name: `3s`, `[not run] REASON`, or what went wrong.
fn verdict(rest: &str) -> Verdict {
    if let Some((_, why)) = rest.split_once("[not run]") {
        return Verdict::NotRun(why.trim().to_owned());
    }
    // What it took the last time stands before the dots.
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
        assert_eq!(verdicts.counts(), (1, 2, 1));
        assert_eq!(verdicts.of("generic/001"), Some(&Verdict::Passed));
        let why = "dbtest not built".to_owned();
        assert_eq!(verdicts.of("generic/010"), Some(&Verdict::NotRun(why)));
        let Some(Verdict::Failed(said)) = verdicts.of("generic/003") else {
            panic!("{verdicts:?}");
        };
        assert!(said.starts_with("[failed, exit status 1]") && said.ends_with("+++ b\n"), "{said}");
        assert_eq!(running, None);
    }

    /// A line that has no end is a test that goes on; a complaint behind a pass is a failure.
    #[test]
    fn a_test_that_runs_has_no_verdict() {
        let Progress { verdicts, running } = Progress::parse(&format!("{OUTPUT}generic/020    "));
        assert_eq!(running.as_deref(), Some("generic/020"));
        assert_eq!(verdicts.of("generic/020"), None);
        let said = "generic/001  5s\n_check_dmesg: something found in dmesg\n";
        assert_eq!(Progress::parse(said).verdicts.counts(), (0, 1, 0));
        let said = "generic/001  5s ...  4s\n";
        assert_eq!(Progress::parse(said).verdicts.counts(), (1, 0, 0));
    }
}
