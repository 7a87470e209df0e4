//! CPU time and memory of processes, this one and a file system's daemon.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the CPU time of a process, all threads together, in clock ticks' resolution; `None` if
/// there is no such process.
pub(crate) fn cpu_of(pid: u32) -> Option<Duration> {
    times_of(&pid.to_string(), 14)
}

/// Returns the CPU time of those processes that exist.
pub(crate) fn cpu_of_all(pids: &[u32]) -> Duration {
    pids.iter().filter_map(|pid| cpu_of(*pid)).sum()
}

/// Returns the CPU time of this process, all threads together, in nanoseconds' resolution.
pub(crate) fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the CPU time of the programs that this process has run and waited for, in clock ticks'
/// resolution.
pub(crate) fn children_cpu() -> Duration {
    times_of("self", 16).unwrap_or_default()
}

/// Returns the names and the CPU times of a process's threads, in nanoseconds' resolution; none if
/// there is no such process. A thread that ends takes its time with it.
pub(crate) fn threads_cpu(pid: u32) -> Vec<(String, Duration)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_task = |task: fs::DirEntry| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        let times = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let nanos = times.split_ascii_whitespace().next()?.parse().ok()?;
        Some((name.trim_end().to_owned(), Duration::from_nanos(nanos)))
    };
    tasks.filter_map(of_task).collect()
}

/// Reads two adjacent fields of `stat`, user and system time, and returns their sum. `field` is the
/// first one, counted from 1.
fn times_of(process: &str, field: usize) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field, the command in parentheses, may contain spaces and parentheses.
    let fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let mut fields = fields.skip(field - 3);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// Returns the peak resident memory of this process, in bytes.
pub(crate) fn peak_resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Returns the process that serves a FUSE connection, given by the minor number of the mount's
/// device. Linux 6.12 and later show it.
pub(crate) fn fuse_daemon(connection: u32) -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| holds_connection(*pid, connection))
}

fn holds_connection(pid: u32, connection: u32) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.flatten().any(|entry| {
        let is_fuse = fs::read_link(entry.path()).is_ok_and(|to| to == Path::new("/dev/fuse"));
        let info = || {
            let name = entry.file_name();
            fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("fdinfo").join(name))
        };
        is_fuse && info().is_ok_and(|info| says_connection(&info, connection))
    })
}

fn says_connection(info: &str, connection: u32) -> bool {
    let mut values = info.lines().filter_map(|line| line.strip_prefix("fuse_connection:"));
    values.any(|value| value.trim().parse() == Ok(connection))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_cpu_time_and_memory() {
        assert!(cpu_of(std::process::id()).is_some());
        assert!(peak_resident().is_some_and(|bytes| bytes > 100_000));
        let threads = threads_cpu(std::process::id());
        assert!(threads.iter().any(|(name, time)| !name.is_empty() && *time > Duration::ZERO));
    }

    #[test]
    fn a_process_that_does_not_exist_has_no_cpu_time() {
        assert_eq!(cpu_of(u32::MAX), None);
    }

    #[test]
    fn a_connection_is_read_from_its_line() {
        assert!(says_connection("pos:\t0\nfuse_connection:\t53\n", 53));
        assert!(!says_connection("pos:\t0\nfuse_connection:\t53\n", 5));
        assert!(!says_connection("pos:\t0\n", 0));
    }
}
