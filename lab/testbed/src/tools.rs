//! Tools of other projects that suites need: fetched if they are missing, crates at a fixed
//! version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::{machine, process, workspace};

/// Tries of one download: most failures of mirrors are short.
pub const TRIES: u32 = 3;
/// Pause between two tries.
pub const PAUSE: Duration = Duration::from_secs(5);
/// Most time of one run of apt-get.
const APT_LIMIT: Duration = Duration::from_secs(180);

/// Builds a binary crate into `target/tools`, unless that version is there, and returns the binary.
pub fn install_crate(name: &str, version: &str) -> Result<PathBuf, String> {
    let root = workspace::target_folder()?.join("tools");
    let binary = root.join("bin").join(name);
    let installed = fs::read_to_string(root.join(".crates.toml")).unwrap_or_default();
    if binary.is_file() && installed.contains(&format!("\"{name} {version} (")) {
        return Ok(binary);
    }
    let mut command = workspace::cargo(&["install", name, "--version", version, "--locked"]);
    let status = process::run_foreground(command.arg("--root").arg(&root))?;
    if status.success() { Ok(binary) } else { Err(format!("cargo install {name} failed")) }
}

/// Installs packages of Debian that are missing, which needs root.
pub fn install_packages(packages: &[&str], logs: &Path) -> Result<(), String> {
    let missing: Vec<&str> = packages.iter().copied().filter(|name| !is_installed(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let shown = missing.join(" ");
    if !machine::is_root() {
        return Err(format!("{shown} is missing: run `sudo apt-get install {shown}`"));
    }
    let install = [["install", "-y", "--no-install-recommends"].as_slice(), &missing].concat();
    for attempt in 1..=TRIES {
        println!("apt-get install {shown}, try {attempt} of {TRIES}");
        // The update may fail if the lists are fresh enough for the install.
        apt(logs, "apt-update", &["update"]);
        if apt(logs, "apt-install", &install) {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
    Err(format!("apt-get could not install {shown}; its log is above"))
}

/// Runs apt-get, prints its log if it fails, and returns whether it succeeded.
fn apt(logs: &Path, log: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new("apt-get");
    command.args(["-o", "DPkg::Lock::Timeout=120"]).args(arguments);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    let why = match process::run_limited(&mut command, &logs.join(log), APT_LIMIT) {
        Ok(ending) if ending.is_success() => return true,
        Ok(ending) => format!("{}\n{}{}", ending.describe(), ending.stdout, ending.stderr),
        Err(why) => why,
    };
    println!("apt-get {}: {why}", arguments.join(" "));
    false
}

fn is_installed(package: &str) -> bool {
    let said = process::output_of("dpkg-query", &["-W", "-f", "${Status}", package]);
    said.is_some_and(|status| status == "install ok installed")
}
