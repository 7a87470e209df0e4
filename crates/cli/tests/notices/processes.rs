//! The state of processes in `/proc`.

use std::time::Duration;
use std::{fs, thread};

use pelago_random::Random;
use rustix::process::{Pid, Signal, kill_process};

/// Time between two looks at a thread; one that waits for a disk has moved on by then.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// The longest time for which a process goes on between two stops.
const LONGEST: Duration = Duration::from_millis(50);

/// Returns the state of each thread of a process, by its number.
fn states(pid: Pid) -> Vec<(String, char)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    let threads = tasks.into_iter().flatten().flatten();
    let state = |thread: fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
        let state = stat.rsplit(") ").next()?.chars().next()?;
        Some((thread.file_name().into_string().ok()?, state))
    };
    threads.filter_map(state).collect()
}

/// Returns whether a thread of a process waits where no signal reaches it, for longer than a disk
/// takes.
fn has_stuck_thread(pid: Pid) -> bool {
    let stuck = |states: Vec<(String, char)>| -> Vec<String> {
        states.into_iter().filter(|(_, state)| *state == 'D').map(|(thread, _)| thread).collect()
    };
    let first = stuck(states(pid));
    if first.is_empty() {
        return false;
    }
    thread::sleep(LOOK_PAUSE);
    stuck(states(pid)).iter().any(|thread| first.contains(thread))
}

/// Stops a process at a moment at which one of its threads waits in the kernel for a program that
/// waits for this process. Returns whether such a moment came.
pub(crate) fn stop_at_a_notice(pid: Pid, tries: u32, random: &mut Random) -> bool {
    for _ in 0..tries {
        // Not a wait for a condition: the moment of the stop is random.
        thread::sleep(LONGEST.mul_f64(random.below(1000) as f64 / 1000.0));
        kill_process(pid, Signal::STOP).unwrap();
        // Only the clock: running threads go on until the signal has reached them.
        thread::sleep(LOOK_PAUSE);
        if has_stuck_thread(pid) {
            return true;
        }
        kill_process(pid, Signal::CONT).unwrap();
    }
    false
}

/// Returns whether there is such a process, be it only its entry.
pub(crate) fn exists(pid: Pid) -> bool {
    fs::exists(format!("/proc/{}", pid.as_raw_nonzero())).unwrap()
}

/// Returns a field of `/proc/PID/status`.
pub(crate) fn status(pid: Pid, key: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{key}:")));
    line.unwrap_or_default().trim().to_owned()
}
