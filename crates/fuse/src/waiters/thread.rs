//! What `/proc` says of the thread that waits for a reply.

use std::fs;

use crate::operation::Wait;

/// The state of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thread {
    Lives,
    /// Its program exits by itself. The kernel drops all signals to it, and nothing tells whether
    /// there were any.
    Exits,
    Killed,
    /// It is gone, or in another pid namespace, or hidden.
    Unseen,
}

/// Bit of SIGKILL in a set of signals. The kernel adds it to each thread of a program that any
/// signal ends.
pub(super) const KILL: u64 = 1 << 8;
/// The flag of a thread that exits (`PF_EXITING`), and the bits of the signal in its exit code.
const EXITING: u64 = 4;
const SIGNAL: u64 = 0x7f;
/// Fields of `/proc/THREAD/stat` behind the name, from 0: flags and exit code.
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

    /// Returns what the status in one line (`proc(5)`) says of a thread.
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
