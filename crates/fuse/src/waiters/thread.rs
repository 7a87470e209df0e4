//! State of the thread that waits for a reply, from `/proc`.

use std::fs;

use crate::operation::Wait;

/// The state of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thread {
    /// The thread has no pending SIGKILL.
    Lives,
    /// The program exits by itself. The kernel drops all signals to it, and does not show whether
    /// there were any.
    Exits,
    /// The thread has a pending SIGKILL, or exits because of a signal.
    Killed,
    /// The thread has ended, or is in another pid namespace, or is hidden.
    Unseen,
}

/// Bit of SIGKILL in a set of signals. Linux adds SIGKILL to each thread of a program that any
/// signal ends.
pub(super) const KILL: u64 = 1 << 8;
/// The flag of a thread that exits (`PF_EXITING`), and the bits of the signal in its exit code.
const EXITING: u64 = 4;
const SIGNAL: u64 = 0x7f;
/// Fields of `/proc/THREAD/stat` after the name, counted from 0: flags and exit code.
pub(super) const FLAGS: usize = 6;
pub(super) const EXIT_CODE: usize = 49;

impl Thread {
    /// Looks at the caller of a request.
    pub(super) fn look(thread: u32, wait: Wait) -> Self {
        if thread == 0 {
            return Self::Unseen;
        }
        let read = |name: &str| fs::read_to_string(format!("/proc/{thread}/{name}")).ok();
        let Some(status) = read("status") else { return Self::Unseen };
        if is_killed(&status) {
            return Self::Killed;
        }
        match wait {
            // A thread that exits does not keep its SIGKILL, and closes its files nevertheless.
            Wait::Close => read("stat").map_or(Self::Lives, |stat| Self::of_exit(&stat)),
            Wait::Other | Wait::WriteBack => Self::Lives,
        }
    }

    /// Reads the state of a thread that closes a file from its `stat` (`proc(5)`).
    pub(super) fn of_exit(stat: &str) -> Self {
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        let field = |number| {
            let field = fields.split(' ').nth(number).map(str::trim_end);
            field.and_then(|field| field.parse::<u64>().ok()).unwrap_or(0)
        };
        match field(FLAGS) & EXITING != 0 {
            true if field(EXIT_CODE) & SIGNAL != 0 => Self::Killed,
            true => Self::Exits,
            false => Self::Lives,
        }
    }
}

/// Returns whether the status of a thread (`proc(5)`) says that it was killed.
pub(super) fn is_killed(status: &str) -> bool {
    let signals = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        u64::from_str_radix(line.trim(), 16).unwrap_or(0)
    };
    (signals("SigPnd:") | signals("ShdPnd:")) & KILL != 0
}
