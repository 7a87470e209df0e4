//! The workspace as cargo describes it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::process;

/// Builds the binary and the examples that tests and benchmarks start. Without xtask: it is
/// running, and a second build of it is of no use.
pub(crate) const BUILD: &[&str] =
    &["build", "--release", "--workspace", "--exclude", "xtask", "--bins", "--examples"];

/// The folder of the workspace: the parent of xtask's own.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("xtask lies inside the workspace").to_path_buf()
}

/// `cargo` in the root of the workspace: the one that started us if there is one.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root()).args(arguments);
    command
}

/// What `cargo metadata` answers, with `arguments` added.
pub(crate) fn metadata(arguments: &[&str]) -> Result<Value, String> {
    let mut command = cargo(&["metadata", "--format-version", "1"]);
    let output = command.args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|why| format!("cannot run cargo metadata: {why}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("cargo metadata failed: {said}"));
    }
    serde_json::from_slice(&output.stdout).map_err(|why| format!("cargo metadata: {why}"))
}

/// Where cargo builds, from `cargo metadata`.
pub(crate) fn target_folder() -> Result<PathBuf, String> {
    let metadata = metadata(&["--no-deps"])?;
    let folder = metadata["target_directory"].as_str();
    folder.map(PathBuf::from).ok_or_else(|| "cargo metadata names no target folder".to_owned())
}

/// The triple of this machine, as `rustc` says it.
pub(crate) fn host() -> Result<String, String> {
    let said = process::output_of("rustc", &["-vV"]).unwrap_or_default();
    let line = said.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".to_owned())
}
