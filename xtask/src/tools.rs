//! Test tools of other people: fetched only if they are missing, the crates at a fixed version.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{machine, process, setup, workspace};

/// A binary crate in `target/tools`, built there from the registry unless that version is there.
pub(crate) fn install_crate(name: &str, version: &str) -> Result<PathBuf, String> {
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

/// Packages of Debian, installed where they are missing, which needs root.
pub(crate) fn install_packages(packages: &[&str], logs: &Path) -> Result<(), String> {
    let missing: Vec<&str> = packages.iter().copied().filter(|name| !is_installed(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let shown = missing.join(" ");
    if !machine::is_root() {
        return Err(format!("needs `sudo apt-get install {shown}`"));
    }
    println!("apt-get install {shown}");
    let options = ["-o", "DPkg::Lock::Timeout=120"];
    let install = ["install", "-y", "--no-install-recommends"];
    // Where the lists are fresh enough, the update may fail.
    setup::apt(logs, "apt-update", &[options.as_slice(), &["update"]].concat());
    let arguments = [options.as_slice(), &install, &missing].concat();
    if setup::apt(logs, "apt-install", &arguments) {
        return Ok(());
    }
    Err(format!("apt-get could not install {shown}; its log is above"))
}

fn is_installed(package: &str) -> bool {
    let said = process::output_of("dpkg-query", &["-W", "-f", "${Status}", package]);
    said.is_some_and(|status| status == "install ok installed")
}
