//! `setup`: what the tests need from Debian and from the crate registry, fetched only if missing;
//! and the hook that looks at a commit before it is made.

mod hook;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use crate::{Answer, machine, process, workspace};

/// Tries of one download: mirrors fail for a moment more often than for good.
const TRIES: u32 = 3;
/// Between two tries.
const PAUSE: Duration = Duration::from_secs(5);
/// One run of apt.
const APT_LIMIT: Duration = Duration::from_secs(180);

/// Makes ready what `test` needs, or says what is missing.
pub(crate) fn run(arguments: &[String]) -> Answer {
    if let Some(unknown) = arguments.first() {
        return Err(format!("takes no arguments, not `{unknown}`"));
    }
    let logs = workspace::target_folder()?.join("xtask");
    std::fs::create_dir_all(&logs).map_err(|why| format!("{}: {why}", logs.display()))?;
    ensure(&logs)?;
    install_hook();
    println!("setup: ready");
    Ok(ExitCode::SUCCESS)
}

/// True if nothing has to be fetched from Debian.
pub(crate) fn is_complete() -> bool {
    machine::find_program("fusermount3").is_some()
}

/// As [`run`], with logs in a folder that exists.
pub(crate) fn ensure(logs: &Path) -> Result<(), String> {
    fetch_crates();
    if !is_complete() {
        install_fuse(logs)?;
    }
    machine::fuse_trouble().map_or(Ok(()), Err)
}

/// Not fatal: CI makes no commits, and a build needs no hook.
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

/// Not fatal: the build that follows says it better if a crate is missing.
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

fn install_fuse(logs: &Path) -> Result<(), String> {
    if !machine::is_root() {
        return Err("fusermount3 is missing: run `sudo apt-get install fuse3`".to_owned());
    }
    let lock = "DPkg::Lock::Timeout=120";
    let install = ["install", "-y", "--no-install-recommends", "fuse3"];
    for attempt in 1..=TRIES {
        println!("setup: apt-get install fuse3, try {attempt} of {TRIES}");
        let updated = apt(logs, "apt-update", &["-o", lock, "update"]);
        let installed = apt(logs, "apt-install", &[["-o", lock].as_slice(), &install].concat());
        if installed && is_complete() {
            return Ok(());
        }
        println!("setup: try {attempt} failed (update {updated}, install {installed})");
        std::thread::sleep(PAUSE);
    }
    Err("fusermount3 is missing and apt-get could not install fuse3; its log is above".to_owned())
}

/// Runs apt-get; prints its log if it fails.
pub(crate) fn apt(logs: &Path, log: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    match process::run_limited(&mut command, &logs.join(log), APT_LIMIT) {
        Ok(ending) if ending.is_success() => true,
        Ok(ending) => {
            println!("apt-get {}: {}", arguments.join(" "), ending.describe());
            println!("{}{}", ending.stdout, ending.stderr);
            false
        }
        Err(why) => {
            println!("{why}");
            false
        }
    }
}
