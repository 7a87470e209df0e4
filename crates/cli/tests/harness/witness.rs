//! A witness in a process of its own, which outlives the volume's: the test binary runs itself.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pelago_workload::witness;

/// Set for a test binary that is to be the witness: directory, log and seed, one per line.
const WITNESS: &str = "PELAGO_TEST_WITNESS";

/// Starts a witness that works in a directory. The suite has a test `as_witness` for it, which
/// calls [`work_if_told`].
pub(crate) fn start(suite: &str, dir: &Path, log: &Path, seed: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("{suite}::as_witness"), "--nocapture"]);
    command.env(WITNESS, format!("{}\n{}\n{seed}", dir.display(), log.display()));
    let out = File::create(said(log)).unwrap();
    command.stdin(Stdio::null()).stdout(out).spawn().unwrap()
}

/// Returns the file with what the witness of this log has printed.
pub(crate) fn said(log: &Path) -> PathBuf {
    log.with_extension("out")
}

/// Is the witness, if this process was started as one. Ends with a panic if it has seen what it
/// must not.
pub(crate) fn work_if_told() {
    let Ok(told) = std::env::var(WITNESS) else { return };
    let mut told = told.lines();
    let dir = Path::new(told.next().unwrap());
    let log = Path::new(told.next().unwrap());
    let seed = told.next().unwrap().parse().unwrap();
    match witness::run(dir, log, seed, None) {
        Ok(ran) => println!("answered {}, ended by {:?}", ran.answered, ran.died),
        Err(error) => panic!("{error:?}"),
    }
}
