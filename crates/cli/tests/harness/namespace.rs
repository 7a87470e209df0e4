//! Scripts in a private mount namespace, where a test can fill, hide and freeze file systems
//! without affecting the machine. Needs root.

use std::path::Path;
use std::process::Command;

use rustix::process::geteuid;

use super::program::{Ran, bare, run};

/// Returns the reason to skip a test that needs such a script, if there is one.
pub(crate) fn cannot_isolate() -> Option<String> {
    if !geteuid().is_root() {
        return Some("needs root to have a table of mounts of its own".to_owned());
    }
    let mut probe = Command::new("unshare");
    probe.args(["-m", "mount", "-t", "tmpfs", "none", "/tmp"]);
    let probe = run(&mut probe);
    (probe.code != Some(0)).then(|| format!("not here: no mounts in a namespace: {}", probe.err))
}

/// Runs a shell script in the namespace; `$PELAGO` is the binary, `$ROOT` a folder of the test and
/// HOME.
pub(crate) fn isolated(root: &Path, script: &str) -> Ran {
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-ec", script]);
    bare(&mut command, root);
    command.env("PELAGO", env!("CARGO_BIN_EXE_pelago")).env("ROOT", root);
    run(&mut command)
}
