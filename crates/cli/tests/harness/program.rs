//! Running the binary: to its end, with everything it says, and never longer than a deadline.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What hangs longer than this is broken: no machine is so loaded.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// What a program did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// It went well; anything else fails the test with all that was said.
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

/// The binary with these arguments, in an environment that says nothing about this machine. `home`
/// is where a volume without a name would go.
pub(crate) fn pelago<S: AsRef<OsStr>>(home: &Path, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pelago"));
    command.args(args);
    bare(&mut command, home);
    command
}

/// Takes out of a command's environment what changes what `pelago` says.
pub(crate) fn bare(command: &mut Command, home: &Path) {
    command.env("HOME", home).env("LC_ALL", "C").env_remove("COLUMNS").env_remove("PELAGO_LOG");
    command.current_dir(home);
}

/// Runs it to its end.
pub(crate) fn run(command: &mut Command) -> Ran {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let out = hear(child.stdout.take().unwrap());
    let err = hear(child.stderr.take().unwrap());
    let code = wait(&mut child);
    Ran { code, out: out.join().unwrap(), err: err.join().unwrap() }
}

/// Waits for the end of a child; one that does not end by the deadline is killed and has no code.
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

/// Asks until the answer is yes.
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
