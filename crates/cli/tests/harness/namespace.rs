//! Scripts in a private table of mounts, where a test can fill, hide and freeze file systems
//! without touching the machine. Needs root.

use std::path::Path;
use std::process::Command;

use rustix::process::geteuid;

use super::program::{Ran, bare, run};

/// Why there can be no such script here, if so.
pub(crate) fn cannot_isolate() -> Option<String> {
    if !geteuid().is_root() {
        return Some("needs root to have a table of mounts of its own".to_owned());
    }
    let mut probe = Command::new("unshare");
    probe.args(["-m", "mount", "-t", "tmpfs", "none", "/tmp"]);
    let probe = run(&mut probe);
    (probe.code != Some(0)).then(|| format!("not here: no mounts in a namespace: {}", probe.err))
}

/// Runs a shell script there; `$PELAGO` is the binary, `$ROOT` a folder of the test's own and HOME.
pub(crate) fn isolated(root: &Path, script: &str) -> Ran {
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-ec", script]);
    bare(&mut command, root);
    command.env("PELAGO", env!("CARGO_BIN_EXE_pelago")).env("ROOT", root);
    run(&mut command)
}
