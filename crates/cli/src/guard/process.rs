//! The process of a guard: it waits until its parent, which serves a mount, dies, and then ends the
//! mount's connection with the kernel.
//!
//! The kernel sends a signal when the main thread of the parent ends. While the parent writes a
//! core dump that does not happen: its threads wait for one that may be waiting for this guard. So
//! the guard also checks the state of the parent once a second.
//!
//! The guard leads a session of its own, and only `kill -9` ends it, so that neither a Ctrl-C for
//! its parent nor the stop of a service ends it first. It has no descriptor besides those for the
//! end of the connection, and neither a current folder nor a terminal.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, io};

use pelago_mount::connection::{AbortError, Aborter};
use pelago_mount::mountinfo::{FS_TYPE, MountEntry};
use rustix::process::{Signal, chdir, getppid, set_parent_process_death_signal, setsid};
use rustix::thread::{NanosleepRelativeResult, Timespec, nanosleep, set_name};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::{PROGRAM, READY};
use crate::dying;

/// The signal that the kernel sends when the main thread of the parent has ended.
const PARENT_ENDED: Signal = Signal::USR1;
/// Signals that end the parent, or its service, and must not end its guard.
const NOT_FOR_US: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
/// The pause between two checks of the parent without a signal.
const PAUSE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// The pause after a signal, which arrives a moment before the state of the parent changes.
const SHORT_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// The number of checks after a signal. Another process may have sent it.
const LOOKS: u32 = 100;
/// The first descriptor that is not a standard one.
const FIRST_OTHER: i32 = 3;

