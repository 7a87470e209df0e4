//! Runs the binary to its end, collects its output, and kills it at a deadline.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The deadline of a command; a loaded machine needs less.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// The output and exit code of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Fails the test with the output unless the exit code is 0.
    pub(crate) fn expect_success(self) -> Self {
        self.expect_code(0)
    }

    pub(crate) fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Returns the binary with these arguments, in an environment independent of this machine. `home`
/// contains the default volume.
pub(crate) fn pelago<S: AsRef<OsStr>>(home: &Path, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pelago"));
    command.args(args);
    bare(&mut command, home);
    command
}

/// Sets the environment variables that change the output of `pelago`.
pub(crate) fn bare(command: &mut Command, home: &Path) {
    command.env("HOME", home).env("LC_ALL", "C").env_remove("COLUMNS").env_remove("PELAGO_LOG");
    command.env_remove("PELAGO_KEY").env_remove("XDG_CONFIG_HOME").current_dir(home);
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Ran {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let out = hear(child.stdout.take().unwrap());
    let err = hear(child.stderr.take().unwrap());
    let code = wait(&mut child);
    Ran { code, out: out.join().unwrap(), err: err.join().unwrap() }
}

/// Waits for a child, and kills it at the deadline. Returns its exit code; `None` if it was killed.
pub(crate) fn wait(child: &mut Child) -> Option<i32> {
    let until = Instant::now() + DEADLINE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if Instant::now() > until {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until `condition` holds, and fails the test at the deadline.
pub(crate) fn until(what: &str, mut ask: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !ask() {
        assert!(Instant::now() < deadline, "still not: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn hear(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    let listen = move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    thread::Builder::new().spawn(listen).unwrap()
}
