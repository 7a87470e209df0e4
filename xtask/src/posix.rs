//! `posix`: pjdfstest on a mounted volume. No test may fail, and the skipped tests are exactly
//! those of a committed list with reasons.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use pelago_testbed::mounted::{self, Mounted, OtherFileSystem};
use pelago_testbed::{VerbResult, arguments, machine, run_as, tools, verdict, workspace};

use crate::counts::Counts;

const VERSION: &str = "0.2.2";
/// Debian's packages that linking it needs.
const PACKAGES: &[&str] = &["libacl1-dev"];
/// Reasons of pjdfstest for which an ordinary user may skip a test that is not listed.
const NEEDS_ROOT: &[&str] = &["requires root privileges", "doesn't have the CAP_SYS_ADMIN cap"];

/// Runs pjdfstest on a new volume of each data path, and compares the skipped tests with the list.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    if !machine::is_root() {
        return Err("needs root: it changes users and mounts a second file system".to_owned());
    }
    run_as::enter("posix", arguments, |run_as, rest| {
        arguments::none(rest)?;
        let logs = mounted::log_folder("posix")?;
        let listed = fs::read_to_string(conformance().join("skipped.txt"))
            .map_err(|why| format!("conformance/pjdfstest/skipped.txt: {why}"))?;
        tools::install_packages(PACKAGES, &logs)?;
        let pjdfstest = tools::install_crate("pjdfstest", VERSION)?;
        let pelago = mounted::build()?;
        let mut total = Counts::default();
        let mut is_good = true;
        for path in run_as.paths(&["never", "always"]) {
            let volume = Mounted::start(&pelago, &logs, "posix", &run_as.on(path))?;
            let is_root = !volume.is_of_account();
            let verdicts = run_suite(&pjdfstest, &volume)?;
            let mut findings = verdicts.compare(&listed_names(&listed), is_root);
            findings.extend(volume.finish().err());
            for finding in &findings {
                println!("{finding}");
            }
            println!("{}: {}", run_as.describe(path), verdicts.counts());
            is_good &= findings.is_empty();
            total += verdicts.counts();
        }
        println!("{total}");
        verdict(is_good)
    })
}

fn conformance() -> std::path::PathBuf {
    workspace::root().join("conformance/pjdfstest")
}

/// The names of the tests by their verdicts.
#[derive(Debug, Default)]
struct Verdicts {
    passed: BTreeSet<String>,
    failed: BTreeSet<String>,
    skipped: BTreeSet<String>,
    /// Skipped tests whose reason is that they need root.
    root_only: BTreeSet<String>,
    /// pjdfstest's own last line.
    summary: String,
}

impl Verdicts {
    /// Reads pjdfstest's output: one line per test, with the verdict after the name; reasons and
    /// backtraces are on indented lines.
    fn parse(output: &str) -> Self {
        let mut verdicts = Self::default();
        let mut last = String::new();
        for line in output.lines() {
            if line.starts_with("Summary:") {
                line.clone_into(&mut verdicts.summary);
            }
            if line.starts_with('\t') && NEEDS_ROOT.iter().any(|why| line.contains(why)) {
                verdicts.root_only.insert(last.clone());
            }
            let mut words = line.split_whitespace();
            let name = words.next();
            let verdict = words.next();
            let (Some(name), Some(verdict), None) = (name, verdict, words.next()) else { continue };
            if line.starts_with([' ', '\t']) || !name.contains("::") {
                continue;
            }
            name.clone_into(&mut last);
            match verdict {
                "ok" => verdicts.passed.insert(name.to_owned()),
                "FAILED" => verdicts.failed.insert(name.to_owned()),
                "skipped" => verdicts.skipped.insert(name.to_owned()),
                _ => false,
            };
        }
        verdicts
    }

    /// Returns a line for each difference from the list. An ordinary user may also skip tests that
    /// need root.
    fn compare(&self, listed: &BTreeSet<String>, is_root: bool) -> Vec<String> {
        let mut findings: Vec<String> =
            self.failed.iter().map(|name| format!("failed: {name}")).collect();
        let new = self.skipped.difference(listed);
        let new = new.filter(|name| is_root || !self.root_only.contains(*name));
        findings.extend(new.map(|name| format!("skipped and not listed: {name}")));
        let gone = listed.difference(&self.skipped);
        findings.extend(gone.map(|name| format!("listed as skipped and was not: {name}")));
        let Counts { passed, failed, skipped } = self.counts();
        let expected = format!("Summary: {failed} failed, {skipped} skipped, {passed} passed,");
        if !self.summary.starts_with(&expected) {
            findings.push(format!("its summary is `{}`, not `{expected}`", self.summary));
        }
        findings
    }

