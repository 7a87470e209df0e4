//! The test binaries: built once, named, each with its budget and limit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::{machine, process, workspace};

/// Seconds a test binary should take on a quiet machine with two cores.
const DEFAULT_BUDGET: u64 = 60;
/// A binary that runs longer hangs.
const DEFAULT_LIMIT: Duration = Duration::from_secs(600);

/// A test binary that needs more than the default, and that `--quick` leaves out.
struct Slow {
    name: &'static str,
    budget: u64,
    limit: Duration,
    why: &'static str,
}

const SLOW: &[Slow] = &[
    slow("crash", 180, "20 rounds of kill -9 under load"),
    slow("kill", 180, "kills and restarts the binary"),
    slow("loss", 180, "power that fails at hundreds of moments"),
    slow("first_minutes", 120, "a newcomer's first minutes, through real mounts"),
    slow("mounted", 180, "the whole file system through the kernel"),
    slow("model", 180, "long random programs against the reference model"),
    slow("readme", 120, "runs the commands of README.md"),
    slow("million", 300, "a directory of a million entries"),
];

const fn slow(name: &'static str, budget: u64, why: &'static str) -> Slow {
    Slow { name, budget, limit: Duration::from_secs(900), why }
}

/// Targets whose failures count at once: what they look for may be lost once in many rounds, and
/// a second run that finds nothing would only hide it.
const COUNTS_AT_ONCE: &[&str] = &["crash", "faults", "kill", "loss", "power"];

/// One executable with tests in it.
pub(crate) struct Suite {
    /// `package::target`; `lib` and `bin` stand for a package's unit tests.
    pub(crate) name: String,
    /// Seconds it should take.
    pub(crate) budget: u64,
    /// When it is killed.
    pub(crate) limit: Duration,
    executable: PathBuf,
    manifest: PathBuf,
    package: String,
}

impl Suite {
    /// The executable as cargo would start it: in its package's folder, told where that is.
    pub(crate) fn command(&self) -> Command {
        let folder = self.manifest.parent().unwrap_or_else(|| Path::new("."));
        let mut command = Command::new(&self.executable);
        command.current_dir(folder).env("PELAGO_TEST", "1");
        command.env("CARGO_MANIFEST_DIR", folder).env("CARGO_MANIFEST_PATH", &self.manifest);
        command.env("CARGO_PKG_NAME", &self.package);
        command
    }

    /// Where its output is kept, without extension.
    pub(crate) fn log(&self, logs: &Path) -> PathBuf {
        logs.join(self.name.replace("::", "-"))
    }

    /// Why `--quick` leaves it out.
    pub(crate) fn why_slow(&self) -> Option<&'static str> {
        slow_entry(&self.name).map(|slow| slow.why)
    }

    /// Whether a test of it that fails has failed, whatever it does when it is run again.
    pub(crate) fn counts_at_once(&self) -> bool {
        COUNTS_AT_ONCE.contains(&target(&self.name))
    }
}

/// `crash` of `pelago-cli::crash`.
fn target(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

fn slow_entry(name: &str) -> Option<&'static Slow> {
    let target = target(name);
    SLOW.iter().find(|slow| slow.name == target)
}

/// Builds every test, then the binary and the examples that tests start.
pub(crate) fn build() -> Result<Vec<Suite>, String> {
    let messages = "--message-format=json-render-diagnostics";
    let stdout = run_build(&["test", "--release", "--workspace", "--no-run", messages])?;
    run_build(workspace::BUILD)?;
    let mut suites = suites_of(&stdout);
    suites.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(suites)
}

/// Builds and returns cargo's messages. With `CI=true` a build that fails is tried once more with
/// one job, in case memory ran out or a download broke.
fn run_build(arguments: &[&str]) -> Result<String, String> {
    let tries: &[&[&str]] = if machine::is_ci() { &[&[], &["--jobs=1"]] } else { &[&[]] };
    let mut why = String::new();
    for more in tries {
        let mut command = workspace::cargo(arguments);
        command.args(*more).stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = command.output().map_err(|why| format!("cannot run cargo: {why}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        why = format!("the build failed ({}): {}", output.status, process::shown(&command));
        println!("{why}\n{}", machine::pressure());
    }
    Err(why)
}

/// The test executables among cargo's messages.
fn suites_of(messages: &str) -> Vec<Suite> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found = messages.filter_map(|message| suite_of(&message));
    // One executable may be announced twice; the last word counts.
    let by_name: BTreeMap<String, Suite> = found.map(|suite| (suite.name.clone(), suite)).collect();
    by_name.into_values().collect()
}

fn suite_of(message: &Value) -> Option<Suite> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let executable = PathBuf::from(message["executable"].as_str()?);
    let manifest = PathBuf::from(message["manifest_path"].as_str()?);
    let package = package_name(message["package_id"].as_str()?, &manifest);
    let target = match message["target"]["kind"][0].as_str()? {
        "test" | "example" | "bench" => message["target"]["name"].as_str()?,
        "bin" => "bin",
        _ => "lib",
    };
    let name = format!("{package}::{target}");
    let entry = slow_entry(&name);
    let budget = entry.map_or(DEFAULT_BUDGET, |slow| slow.budget);
    let limit = entry.map_or(DEFAULT_LIMIT, |slow| slow.limit);
    Some(Suite { name, budget, limit, executable, manifest, package })
}

/// `path+file:///…/crates/cli#pelago-cli@0.1.0`, or `…/xtask#0.1.0` if the folder has its name.
fn package_name(id: &str, manifest: &Path) -> String {
    let fragment = id.rsplit('#').next().unwrap_or(id);
    if let Some((name, _version)) = fragment.split_once('@') {
        return name.to_owned();
    }
    let folder = manifest.parent().and_then(Path::file_name).unwrap_or_default();
    folder.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cargo_messages_become_suites() {
        let artifact = |id: &str, manifest: &str, kind: &str, name: &str, is_test: bool| {
            json!({
                "reason": "compiler-artifact",
                "package_id": id,
                "manifest_path": manifest,
                "target": { "kind": [kind], "name": name },
                "profile": { "test": is_test },
                "executable": is_test.then(|| format!("/p/target/{name}-1")),
            })
        };
        let (cli, own) =
            ("path+file:///p/crates/cli#pelago-cli@0.1.0", "path+file:///p/xtask#0.1.0");
        let messages = [
            artifact(own, "/p/xtask/Cargo.toml", "bin", "xtask", true),
            artifact(cli, "/p/crates/cli/Cargo.toml", "test", "crash", true),
            artifact("registry+x#thiserror@2.0.0", "/r/Cargo.toml", "lib", "thiserror", false),
            json!({ "reason": "build-finished", "success": true }),
        ];
        let messages = messages.map(|message| message.to_string()).join("\n");
        let suites = suites_of(&messages);
        let names: Vec<_> = suites.iter().map(|suite| suite.name.as_str()).collect();
        assert_eq!(names, ["pelago-cli::crash", "xtask::bin"]);
        assert!(suites[0].why_slow().is_some() && suites[0].limit > DEFAULT_LIMIT);
        assert!(suites[0].counts_at_once() && !suites[1].counts_at_once());
        assert!(suites[1].why_slow().is_none() && suites[1].budget == DEFAULT_BUDGET);
    }
}
