//! stress-ng's file system stressors, all at the same time, each of which verifies its work.

use std::fs;

use crate::mounted::Mounted;
use crate::{posix, workspace};

const SECONDS: u32 = 60;

/// Runs the stressors of the class that `conformance/stress-ng/excluded.txt` does not list.
pub(super) fn run(volume: &Mounted) -> Result<(), String> {
    let path = workspace::root().join("conformance/stress-ng/excluded.txt");
    let listed = fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    let excluded: Vec<String> = posix::listed_names(&listed).into_iter().collect();
    let script = format!(
        "mkdir stress && stress-ng --verify --class filesystem --all 1 -t {SECONDS}s --oomable \
         --temp-path stress -x {} && test -z \"$(ls -A stress)\"",
        excluded.join(",")
    );
    let ending = volume.shell("stress", &script)?;
    let said = format!("{}{}", ending.stdout, ending.stderr);
    let failures: Vec<&str> = said.lines().filter(|line| line.contains(": fail:")).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}
