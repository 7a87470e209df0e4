//! `bench`: the product's own `pelago bench`, built first.

use std::process::{Command, ExitCode};

use crate::{Answer, process, workspace};

/// What `pelago bench` knows to measure.
const KINDS: &[&str] = &["meta", "io", "lib", "million", "tree"];

/// Builds the binary and the null file system, then hands everything to `pelago bench`.
pub(crate) fn run(arguments: &[String]) -> Answer {
    let Some((kind, rest)) = arguments.split_first() else {
        return Err(format!("needs one of {}", KINDS.join(", ")));
    };
    if !KINDS.contains(&kind.as_str()) {
        return Err(format!("`{kind}` is none of {}", KINDS.join(", ")));
    }
    if !process::run_foreground(&mut workspace::cargo(workspace::BUILD))?.success() {
        return Err("the binary does not build".to_owned());
    }
    // `--` only divides our own words from the binary's.
    let passed = rest.iter().filter(|word| *word != "--");
    let binary = workspace::target_folder()?.join("release/pelago");
    let mut bench = Command::new(binary);
    let status = process::run_foreground(bench.arg("bench").arg(kind).args(passed))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
