//! `check`: the checks before every commit, without tests.

use std::process::{Command, ExitCode};
use std::time::Instant;

use pelago_testbed::{VerbResult, arguments, process, verdict, workspace};

use crate::tidy;

/// The arguments with which cargo runs rustfmt, here and in the pre-commit hook.
pub(crate) const FMT: &[&str] = &["fmt", "--all", "--check"];
/// The arguments with which cargo runs clippy, here and in the pre-commit hook.
pub(crate) const CLIPPY: &[&str] =
    &["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"];
/// The same of a build without the search index, which no test runs.
const CLIPPY_WITHOUT_SEARCH: &[&str] = &[
    "clippy",
    "--release",
    "--workspace",
    "--no-default-features",
    "--lib",
    "--bins",
    "--",
    "-D",
    "warnings",
];

/// Runs every step, also after a failure, and names the failed ones.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    arguments::none(arguments)?;
    let doc = ["doc", "--release", "--no-deps", "--workspace"];
    let mut failed = Vec::new();
    let mut step = |name: &str, passed: &mut dyn FnMut() -> Result<bool, String>| {
        println!("check: {name}");
        let start = Instant::now();
        let verdict = match passed() {
            Ok(true) => "ok".to_owned(),
            Ok(false) => "FAILED".to_owned(),
            Err(why) => format!("FAILED: {why}"),
        };
        println!("check: {name} {verdict}, {:.1} s", start.elapsed().as_secs_f64());
        if verdict != "ok" {
            failed.push(name.to_owned());
        }
    };
    step("fmt", &mut || component("fmt", &mut workspace::cargo(FMT)));
    // These are workspaces of their own, so no other step builds them. They use public items of the
    // crates, and would stop compiling unnoticed.
    for name in ["fuzz", "schedules"] {
        let manifest = format!("{name}/Cargo.toml");
        let fmt = ["fmt", "--check", "--manifest-path", &manifest];
        step(&format!("fmt of {name}"), &mut || component("fmt", &mut workspace::cargo(&fmt)));
        let check = ["check", "--release", "--manifest-path", &manifest];
        step(name, &mut || succeeds(&mut workspace::cargo(&check)));
    }
    step("clippy", &mut || component("clippy", &mut workspace::cargo(CLIPPY)));
    step("clippy without search", &mut || {
        component("clippy", &mut workspace::cargo(CLIPPY_WITHOUT_SEARCH))
    });
    step("doc", &mut || succeeds(workspace::cargo(&doc).env("RUSTDOCFLAGS", "-D warnings")));
    step("tidy", &mut || tidy::run(&[]).map(|code| code == ExitCode::SUCCESS));
    if failed.is_empty() {
        println!("check: all ok");
    } else {
        println!("check: failed: {}", failed.join(", "));
    }
    verdict(failed.is_empty())
}

/// Runs a step whose tool is an optional component of the toolchain; skips it if it is missing.
fn component(name: &str, command: &mut Command) -> Result<bool, String> {
    let mut probe = workspace::cargo(&[name, "--version"]);
    if !probe.output().is_ok_and(|output| output.status.success()) {
        println!("check: {name} is not installed, left out (rustup component add rustfmt clippy)");
        return Ok(true);
    }
    succeeds(command)
}

fn succeeds(command: &mut Command) -> Result<bool, String> {
    process::run_foreground(command).map(|status| status.success())
}
