//! Suites: the test binaries, built once, or the modules of one, and the documentation, each with a
//! budget and a limit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use pelago_testbed::{machine, process, workspace};
use serde_json::Value;

use super::libtest;
use super::package::Package;

/// Seconds that a suite should take on a quiet machine with two CPUs.
const DEFAULT_BUDGET: u64 = 60;
/// Time after which a suite hangs.
const DEFAULT_LIMIT: Duration = Duration::from_secs(600);

/// The limit of a slow binary.
const SLOW_LIMIT: Duration = Duration::from_secs(900);
/// Has a binary list its tests.
const LIST: &[&str] = &["--list", "--format", "terse"];
/// Selects all packages but the laboratories: their tests take minutes, and guard what is not
/// shipped. `cargo xtask test lab` runs them.
const WITHOUT_LAB: [&str; 3] = ["--workspace", "--exclude", workspace::LAB];
/// Documentation tests are compiled one by one.
const DOC_LIMIT: Duration = Duration::from_secs(1_800);
const DOC_BUDGET: u64 = 120;

/// A target that `--quick` leaves out.
struct Slow {
    target: &'static str,
    /// Seconds of its slowest binary in the last whole run on two CPUs; and those that it should
    /// take.
    last: u64,
    budget: u64,
    why: &'static str,
}

const SLOW: &[Slow] = &[
    Slow { target: "crash", last: 25, budget: 60, why: "rounds of kill -9 under load" },
    Slow { target: "disaster", last: 52, budget: 60, why: "sites that are lost under load" },
    Slow {
        target: "far",
        last: 227,
        budget: 240,
        why: "other mounts, kills in each operation, and all that a peer can take",
    },
    Slow {
        target: "notices",
        last: 42,
        budget: 90,
        why: "kills servers, mounts and guards under load",
    },
    Slow { target: "loss", last: 13, budget: 60, why: "power that fails at hundreds of moments" },
    Slow {
        target: "first_minutes",
        last: 4,
        budget: 60,
        why: "a newcomer's first minutes, through real mounts",
    },
    Slow {
        target: "mounted",
        last: 57,
        budget: 120,
        why: "the whole file system through the kernel",
    },
    Slow {
        target: "model",
        last: 8,
        budget: 60,
        why: "long random programs against the reference model",
    },
    Slow { target: "readme", last: 1, budget: 60, why: "runs the commands of README.md" },
    Slow {
        target: "restart",
        last: 63,
        budget: 90,
        why: "kills servers under mounts, and waits for terms of ten seconds",
    },
    Slow {
        target: "machines",
        last: 220,
        budget: 300,
        why: "servers, clients and cables that stop for terms of ten seconds, and stores that are \
              taken over after eight",
    },
    Slow {
        target: "two_offices",
        last: 80,
        budget: 120,
        why: "offices whose servers and lines stop for terms of ten seconds",
    },
    Slow {
        target: "soak",
        last: 75,
        budget: 150,
        why: "two offices that work for a minute while servers are killed and the line is cut",
    },
    Slow {
        target: "pairs",
        last: 23,
        budget: 60,
        why: "races of each two mounts, and descriptors that are held meanwhile",
    },
];

/// Targets whose failures are final: a loss of data may show once in many rounds, and a second run
/// without it would hide it.
const FINAL: &[&str] = &["crash", "disaster", "far_crash", "faults", "loss", "power", "soak"];

/// Test binaries with several suites, one for each module at the top. To link a binary takes longer
/// than to compile most suites. Each suite still runs in a process of its own, with its own limit.
const OF_MODULES: &[&str] = &[
    "pelago-cli::failures",
    "pelago-cli::local",
    "pelago-cli::remote",
    "pelago-cli::serving",
    "pelago-server::clients",
    "pelago-server::failures",
    "pelago-server::requests",
];

/// Suites that run once more with other paths of requests and bytes.
const BY_OTHER_PATHS: &[&str] = &[
    "pelago-cli::crash",
    "pelago-cli::joints",
    "pelago-cli::mounted",
    "pelago-cli::notices",
    "pelago-fuse::served",
    "pelago-mount::mounted",
];

/// The paths of requests and bytes between the kernel and a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paths {
    /// True if requests come over io_uring, and not by the device.
    pub(crate) ring: bool,
    /// True if the kernel may read and write large files itself.
    pub(crate) passthrough: bool,
}

