//! `bench`: builds the binary and runs its own `pelago bench`.

use std::process::Command;

use pelago_testbed::{VerbResult, process, verdict, workspace};

/// The benchmarks of `pelago bench`.
const KINDS: &[&str] = &["meta", "io", "lib", "million", "tree", "find"];

/// Builds the binary and the null file system, then passes all arguments to `pelago bench`.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    let Some((kind, rest)) = arguments.split_first() else {
        return Err(format!("needs one of {}", KINDS.join(", ")));
    };
    if !KINDS.contains(&kind.as_str()) {
        return Err(format!("`{kind}` is none of {}", KINDS.join(", ")));
    }
    if !process::run_foreground(&mut workspace::cargo(workspace::BUILD))?.success() {
        return Err("the binary does not build".to_owned());
    }
    // A `--` only separates our arguments from the binary's.
    let passed = rest.iter().filter(|word| *word != "--");
    let binary = workspace::target_folder()?.join("release/pelago");
    let mut bench = Command::new(binary);
    let status = process::run_foreground(bench.arg("bench").arg(kind).args(passed))?;
    verdict(status.success())
}
