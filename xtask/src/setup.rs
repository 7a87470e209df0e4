//! `setup`: fetches the packages and crates that the tests need, if they are missing, and installs
//! the pre-commit hook.

mod hook;

use std::path::Path;

use pelago_testbed::tools::{self, PAUSE, TRIES};
use pelago_testbed::{VerbResult, arguments, machine, process, verdict, workspace};

/// The programs that tests run, each with its Debian package.
const PROGRAMS: [(&str, &str); 4] =
    [("fusermount3", "fuse3"), ("getfattr", "attr"), ("bonnie++", "bonnie++"), ("make", "make")];

/// Installs the programs that `test` needs, or returns an error that names the missing ones.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    arguments::none(arguments)?;
    let logs = workspace::target_folder()?.join("xtask");
    std::fs::create_dir_all(&logs).map_err(|why| format!("{}: {why}", logs.display()))?;
    ensure(&logs)?;
    install_hook();
    println!("setup: ready");
    verdict(true)
}

/// Returns whether Debian's packages are there.
pub(crate) fn is_complete() -> bool {
    missing().is_empty()
}

/// Returns the programs that are not in `PATH`, each with its package.
fn missing() -> Vec<(&'static str, &'static str)> {
    let is_missing = |program: &str| machine::find_program(program).is_none();
    PROGRAMS.into_iter().filter(|(program, _)| is_missing(program)).collect()
}

/// Fetches missing programs; the logs go to an existing folder.
pub(crate) fn ensure(logs: &Path) -> Result<(), String> {
    fetch_crates();
    if !is_complete() {
        let packages: Vec<&str> = missing().into_iter().map(|(_, package)| package).collect();
        tools::install_packages(&packages, logs)?;
    }
    let missing: Vec<&str> = missing().into_iter().map(|(program, _)| program).collect();
    if !missing.is_empty() {
        let programs = missing.join(", ");
        return Err(format!("not in PATH, although the packages are installed: {programs}"));
    }
    machine::fuse_trouble().map_or(Ok(()), Err)
}

/// Installs the hook, except in CI. A failure is only printed.
fn install_hook() {
    if machine::is_ci() {
        return;
    }
    match hook::install(&workspace::root()) {
        Ok(true) => println!("setup: installed the hook .git/hooks/pre-commit"),
        Ok(false) => {}
        Err(why) => println!("setup: cannot install the hook .git/hooks/pre-commit: {why}"),
    }
}

/// Downloads the crates. A failure is only printed: the build reports missing crates better.
fn fetch_crates() {
    let Ok(host) = workspace::host() else { return };
    for attempt in 1..=TRIES {
        let status = process::run_foreground(&mut workspace::cargo(&["fetch", "--target", &host]));
        if status.is_ok_and(|status| status.success()) {
            return;
        }
        println!("setup: cargo fetch failed, try {attempt} of {TRIES}");
        std::thread::sleep(PAUSE);
    }
}
