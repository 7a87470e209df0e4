//! `golden`: writes the golden files again, from the present output.

use pelago_testbed::{VerbResult, arguments, process, verdict};

use crate::test;

/// Suites that compare with golden files.
const SUITES: &[&str] = &["golden", "keys", "rows", "vectors"];

/// Runs the golden tests with permission to overwrite their files. A person reads the diff.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    arguments::none(arguments)?;
    let mut passed = true;
    for suite in test::built_suites(SUITES)? {
        let mut command = suite.command("");
        let status = process::run_foreground(command.env("PELAGO_GOLDEN", "accept"))?;
        passed &= status.success();
    }
    println!("golden: read `git diff` before you commit it");
    verdict(passed)
}
