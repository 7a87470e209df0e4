//! `golden`: writes the golden files again, from the present output.

use crate::{VerbResult, arguments, process, test, verdict, workspace};

/// Test targets that compare with golden files.
const TARGETS: &[&str] = &["golden", "keys", "rows", "vectors"];

/// Runs the golden tests with permission to overwrite their files. A person reads the diff.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    arguments::none(arguments)?;
    let mut passed = true;
    for (package, target) in golden_targets()? {
        let mut command = test::built(&package, &target)?.command();
        let status = process::run_foreground(command.env("PELAGO_GOLDEN", "accept"))?;
        passed &= status.success();
    }
    println!("golden: read `git diff` before you commit it");
    verdict(passed)
}

/// Returns package and test target of each golden test.
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
