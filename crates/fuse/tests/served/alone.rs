//! Tests that need a process of their own: this binary runs them again.

use std::env;
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::until;

/// What the test is that a process of its own runs.
const ALONE: &str = "PELAGO_TEST_ALONE";

/// Returns whether this process runs this test and no other. Otherwise the test runs in another
/// process, and has succeeded there.
pub(crate) fn is_alone(test: &str) -> bool {
    if env::var_os(ALONE).is_some_and(|alone| alone == test) {
        return true;
    }
    let mut killed = Killed(again(test).stdout(Stdio::piped()).spawn().unwrap());
    let status = ended(&mut killed.0);
    let printed = std::io::read_to_string(killed.0.stdout.take().unwrap()).unwrap();
    print!("{printed}");
    assert!(status.success(), "{status}");
    false
}

/// A process that is killed if the test ends before it.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        if let Err(error) = self.0.kill() {
            println!("a process of a test may be left: {error}");
        }
    }
}

/// Returns the command that runs one test of this binary in a process of its own.
pub(crate) fn again(test: &str) -> Command {
    let mut again = Command::new(env::current_exe().unwrap());
    again.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    again.env(ALONE, test).stdin(Stdio::null());
    again
}

/// Waits until a process has ended.
pub(crate) fn ended(child: &mut Child) -> ExitStatus {
    let mut status = None;
    until(|| {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.expect("it has ended")
}