/// The tests of one process.
#[derive(Clone)]
pub(crate) struct Suite {
    /// `package::target`, or `package::module`; `lib` and `bin` are a package's unit tests.
    pub(crate) name: String,
    /// Seconds that it should take.
    pub(crate) budget: u64,
    /// Time after which it is killed.
    pub(crate) limit: Duration,
    /// `None` for the tests of the documentation, which cargo runs.
    binary: Option<Binary>,
}

/// A test executable.
#[derive(Clone)]
struct Binary {
    path: PathBuf,
    manifest: PathBuf,
    package: String,
    /// The module whose tests are meant; `None` for all.
    module: Option<String>,
    /// The paths of its mounts; `None` for what this machine uses by itself.
    paths: Option<Paths>,
}

impl Suite {
    fn new(name: String, binary: Binary) -> Self {
        let (budget, limit) =
            slow(&name).map_or((DEFAULT_BUDGET, DEFAULT_LIMIT), |slow| (slow.budget, SLOW_LIMIT));
        Self { name, budget, limit, binary: Some(binary) }
    }

    /// Returns the same tests with these paths; `None` if they know no others.
    pub(crate) fn by(&self, paths: Paths) -> Option<Self> {
        let knows_others = |_: &Binary| BY_OTHER_PATHS.contains(&self.name.as_str());
        let binary = self.binary.clone().filter(knows_others)?;
        Some(Self {
            name: format!("{}.{}", self.name, paths.name()),
            budget: self.budget,
            limit: self.limit,
            binary: Some(Binary { paths: Some(paths), ..binary }),
        })
    }

    /// Returns whether its mounts have other paths than this machine uses by itself.
    pub(crate) fn has_paths(&self) -> bool {
        self.binary.as_ref().is_some_and(|binary| binary.paths.is_some())
    }

    /// Returns the tests in the comments of all libraries.
    pub(crate) fn documentation() -> Self {
        Self { name: "doc".to_owned(), budget: DOC_BUDGET, limit: DOC_LIMIT, binary: None }
    }

    /// Returns the suites of the modules of its binary, or itself if it is not divided.
    ///
    /// # Errors
    /// If the binary does not list its tests.
    fn divided(self) -> Result<Vec<Self>, String> {
        let Some(binary) = self.binary.as_ref() else { return Ok(vec![self]) };
        if !OF_MODULES.contains(&self.name.as_str()) {
            return Ok(vec![self]);
        }
        let mut list = binary.command();
        let listed = list.args(LIST).output().map_err(|why| format!("{}: {why}", self.name))?;
        let tests = libtest::parse_list(&String::from_utf8_lossy(&listed.stdout));
        let modules = tests.iter().filter_map(|test| test.split_once("::"));
        let modules: BTreeSet<&str> = modules.map(|(module, _)| module).collect();
        if modules.is_empty() {
            return Err(format!("{}: no test is in a module", self.name));
        }
        let suite_of = |module: &str| {
            let name = format!("{}::{module}", binary.package);
            Self::new(name, Binary { module: Some(module.to_owned()), ..binary.clone() })
        };
        Ok(modules.into_iter().map(suite_of).collect())
    }

    /// Returns the command that runs these tests. All of a binary that is not divided are run
    /// without their names.
    pub(crate) fn run(&self, filter: Option<&str>, tests: &[String]) -> Command {
        let Some(binary) = &self.binary else {
            let mut command = workspace::cargo(&["test", "--release", "--doc", "--no-fail-fast"]);
            command.args(WITHOUT_LAB);
            command.env("PELAGO_TEST", "1");
            return command;
        };
        let mut command = binary.command();
        match binary.module {
            Some(_) => command.arg("--exact").args(tests),
            None => command.args(filter),
        };
        command.arg("--show-output");
        command
    }

    /// Returns the command that runs the tests whose names begin with this, or all.
    pub(crate) fn command(&self, begin: &str) -> Command {
        let Some(binary) = &self.binary else { return self.run(None, &[]) };
        let mut command = binary.command();
        match &binary.module {
            Some(module) => command.arg(format!("{module}::{begin}")),
            None => command.arg(begin),
        };
        command
    }

