//! The guard of a mount: a small process that ends the mount's connection with the kernel when the
//! process that serves the mount dies (decision 27).
//!
//! The guard is this program under another name, for which [`process`] runs. The main thread must
//! start it: the kernel signals it when the *thread* that started it ends, and only the main thread
//! lives as long as the mount.

use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_mount::Mount;
use pelago_mount::mountinfo::MountEntry;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

pub(crate) mod process;

/// The name of the program as a guard.
const PROGRAM: &str = "pelago-guard";
/// The limit for guards of one mount that are started after the first was killed.
const MOST_REPLACED: u32 = 10;
/// The longest time until a guard is ready, with a reserve for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// The message of a guard that is ready.
const READY: &str = "ready";
/// The limit for the message of a guard.
const WORDS_BYTES: u64 = 4096;
/// The settings of the allocator for a small process with one thread.
const ALLOCATOR: (&str, &str) =
    ("_RJEM_MALLOC_CONF", "background_thread:false,tcache:false,narenas:1");

/// The guard of a mount, or the reason why there is none. Its lock is a leaf.
pub(crate) struct Guard(Mutex<Current>);

struct Current {
    state: State,
    /// The number of guards that were started after the first.
    replaced: u32,
}

enum State {
    Starting(Child),
    Ready(Child),
    Missing(String),
}

impl Guard {
    /// Starts the guard of a mount, without waiting until it is ready. Only the main thread may
    /// call it.
    pub(crate) fn start(mount: &Mount) -> Self {
        if mount.ring().is_ok() {
            write_no_core_dump();
        }
        Self(Mutex::new(Current { state: State::start(mount), replaced: 0 }))
    }

    /// Waits until the guard is ready, or has failed.
    pub(crate) fn wait_until_ready(&self) {
        self.0.lock().state.wait_until_ready();
    }

    /// Starts another guard if the guard has ended before its mount, because it was killed. Only
    /// the main thread may call it.
    pub(crate) fn replace_if_killed(&self, mount: &Mount) {
        let mut current = self.0.lock();
        let State::Ready(child) = &mut current.state else { return };
        let Ok(Some(status)) = child.try_wait() else { return };
        if mount.has_ended() || current.replaced == MOST_REPLACED {
            current.state = State::Missing(format!("it has ended too often, at last by {status}"));
            return;
        }
        tracing::warn!(%status, "the guard of the mount has ended; another one is started");
        current.replaced += 1;
        current.state = State::start(mount);
        current.state.wait_until_ready();
    }

    /// Returns the process id of the guard.
    ///
    /// # Errors
    /// Returns the reason why there is no guard.
    pub(crate) fn pid(&self) -> Result<u32, String> {
        match &mut self.0.lock().state {
            State::Starting(child) | State::Ready(child) => match child.try_wait() {
                Ok(None) => Ok(child.id()),
                Ok(Some(status)) => Err(format!("it has ended: {status}")),
                Err(error) => Err(error.to_string()),
            },
            State::Missing(why) => Err(why.clone()),
        }
    }

    /// Ends the guard, after its mount has ended.
    pub(crate) fn end(&self) {
        let ended = State::Missing("the mount has ended".to_owned());
        let before = std::mem::replace(&mut self.0.lock().state, ended);
        if let State::Starting(mut child) | State::Ready(mut child) = before {
            end(&mut child);
        }
    }
}

impl State {
    fn start(mount: &Mount) -> Self {
        let started = match mount.entry() {
            Some(entry) => spawn(entry).map_err(|error| format!("it cannot be started: {error}")),
            None => Err("the mount is not in the mount table".to_owned()),
        };
        started.map_or_else(Self::Missing, Self::Starting)
    }

    fn wait_until_ready(&mut self) {
        let Self::Starting(child) = self else { return };
        let said =
            child.stdout.take().ok_or_else(|| io::ErrorKind::BrokenPipe.into()).and_then(hear);
        let why = match said.as_deref() {
            Ok(READY) => return self.become_ready(),
            Ok("") => "it ended before it was ready".to_owned(),
            Ok(says) => says.to_owned(),
            Err(error) => format!("it did not become ready: {error}"),
        };
        tracing::warn!(why, "the mount has no guard");
        end(child);
        *self = Self::Missing(why);
    }

    fn become_ready(&mut self) {
        let unknown = Self::Missing(String::new());
        *self = match std::mem::replace(self, unknown) {
            Self::Starting(child) => Self::Ready(child),
            other => other,
        };
    }
}

/// Switches core dumps of this process off, so that it ends at once when a signal kills it. Before
/// a core dump all its threads wait for the last one, and the end of the connection does not free
/// the requests that the kernel has put into the queues of their ring.
fn write_no_core_dump() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::debug!(%error, "a core dump may keep programs waiting");
    }
}

/// Starts this program as the guard of a mount. The guard inherits only one descriptor: its end of
/// a pipe, to which it writes whether it is ready.
fn spawn(mount: &MountEntry) -> io::Result<Child> {
    // The file may have been replaced by a newer version.
    let mut command = Command::new("/proc/self/exe");
    command.arg0(PROGRAM).args(process::arguments(mount, std::process::id()));
    let (variable, value) = ALLOCATOR;
    command.env(variable, value);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn()
}

fn end(child: &mut Child) {
    let ended = child.kill().and_then(|()| child.wait());
    if let Err(error) = ended {
        tracing::debug!(%error, "the guard of the mount cannot be ended");
    }
}

/// Reads the message of a guard until the guard closes the pipe.
fn hear(mut pipe: ChildStdout) -> io::Result<String> {
    let deadline = Instant::now() + PATIENCE;
    let mut said = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| io::ErrorKind::TimedOut)?;
        match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
        }
        let mut some = [0; 256];
        let count = pipe.read(&mut some)?;
        said.extend_from_slice(&some[..count]);
        if count == 0 || said.len() as u64 >= WORDS_BYTES {
            return Ok(String::from_utf8_lossy(&said).into_owned());
        }
    }
}
