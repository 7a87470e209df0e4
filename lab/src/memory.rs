//! `memory`: the resident memory of a volume's process during and after copies of large trees.
//!
//! Each round makes four copies of two trees of small files at the same time, and removes them. The
//! kernel counts both figures: the peak, and the resident memory after a minute without requests.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use pelago_testbed::mounted::{self, Mounted};
use pelago_testbed::{VerbResult, arguments, run_as, verdict};

use crate::kit::process::memory_kib;

const DEFAULT_ROUNDS: u32 = 6;
/// Name and number of files of each tree.
const TREES: [(&str, u64); 2] = [("one", 20_000), ("other", 25_000)];
/// Files in one folder.
const FILES: u64 = 40;
const PEAK_MIB: u64 = 200;
const REST_MIB: u64 = 120;
const REST: Duration = Duration::from_secs(60);

const COPY: &str = r#"
for copy in one.1 other.1 one.2 other.2; do
    cp -r "$SCRATCH/${copy%.*}" "$copy" & copies="${copies-} $!"
done
for copy in $copies; do wait "$copy"; done
"#;
const REMOVE: &str = r#"
for copy in one.1 other.1 one.2 other.2; do
    rm -r "$copy" & copies="${copies-} $!"
done
for copy in $copies; do wait "$copy"; done
"#;

/// Copies and removes trees, and compares the resident memory with its limits.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    run_as::enter("memory", arguments, |run_as, rest| {
        if run_as.is_far() {
            return Err("measures the server's own mount: takes no --far".to_owned());
        }
        let rounds = arguments::count(rest, DEFAULT_ROUNDS, "rounds")?;
        let logs = mounted::log_folder("memory")?;
        let pelago = mounted::build()?;
        measure(Mounted::start(&pelago, &logs, "memory", run_as)?, rounds)
    })
}

fn measure(volume: Mounted, rounds: u32) -> VerbResult {
    for (name, files) in TREES {
        let tree = volume.scratch().join(name);
        make(&tree, files).map_err(|why| format!("{}: {why}", tree.display()))?;
    }
    let pid = volume.pid()?;
    for round in 1..=rounds {
        volume.shell("copy", COPY)?;
        let copied = resident(pid, "VmRSS:")?;
        volume.shell("remove", REMOVE)?;
        let removed = resident(pid, "VmRSS:")?;
        println!("round {round}: {copied} MiB after the copies, {removed} MiB after their removal");
    }
    let peak = resident(pid, "VmHWM:")?;
    thread::sleep(REST);
    let rest = resident(pid, "VmRSS:")?;
    volume.finish()?;
    println!("peak {peak} MiB (limit {PEAK_MIB}), at rest {rest} MiB (limit {REST_MIB})");
    verdict(peak < PEAK_MIB && rest < REST_MIB)
}

/// Makes a tree like a program's source: most files are below 4 KiB, few above 32 KiB.
fn make(tree: &Path, files: u64) -> std::io::Result<()> {
    let bytes: Vec<u8> =
        (0..256 << 10_u32).map(|at: u32| (at.wrapping_mul(at) >> 5) as u8).collect();
    for number in 0..files {
        let folder = tree.join(format!("{}/{}", number / 1000, number / FILES));
        if number % FILES == 0 {
            fs::create_dir_all(&folder)?;
        }
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let size = match spread % 100 {
            0..70 => spread / 100 % 4096,
            70..97 => 4096 + spread / 100 % 28_000,
            _ => 32_768 + spread / 100 % 200_000,
        };
        let size = usize::try_from(size).unwrap_or(0);
        fs::write(folder.join(format!("some-longer-name-{number}.rs")), &bytes[..size])?;
    }
    Ok(())
}

/// Returns a field of `/proc/PID/status` in MiB.
fn resident(pid: u64, field: &str) -> Result<u64, String> {
    memory_kib(pid, field).map(|kib| kib / 1024)
}
