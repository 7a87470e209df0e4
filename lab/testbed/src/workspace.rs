//! The workspace, as cargo describes it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::process;

/// The package of the laboratories, which no test needs.
pub const LAB: &str = "pelago-lab";

/// Selects all packages but xtask and the laboratories, one of which runs now. Cargo chooses the
/// features of other crates for all packages that it builds together: a build of one package alone
/// would choose fewer, and build hundreds of crates again.
pub const ALL: [&str; 5] = ["--workspace", "--exclude", "xtask", "--exclude", LAB];

/// Builds the binary and the examples that tests and benchmarks start.
pub const BUILD: &[&str] = &[
    "build",
    "--release",
    "--workspace",
    "--exclude",
    "xtask",
    "--exclude",
    LAB,
    "--bins",
    "--examples",
];

/// Returns the folder of the workspace.
pub fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).expect("the testbed lies two folders below the root").to_path_buf()
}

/// Returns a cargo command in the root of the workspace, with the cargo that started us.
///
/// Cargo describes our package in our environment. Build scripts of other crates depend on these
/// variables, so with them it would build those crates again for each program that starts it.
pub fn cargo(arguments: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root()).args(arguments);
    for (name, _) in std::env::vars_os() {
        let of_package = ["CARGO_PKG_", "CARGO_MANIFEST_"];
        if name.to_str().is_some_and(|name| of_package.iter().any(|it| name.starts_with(it))) {
            command.env_remove(name);
        }
    }
    command
}

/// Builds the targets that the arguments name, in release, and returns the path of a program of
/// them.
pub fn build(arguments: &[&str], program: &str) -> Result<PathBuf, String> {
    let mut command = cargo(&["build", "--release"]);
    let status = process::run_foreground(command.args(ALL).args(arguments))?;
    let program = target_folder()?.join("release").join(program);
    if status.success() { Ok(program) } else { Err("the build failed".to_owned()) }
}

/// Returns the output of `cargo metadata` with these arguments.
pub fn metadata(arguments: &[&str]) -> Result<Value, String> {
    let mut command = cargo(&["metadata", "--format-version", "1"]);
    let output = command.args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|why| format!("cannot run cargo metadata: {why}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("cargo metadata failed: {said}"));
    }
    serde_json::from_slice(&output.stdout).map_err(|why| format!("cargo metadata: {why}"))
}

/// Returns the folder in which cargo builds.
pub fn target_folder() -> Result<PathBuf, String> {
    let metadata = metadata(&["--no-deps"])?;
    let folder = metadata["target_directory"].as_str();
    folder.map(PathBuf::from).ok_or_else(|| "cargo metadata names no target folder".to_owned())
}

/// Returns the target triple of this machine.
pub fn host() -> Result<String, String> {
    let said = process::output_of("rustc", &["-vV"]).unwrap_or_default();
    let line = said.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".to_owned())
}