    /// Returns the command that lists the tests of its binary; `None` for documentation.
    pub(crate) fn list(&self, filter: Option<&str>) -> Option<Command> {
        let mut command = self.binary.as_ref()?.command();
        command.args(filter).args(LIST);
        Some(command)
    }

    /// Returns whether a test of its binary is one of its own.
    pub(crate) fn has(&self, test: &str) -> bool {
        self.name_within(test).is_some()
    }

    /// Returns the name of a test by which the suite and its name are the full name.
    pub(crate) fn name_within<'t>(&self, test: &'t str) -> Option<&'t str> {
        match self.binary.as_ref().and_then(|binary| binary.module.as_ref()) {
            Some(module) => test.strip_prefix(module.as_str())?.strip_prefix("::"),
            None => Some(test),
        }
    }

    /// Returns the command that runs one test. Its output is not captured, because an abort would
    /// lose it.
    pub(crate) fn alone(&self, test: &str) -> Command {
        let mut command = self.binary.as_ref().map_or_else(|| self.run(None, &[]), Binary::command);
        command.args(["--exact", test, "--nocapture"]);
        command
    }

    /// Returns the path of its logs, without extension.
    pub(crate) fn log(&self, logs: &Path) -> PathBuf {
        logs.join(self.name.replace("::", "-"))
    }

    /// Returns the second part of its name.
    pub(crate) fn target(&self) -> &str {
        target(&self.name)
    }

    /// Returns why `--quick` leaves it out.
    pub(crate) fn why_slow(&self) -> Option<String> {
        slow(&self.name).map(|Slow { why, last, .. }| format!("{why}; {last} s"))
    }

    /// Returns whether a failed test is not run again.
    pub(crate) fn is_final(&self) -> bool {
        self.binary.is_none() || FINAL.contains(&self.target())
    }
}

impl Binary {
    /// Returns the executable as cargo starts it: in its package's folder, with the same
    /// environment.
    fn command(&self) -> Command {
        let folder = self.manifest.parent().unwrap_or_else(|| Path::new("."));
        let mut command = Command::new(&self.path);
        command.current_dir(folder).env("PELAGO_TEST", "1");
        command.env("CARGO_MANIFEST_DIR", folder).env("CARGO_MANIFEST_PATH", &self.manifest);
        command.env("CARGO_PKG_NAME", &self.package);
        if let Some(Paths { ring, passthrough }) = self.paths {
            command.env(if ring { "PELAGO_FUSE_RING" } else { "PELAGO_FUSE_DEVICE" }, "1");
            if !passthrough {
                command.env("PELAGO_TEST_PASSTHROUGH", "never");
            }
        }
        command
    }
}

impl Paths {
    const fn name(self) -> &'static str {
        match (self.ring, self.passthrough) {
            (true, true) => "ring-passthrough",
            (true, false) => "ring",
            (false, true) => "device-passthrough",
            (false, false) => "device",
        }
    }
}

/// Returns the table of the suites that differ from the others, as Markdown.
pub(crate) fn table_of_suites() -> String {
    let others: BTreeSet<&str> = BY_OTHER_PATHS.iter().map(|name| target(name)).collect();
    let mut names: BTreeSet<&str> = SLOW.iter().map(|slow| slow.target).collect();
    names.extend(FINAL);
    names.extend(&others);
    let yes = |is_so: bool| if is_so { "yes" } else { "" };
    let mut table =
        "| suite | budget | last | a failure is final | by io_uring too | slow because |\n\
                     |---|---|---|---|---|---|\n"
            .to_owned();
    for name in names {
        let found = slow(name);
        let budget = found.map_or(DEFAULT_BUDGET, |slow| slow.budget);
        let last = found.map_or_else(String::new, |slow| format!("{} s", slow.last));
        let why = found.map_or("", |slow| slow.why);
        let is_final = yes(FINAL.contains(&name));
        let has_paths = yes(others.contains(name));
        let row =
            format!("| `{name}` | {budget} s | {last} | {is_final} | {has_paths} | {why} |\n");
        table.push_str(&row);
    }
    table
}

/// Returns `crash` of `pelago-cli::crash`, and of `pelago-cli::crash.ring`.
fn target(name: &str) -> &str {
    let target = name.rsplit("::").next().unwrap_or(name);
    target.split('.').next().unwrap_or(target)
}

fn slow(name: &str) -> Option<&'static Slow> {
    SLOW.iter().find(|slow| slow.target == target(name))
}

