//! Detection of processes that were killed and have not ended yet.

use std::fs;

/// Returns whether a process has been killed, or writes a core dump, and has not ended yet. Its
/// main thread has ended, or ends together with the last of its threads; its files may still be
/// open.
pub(crate) fn is_dying(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| says_dying(&status))
}

/// Parses `/proc/PID/status` (`man 5 proc_pid_status`).
fn says_dying(status: &str) -> bool {
    status.lines().filter_map(|line| line.split_once(':')).any(|(key, value)| {
        let value = value.trim_start();
        match key {
            "State" => value.starts_with(['Z', 'X']),
            "CoreDumping" => value == "1",
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_main_thread_or_a_core_dump_is_seen() {
        assert!(!says_dying("Name:\tZ\nState:\tS (sleeping)\nCoreDumping:\t0\n"));
        assert!(says_dying("Name:\tx\nState:\tZ (zombie)\nTgid:\t7\n"));
        assert!(says_dying("Name:\tx\nState:\tX (dead)\n"));
        assert!(says_dying("Name:\tx\nState:\tD (disk sleep)\nCoreDumping:\t1\n"));
        assert!(!says_dying(""));
    }

    #[test]
    fn neither_a_living_process_nor_none_is_dying() {
        assert!(!is_dying(std::process::id()));
        assert!(!is_dying(u32::MAX));
    }
}
