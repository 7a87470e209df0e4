//! Processor, scheduling policy and delays of a queue's thread: system calls and `/proc`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity};

use super::policy::{Delays, Policy};

/// Bytes of a file in `/proc` that are read: enough for what is looked for.
const READ_BYTES: usize = 512;

/// A file with the time that the thread which opened it has waited for its processor.
#[derive(Debug)]
pub(super) struct Schedstat(Option<File>);

/// Files with the state of a thread and the time that it has run.
#[derive(Debug)]
pub(super) struct Stat {
    stat: Option<File>,
    schedstat: Option<File>,
}

/// Binds this thread to a processor. One that is offline has no callers.
pub(super) fn bind(processor: u16) {
    let mut only = CpuSet::new();
    only.set(processor.into());
    if let Err(error) = sched_setaffinity(None, &only) {
        tracing::debug!(%error, processor, "a queue of the ring runs on any processor");
    }
}

/// Gives a thread of this process a policy. Threads that it starts inherit it.
///
/// # Errors
/// `EPERM` if it had `SCHED_IDLE`, and neither `CAP_SYS_NICE` nor `RLIMIT_NICE` lets it return.
#[expect(unsafe_code, reason = "no crate has a safe binding for this call")]
pub(super) fn set_policy(thread: Pid, policy: Policy) -> io::Result<()> {
    let policy = match policy {
        Policy::Other => libc::SCHED_OTHER,
        Policy::Idle => libc::SCHED_IDLE,
    };
    let parameters = libc::sched_param { sched_priority: 0 };
    let thread = thread.as_raw_nonzero().get();
    // SAFETY: the call reads the parameters.
    let set = unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns whether threads of this process may have `SCHED_IDLE` and then the usual policy again.
pub(super) fn may_change_policy() -> bool {
    // The attempt is made on a thread of its own, which could be left with `SCHED_IDLE`.
    let tried = thread::Builder::new().spawn(|| {
        let thread = gettid();
        set_policy(thread, Policy::Idle).and_then(|()| set_policy(thread, Policy::Other))
    });
    matches!(tried.map(thread::JoinHandle::join), Ok(Ok(Ok(()))))
}

impl Schedstat {
    pub(super) fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    /// Returns the delays until now; none if the kernel does not count them.
    pub(super) fn delays(&self) -> Delays {
        read(self.0.as_ref(), parse_delays).unwrap_or_default()
    }
}

impl Stat {
    /// Opens the files of a thread of this process.
    pub(super) fn of(thread: Pid) -> Self {
        let open =
            |name| File::open(format!("/proc/self/task/{}/{name}", thread.as_raw_nonzero())).ok();
        Self { stat: open("stat"), schedstat: open("schedstat") }
    }

    /// Returns the time that the thread has run until the last tick; `None` unless it runs or waits
    /// for its processor.
    pub(super) fn runtime_if_runnable(&self) -> Option<Duration> {
        read(self.stat.as_ref(), parse_state).filter(|state| *state == 'R')?;
        Some(read(self.schedstat.as_ref(), parse_runtime).unwrap_or_default())
    }
}

fn read<T>(file: Option<&File>, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let mut bytes = [0; READ_BYTES];
    let length = file?.read_at(&mut bytes, 0).ok()?;
    // The name of a thread may be cut in the middle of a character.
    parse(&String::from_utf8_lossy(&bytes[..length]))
}

/// Reads nanoseconds on the processor.
fn parse_runtime(schedstat: &str) -> Option<Duration> {
    let nanos = schedstat.split_ascii_whitespace().next()?;
    Some(Duration::from_nanos(nanos.parse().ok()?))
}

/// Reads nanoseconds on the processor, nanoseconds of waiting for it, and how often it had it.
fn parse_delays(schedstat: &str) -> Option<Delays> {
    let mut fields = schedstat.split_ascii_whitespace().skip(1);
    let total = Duration::from_nanos(fields.next()?.parse().ok()?);
    Some(Delays { total, count: fields.next()?.parse().ok()? })
}

/// Reads the state, which follows the name; that may have any characters.
fn parse_state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn delays_and_states_are_read() {
        let expected = Delays { total: Duration::from_nanos(1_500), count: 12 };
        assert_eq!(parse_delays("981734 1500 12\n"), Some(expected));
        assert_eq!(parse_delays("981734 x 12\n"), None);
        assert_eq!(parse_delays(""), None);
        assert_eq!(parse_runtime("981734 1500 12\n"), Some(Duration::from_nanos(981_734)));
        assert_eq!(parse_state("17 (a) S (b) R 1 2"), Some('R'));
        assert_eq!(parse_state("17 (a"), None);
    }

    #[test]
    fn this_thread_runs_and_one_that_waits_does_not() {
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let wait = move || {
            tell.send(gettid()).unwrap();
            ended.recv().unwrap_err();
        };
        let waiting = thread::Builder::new().spawn(wait).unwrap();
        let other = told.recv().unwrap();
        while Stat::of(other).runtime_if_runnable().is_some() {
            thread::yield_now();
        }
        let start = Stat::of(gettid()).runtime_if_runnable().unwrap();
        while Stat::of(gettid()).runtime_if_runnable().unwrap() == start {}
        assert!(Schedstat::of_this_thread().delays().count > 0);
        drop(end);
        waiting.join().unwrap();
        assert_eq!(Stat::of(other).runtime_if_runnable(), None, "it has ended");
    }
}
