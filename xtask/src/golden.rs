//! `golden`: writes golden files anew from what the code says now.

use std::process::ExitCode;

use crate::{Answer, process, workspace};

/// Test targets that compare with golden files.
const TARGETS: &[&str] = &["golden", "rows", "vectors"];

/// Runs the golden tests with leave to overwrite; a person reads the diff.
pub(crate) fn run(arguments: &[String]) -> Answer {
    if let Some(unknown) = arguments.first() {
        return Err(format!("takes no arguments, not `{unknown}`"));
    }
    let mut passed = true;
    for (package, target) in golden_targets()? {
        let test = ["test", "--release", "--package", &package, "--test", &target];
        let mut command = workspace::cargo(&test);
        let status = process::run_foreground(command.env("PELAGO_GOLDEN", "accept"))?;
        passed &= status.success();
    }
    println!("golden: read `git diff` before you commit it");
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Package and test target of each golden test there is.
fn golden_targets() -> Result<Vec<(String, String)>, String> {
    let metadata = workspace::metadata(&["--no-deps"])?;
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        for target in package["targets"].as_array().into_iter().flatten() {
            let name = target["name"].as_str().unwrap_or_default();
            if target["kind"][0] == "test" && TARGETS.contains(&name) {
                let package = package["name"].as_str().unwrap_or_default();
                found.push((package.to_owned(), name.to_owned()));
            }
        }
    }
    if found.is_empty() {
        return Err(format!("no test target is called {}", TARGETS.join(" or ")));
    }
    Ok(found)
}