/// Builds all tests, or those of one package, then the binary and the examples that tests start.
pub(crate) fn build(only: Option<&Package>) -> Result<Vec<Suite>, String> {
    let messages = "--message-format=json-render-diagnostics";
    let mut arguments = vec!["test", "--release", "--no-run", messages];
    let of_package = only.map(Package::build_arguments).unwrap_or_default();
    match only {
        Some(_) => arguments.extend(of_package.iter().map(String::as_str)),
        None => arguments.extend(WITHOUT_LAB),
    }
    let stdout = run_build(&arguments)?;
    // The tests of libraries start neither.
    if only.is_none_or(|package| !package.has_library) {
        run_build(workspace::BUILD)?;
    }
    let divided: Result<Vec<_>, String> =
        suites_of(&stdout).into_iter().map(Suite::divided).collect();
    let mut suites = divided?.concat();
    if let Some(Package { name, .. }) = only {
        suites.retain(|suite| suite.name.split("::").next() == Some(name));
    }
    suites.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(suites)
}

/// Builds and returns cargo's messages. With `CI=true` a failed build is tried once more with one
/// job, in case memory ran out or a download failed.
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

/// Returns the suites of the test executables in cargo's messages.
fn suites_of(messages: &str) -> Vec<Suite> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found = messages.filter_map(|message| suite_of(&message));
    // Cargo may report an executable twice; the last report counts.
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
    Some(Suite::new(
        name,
        Binary { path: executable, manifest, package, module: None, paths: None },
    ))
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
    use std::collections::HashSet;
    use std::fs;

    use serde_json::json;

    use super::*;

    /// Returns the names of all suites of integration tests, as their sources have them.
    fn suites() -> HashSet<String> {
        let metadata = workspace::metadata(&["--no-deps"]).unwrap();
        let mut suites = HashSet::new();
        for package in metadata["packages"].as_array().unwrap() {
            let targets = package["targets"].as_array().unwrap().iter();
            for target in targets.filter(|target| target["kind"][0] == "test") {
                let name = target["name"].as_str().unwrap();
                let package = package["name"].as_str().unwrap();
                let full = format!("{package}::{name}");
                if !OF_MODULES.contains(&full.as_str()) {
                    suites.insert(full);
                    continue;
                }
                let source = fs::read_to_string(target["src_path"].as_str().unwrap()).unwrap();
                let modules = source.lines().filter_map(|line| line.strip_prefix("mod "));
                let name = |module: &str| format!("{package}::{}", module.trim_end_matches(';'));
                suites.extend(modules.map(name));
            }
        }
        suites
    }

    #[test]
    fn each_budget_is_that_of_a_suite_and_is_kept() {
        let suites = suites();
        let has = |wanted: &str| suites.iter().any(|suite| target(suite) == wanted);
        for Slow { target, last, budget, .. } in SLOW {
            assert!(has(target), "{target}");
            assert!(last <= budget, "{target}");
        }
        for target in FINAL {
            assert!(has(target), "{target}");
        }
        for name in BY_OTHER_PATHS {
            assert!(suites.contains(*name), "{name}");
        }
    }

    #[test]
    fn a_suite_of_a_module_has_its_tests_only() {
        let binary = Binary {
            path: PathBuf::from("/p/target/failures-1"),
            manifest: PathBuf::from("/p/crates/cli/Cargo.toml"),
            package: "pelago-cli".to_owned(),
            module: Some("crash".to_owned()),
            paths: None,
        };
        let suite = Suite::new("pelago-cli::crash".to_owned(), binary);
        assert_eq!(suite.name_within("crash::kills::one"), Some("kills::one"));
        assert!(!suite.has("far_crash::one") && !suite.has("crashes::one"));
        let run = suite.run(Some("one"), &["crash::kills::one".to_owned()]);
        let arguments: Vec<_> = run.get_args().collect();
        assert_eq!(arguments, ["--exact", "crash::kills::one", "--show-output"]);
    }

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
        let cli = "path+file:///p/crates/cli#pelago-cli@0.1.0";
        let own = "path+file:///p/xtask#0.1.0";
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
        assert!(suites[0].is_final() && !suites[1].is_final());
        assert!(suites[1].why_slow().is_none() && suites[1].budget == DEFAULT_BUDGET);
    }
}
