//! The committed lists of tests that do not pass on Pelago, and their comparison with a run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::LISTS;
use super::verdicts::{Verdict, Verdicts};
use crate::posix::listed_names;

/// The names in the lists.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// Tests that are run on neither system.
    excluded: BTreeSet<String>,
    /// Tests that fail on Pelago and not on ext4.
    failing: BTreeSet<String>,
    /// Tests that xfstests does not run on Pelago.
    not_run: BTreeSet<String>,
}

impl Lists {
    pub(super) fn read(folder: &Path) -> Result<Self, String> {
        let read = |name: &str| {
            let path = folder.join(name);
            let text = fs::read_to_string(&path);
            text.map(|text| listed_names(&text)).map_err(|why| format!("{}: {why}", path.display()))
        };
        let [excluded, failing, not_run] = LISTS.map(read);
        Ok(Self { excluded: excluded?, failing: failing?, not_run: not_run? })
    }

    /// Returns the tests that are not excluded.
    pub(super) fn without_excluded(&self, tests: &[String]) -> Vec<String> {
        tests.iter().filter(|test| !self.excluded.contains(*test)).cloned().collect()
    }

    /// Returns a line for each listed name that the group does not have.
    pub(super) fn unknown(&self, group: &[String]) -> Vec<String> {
        let listed = self.excluded.iter().chain(&self.failing).chain(&self.not_run);
        let unknown = listed.filter(|name| !group.contains(name));
        unknown.map(|name| format!("listed and not in the group: {name}")).collect()
    }

    /// Returns a line for each difference between the run and the lists.
    pub(super) fn compare(
        &self,
        tests: &[String],
        ours: &Verdicts,
        theirs: &Verdicts,
    ) -> Vec<String> {
        let one = |test: &String| self.finding(test, ours.of(test), theirs.of(test));
        tests.iter().filter_map(one).collect()
    }

    fn finding(
        &self,
        test: &String,
        ours: Option<&Verdict>,
        theirs: Option<&Verdict>,
    ) -> Option<String> {
        let fails = self.failing.contains(test);
        let is_left_out = self.not_run.contains(test);
        let found = match ours {
            None => format!("has no verdict: {test}"),
            Some(Verdict::Passed) if fails => format!("listed as failing and passed: {test}"),
            Some(Verdict::Passed) if is_left_out => format!("listed as not run and passed: {test}"),
            Some(Verdict::NotRun(why)) if fails => {
                format!("listed as failing and not run: {test}: {why}")
            }
            Some(Verdict::NotRun(why)) if !is_left_out && theirs == Some(&Verdict::Passed) => {
                format!("not run and not listed: {test}: {why}")
            }
            Some(Verdict::Failed(said))
                if !fails && !matches!(theirs, Some(Verdict::Failed(_))) =>
            {
                format!("failed: {test} {}", said.trim_end())
            }
            Some(_) => return None,
        };
        Some(found)
    }
}

/// Returns how many tests pass on ext4 only, in words.
pub(super) fn behind(tests: &[String], ours: &Verdicts, theirs: &Verdicts) -> String {
    let mut failed = 0;
    let mut not_run = 0;
    for test in tests.iter().filter(|test| theirs.of(test) == Some(&Verdict::Passed)) {
        match ours.of(test) {
            Some(Verdict::NotRun(_)) => not_run += 1,
            Some(Verdict::Passed) => {}
            _ => failed += 1,
        }
    }
    format!("{failed} failed, {not_run} not run")
}

#[cfg(test)]
mod tests {
    use super::super::verdicts::Progress;
    use super::*;

    /// The tests 1 to 4 ended so.
    fn verdicts(ends: [&str; 4]) -> Verdicts {
        let lines = ends.iter().zip(1..).map(|(end, test)| format!("generic/{test:03} {end}\n"));
        Progress::parse(&lines.collect::<String>()).verdicts
    }

    fn compare(ours: [&str; 4], theirs: [&str; 4]) -> Vec<String> {
        let lists = Lists {
            excluded: listed_names("generic/005  takes an hour\n"),
            failing: listed_names("generic/002  has no such option\n"),
            not_run: listed_names("generic/003  needs a block device\n"),
        };
        let tests: Vec<String> = (1..=5).map(|test| format!("generic/{test:03}")).collect();
        let tests = lists.without_excluded(&tests);
        assert_eq!(tests.len(), 4);
        lists.compare(&tests, &verdicts(ours), &verdicts(theirs))
    }

    const LISTED: [&str; 4] = ["1s", "[failed]", "[not run] no device", "1s"];

    #[test]
    fn what_is_listed_is_no_finding() {
        assert_eq!(compare(LISTED, ["1s"; 4]), [""; 0]);
        let tests: Vec<String> = (1..=4).map(|test| format!("generic/{test:03}")).collect();
        let counts = behind(&tests, &verdicts(LISTED), &verdicts(["1s"; 4]));
        assert_eq!(counts, "1 failed, 1 not run");
    }

    #[test]
    fn the_lists_are_exact() {
        let found = compare(["1s"; 4], ["1s"; 4]);
        assert!(found[0].starts_with("listed as failing and passed"), "{found:?}");
        assert!(found[1].starts_with("listed as not run and passed"), "{found:?}");
        let found = compare(["[failed]", "[failed]", "[failed]", "[not run] why"], ["1s"; 4]);
        assert!(found[0].starts_with("failed: generic/001"), "{found:?}");
        assert!(found[1].starts_with("failed: generic/003"), "{found:?}");
        assert_eq!(found[2], "not run and not listed: generic/004: why");
    }

    #[test]
    fn a_listed_name_that_the_group_lacks_is_found() {
        let lists = Lists { failing: listed_names("generic/999  why\n"), ..Lists::default() };
        let group = ["generic/001".to_owned()];
        assert_eq!(lists.unknown(&group), ["listed and not in the group: generic/999"]);
    }

    /// A test that ext4 fails says nothing about Pelago; one that ext4 does not run may.
    #[test]
    fn ext4_is_the_measure() {
        let ours = ["[failed]", LISTED[1], LISTED[2], "[not run] why"];
        assert_eq!(compare(ours, ["[failed]", "1s", "1s", "[not run] why"]), [""; 0]);
        let found = compare(ours, ["[not run] why"; 4]);
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