/// An error after which a process cannot be a guard.
#[derive(Debug, thiserror::Error)]
enum GuardError {
    #[error("{PROGRAM} is started by `pelago up` and `pelago mount` alone")]
    Usage,
    #[error("its parent has ended")]
    NoParent,
    #[error(transparent)]
    Abort(#[from] AbortError),
    #[error("{what} fails: {source}")]
    System {
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

/// The arguments of a guard.
#[derive(Debug, PartialEq, Eq)]
struct Post {
    mount: MountEntry,
    parent: u32,
}

/// Returns the arguments of a guard.
pub(super) fn arguments(mount: &MountEntry, parent: u32) -> [OsString; 4] {
    let point = mount.point.clone().into_os_string();
    [mount.device.clone().into(), mount.id.to_string().into(), parent.to_string().into(), point]
}

/// Returns whether the program was called by the guard's name.
pub(crate) fn is_meant(program: Option<&OsStr>) -> bool {
    program == Some(OsStr::new(PROGRAM))
}

/// Waits for the end of the parent, and aborts the connection. `args` are the arguments after the
/// program's name.
pub(crate) fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let guard = match Guard::new(args) {
        Ok(guard) => guard,
        Err(error) => {
            say(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    say(READY);
    // The parent waits for the end of its pipe.
    (0..FIRST_OTHER).for_each(close);
    guard.wait();
    match guard.aborter.abort() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_nobody_to_tell) => ExitCode::FAILURE,
    }
}

/// A guard that watches its parent.
struct Guard {
    parent: u32,
    aborter: Aborter,
    /// Set by a signal; cleared by the next check.
    is_signalled: Arc<AtomicBool>,
}

impl Guard {
    fn new(args: impl Iterator<Item = OsString>) -> Result<Self, GuardError> {
        let Post { mount, parent } = post(args).ok_or(GuardError::Usage)?;
        let failed = |what| move |source| GuardError::System { what, source };
        close_inherited().map_err(failed("closing descriptors"))?;
        let is_signalled = Arc::new(AtomicBool::new(false));
        for signal in NOT_FOR_US.into_iter().chain([PARENT_ENDED.as_raw()]) {
            let caught = signal_hook::flag::register(signal, Arc::clone(&is_signalled));
            caught.map_err(failed("catching a signal"))?;
        }
        let asked = set_parent_process_death_signal(Some(PARENT_ENDED));
        asked.map_err(|error| failed("PR_SET_PDEATHSIG")(error.into()))?;
        // Fails only if the process leads a session already.
        let _session = setsid();
        chdir("/").map_err(|error| failed("chdir")(error.into()))?;
        // The name in `ps` and `top`, which otherwise show `exe`.
        let _named = set_name(c"pelago-guard");
        let guard = Self { parent, aborter: Aborter::of(&mount)?, is_signalled };
        // The parent may have ended before PR_SET_PDEATHSIG was set.
        if guard.is_alone() { Err(GuardError::NoParent) } else { Ok(guard) }
    }

    /// Waits until the parent has ended.
    fn wait(&self) {
        while !self.is_alone() {
            if self.is_signalled.swap(false, Ordering::Relaxed) && self.becomes_alone() {
                return;
            }
            pause(PAUSE);
        }
    }

    /// Checks the parent repeatedly for a moment, and returns whether it has ended.
    fn becomes_alone(&self) -> bool {
        (0..LOOKS).any(|_| {
            pause(SHORT_PAUSE);
            self.is_alone()
        })
    }

    fn is_alone(&self) -> bool {
        let parent = getppid().map(|parent| parent.as_raw_nonzero().get());
        parent != i32::try_from(self.parent).ok() || dying::is_dying(self.parent)
    }
}

/// Sleeps for this time, or until a signal arrives.
fn pause(time: Timespec) {
    match nanosleep(&time) {
        NanosleepRelativeResult::Ok | NanosleepRelativeResult::Interrupted(_) => {}
        // The kernel accepts each of these times.
        NanosleepRelativeResult::Err(_) => {}
    }
}

fn post(args: impl Iterator<Item = OsString>) -> Option<Post> {
    let [device, id, parent, point] = <[OsString; 4]>::try_from(args.collect::<Vec<_>>()).ok()?;
    let mount = MountEntry {
        id: id.to_str()?.parse().ok()?,
        device: device.into_string().ok()?,
        point: PathBuf::from(point),
        fs_type: FS_TYPE.to_owned(),
        source: OsString::new(),
    };
    Some(Post { mount, parent: parent.to_str()?.parse().ok()? })
}

/// Writes a message to the parent. If the parent is gone, the message is lost.
fn say(words: &str) {
    let _gone = rustix::io::write(rustix::stdio::stdout(), words.as_bytes());
}

/// Closes all descriptors except the standard ones. The parent's own close on exec, but it may have
/// inherited others.
fn close_inherited() -> io::Result<()> {
    let open = fs::read_dir("/proc/self/fd")?;
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let numbers: Vec<i32> = open.flatten().filter_map(number).collect();
    numbers.into_iter().filter(|number| *number >= FIRST_OTHER).for_each(close);
    Ok(())
}

fn close(descriptor: i32) {
    // One is the descriptor of /proc/self/fd itself, which is closed already.
    let _closed = nix::unistd::close(descriptor);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_is_told_its_post() {
        let mount = MountEntry {
            id: 36,
            device: "0:57".to_owned(),
            point: "/a b/\u{e4}".into(),
            fs_type: FS_TYPE.to_owned(),
            source: OsString::new(),
        };
        let told = post(arguments(&mount, 7).into_iter());
        assert_eq!(told, Some(Post { mount, parent: 7 }));
    }

    #[test]
    fn other_arguments_are_no_post() {
        for words in ["", "0:57 36 7", "0:57 x 7 /m", "0:57 36 x /m", "0:57 36 7 /m more"] {
            assert_eq!(post(words.split_whitespace().map(OsString::from)), None, "{words}");
        }
    }

    #[test]
    fn only_its_name_makes_a_guard() {
        assert!(is_meant(Some(OsStr::new("pelago-guard"))));
        for name in [None, Some("pelago"), Some("/bin/pelago-guard"), Some("")] {
            assert!(!is_meant(name.map(OsStr::new)));
        }
    }
}