    fn counts(&self) -> Counts {
        let Self { passed, failed, skipped, .. } = self;
        Counts { passed: passed.len(), failed: failed.len(), skipped: skipped.len() }
    }
}

/// Runs all tests in the root of the volume, with a tmpfs as the second file system.
fn run_suite(pjdfstest: &Path, volume: &Mounted) -> Result<Verdicts, String> {
    let second = OtherFileSystem::mount(volume.scratch())?;
    let config = volume.bring(&conformance().join("config.toml"))?;
    let mut command = Command::new(volume.bring(pjdfstest)?);
    command.arg("-c").arg(config).arg("-p").arg(volume.point()).arg("-s").arg(volume.scratch());
    command.current_dir(volume.point()).env("NO_COLOR", "1");
    let ending = volume.run("pjdfstest", &mut command)?;
    drop(second);
    let verdicts = Verdicts::parse(&ending.stdout);
    if !ending.is_success() {
        println!("{}{}", ending.stdout, ending.stderr);
        println!("pjdfstest: {}", ending.describe());
    }
    if ending.timed_out || (!ending.is_success() && verdicts.failed.is_empty()) {
        return Err(format!("pjdfstest: {}", ending.describe()));
    }
    Ok(verdicts)
}

/// Returns the first word of each line that is not a comment.
pub(crate) fn listed_names(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xfstests;

    const OUTPUT: &str = "unlink::enotdir::fifo        ok\n\
                          chmod::erofs_named    skipped\n\
                          \tRemounts are not allowed\n\
                          rename::a     FAILED\n\
                          \tassertion failed\n\
                          Backtrace:\n   0: some::frame ok\n\n\
                          Summary: 1 failed, 1 skipped, 1 passed, 0 expected failures, 3 total\n";

    #[test]
    fn verdicts_are_read() {
        let verdicts = Verdicts::parse(OUTPUT);
        assert_eq!(verdicts.counts(), Counts { passed: 1, failed: 1, skipped: 1 });
        let listed = listed_names("# why\n\nchmod::erofs_named  a reason\n");
        assert_eq!(verdicts.compare(&listed, true), ["failed: rename::a"]);
    }

    /// A listed test that ran is a finding, and so is a line that the parser missed.
    #[test]
    fn the_list_of_skipped_tests_is_exact() {
        let output = "a::b ok\nSummary: 0 failed, 0 skipped, 1 passed, 1 total\n";
        let listed = listed_names("x::y  a reason\n");
        let findings = Verdicts::parse(output).compare(&listed, true);
        assert_eq!(findings, ["listed as skipped and was not: x::y"]);
        let output = "x::z skipped\nSummary: 0 failed, 2 skipped, 0 passed, 2 total\n";
        let findings = Verdicts::parse(output).compare(&listed_names("x::z r"), true);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(Verdicts::parse(output).compare(&BTreeSet::new(), true).len(), 2);
    }

    #[test]
    fn an_ordinary_user_may_skip_tests_that_need_root() {
        let output = "a::b skipped\n\trequires root privileges\nc::d skipped\n\tother\n\
                      Summary: 0 failed, 2 skipped, 0 passed, 2 total\n";
        let verdicts = Verdicts::parse(output);
        let found = verdicts.compare(&BTreeSet::new(), false);
        assert_eq!(found, ["skipped and not listed: c::d"]);
        assert_eq!(verdicts.compare(&BTreeSet::new(), true).len(), 2);
    }

    #[test]
    fn every_committed_skip_has_its_reason() {
        let xfstests = xfstests::LISTS.map(|list| format!("xfstests/{list}"));
        let others = ["pjdfstest/skipped.txt", "real/stress-excluded.txt"].map(str::to_owned);
        for list in others.into_iter().chain(xfstests) {
            let path = workspace::root().join("conformance").join(&list);
            let text = fs::read_to_string(path).unwrap();
            for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
                assert!(line.split_whitespace().count() > 2, "{list}: {line}");
            }
        }
    }
}
