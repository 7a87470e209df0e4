//! A description of the machine. It is printed before the tests and beside each failure, because a
//! failure on another machine must be understood from its log.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process;

/// Returns whether `CI=true` or `CI=1`. No person reads warnings there, so they must fail the run.
pub fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true" || value == "1")
}

/// Returns whether our effective user is root.
pub fn is_root() -> bool {
    let ids = status_field("Uid");
    ids.split_whitespace().nth(1) == Some("0")
}

/// Returns the path of a program in `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Returns why `/dev/fuse` cannot be used; `None` if it can.
pub fn fuse_trouble() -> Option<String> {
    let opened = File::options().read(true).write(true).open("/dev/fuse");
    opened.err().map(|why| {
        format!(
            "/dev/fuse cannot be opened ({why}): load the fuse module, or give the container \
             --device /dev/fuse; nothing can be mounted without it"
        )
    })
}

/// Returns one line with load and memory.
pub fn pressure() -> String {
    let load = read_line("/proc/loadavg");
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let wanted = ["MemTotal", "MemAvailable", "SwapFree"];
    let lines = memory.lines().filter(|line| wanted.iter().any(|name| line.starts_with(name)));
    let memory: Vec<String> =
        lines.map(|line| line.split_whitespace().collect::<String>()).collect();
    format!("load {load} · {}", memory.join(" "))
}

/// Returns load, memory, and the free space and inodes below `scratch`, which receives the logs.
pub fn pressure_and_space(scratch: &Path) -> String {
    // A hanging mount elsewhere can stop `df`, hence the limit.
    let ask = |arguments: &[&str]| {
        let mut df = Command::new("df");
        let log = scratch.join("df");
        let ending =
            process::run_limited(df.args(arguments).arg(scratch), &log, Duration::from_secs(10));
        ending.map_or_else(|why| why, |ending| ending.stdout.trim_end().to_owned())
    };
    format!("{}\n{}\n{}", pressure(), ask(&["-h"]), ask(&["-i"]))
}

/// Returns some lines with kernel, toolchain, user, environment and pressure.
pub fn describe() -> String {
    let variable = |name: &str| {
        let value = std::env::var_os(name);
        value.map_or_else(|| format!("{name} unset"), |it| format!("{name}={}", it.display()))
    };
    let fuse = fuse_trouble().unwrap_or_else(|| "/dev/fuse opens".to_owned());
    let helper = find_program("fusermount3");
    let helper = helper.map_or_else(|| "no fusermount3".to_owned(), |it| it.display().to_string());
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let rustc = process::output_of("rustc", &["--version"]).unwrap_or_else(|| "no rustc".into());
    [
        format!("kernel {} · {processors} processors", read_line("/proc/sys/kernel/osrelease")),
        format!("{} · uid {} · umask {}", rustc.trim(), status_field("Uid"), status_field("Umask")),
        ["CI", "HOME", "TMPDIR", "CARGO_TARGET_DIR", "RUSTFLAGS"].map(variable).join(" · "),
        format!("{fuse} · {helper}"),
        pressure(),
    ]
    .join("\n")
}

/// Returns a field of `/proc/self/status`.
fn status_field(name: &str) -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn read_line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}
