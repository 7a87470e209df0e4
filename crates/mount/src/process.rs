//! Groups, capabilities and system call of the process that waits for a reply, from `/proc`. A
//! request has only its user and group. The files are those of the caller: it waits meanwhile.

use std::{fs, io};

use pelago_fuse::Header;

/// Count of ids in a user namespace that has all of them: `u32::MAX` itself is no id.
const ALL_IDS: u64 = u32::MAX as u64;

/// A process that waits for a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    /// Thread id; zero if it is outside our pid namespace.
    thread: u32,
}

/// The text of `/proc/PID/status`.
#[derive(Debug)]
pub(crate) struct Status(String);

impl Process {
    /// Returns the caller of a request.
    pub(crate) const fn of(header: &Header) -> Self {
        Self { thread: header.pid }
    }

    /// Returns the process of a thread that waits; zero if it is outside our pid namespace.
    pub(crate) const fn of_thread(thread: u32) -> Self {
        Self { thread }
    }

    /// Returns whether the process is in our pid namespace.
    pub(crate) const fn is_known(self) -> bool {
        self.thread != 0
    }

    pub(crate) fn status(self) -> io::Result<Status> {
        self.read("status").map(Status)
    }

    pub(crate) fn read(self, file: &str) -> io::Result<String> {
        fs::read_to_string(format!("/proc/{}/{file}", self.thread))
    }

    /// Returns whether the capabilities of the process count for files of every owner and group
    /// that this process knows: its user namespace maps all of them.
    pub(crate) fn maps_all(self) -> bool {
        ["uid_map", "gid_map"].into_iter().all(|file| {
            let ours = || fs::read_to_string(format!("/proc/self/{file}"));
            self.read(file).is_ok_and(|map| maps_all(&map) || ours().is_ok_and(|ours| ours == map))
        })
    }
}

impl Status {
    /// Returns the supplementary groups.
    pub(crate) fn groups(&self) -> impl Iterator<Item = u32> {
        let groups = self.0.lines().find_map(|line| line.strip_prefix("Groups:"));
        groups.unwrap_or_default().split_whitespace().filter_map(|group| group.parse().ok())
    }

    /// Returns whether `group` is a supplementary group.
    pub(crate) fn is_member(&self, group: u32) -> bool {
        self.groups().any(|gid| gid == group)
    }

    /// Returns whether one of these capabilities is effective.
    pub(crate) fn has(&self, capabilities: u64) -> bool {
        let effective = self.0.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let bits = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
        bits.is_some_and(|bits| bits & capabilities != 0)
    }
}

/// Returns whether an id of our namespace is in a `/proc/PID/uid_map` or `gid_map`.
pub(crate) fn is_mapped(map: &str, id: u32) -> bool {
    ranges(map).any(|(first, count)| (first..first.saturating_add(count)).contains(&id.into()))
}

/// Returns whether one line of such a map has every id of our namespace. A map that has them in
/// several lines counts as if it had not: its caller then finds less.
fn maps_all(map: &str) -> bool {
    ranges(map).any(|range| range.0 == 0 && range.1 >= ALL_IDS)
}

/// Returns the ranges of ids outside the namespace, each with its first id and count: a line has
/// the first id inside, the first id outside and the count.
fn ranges(map: &str) -> impl Iterator<Item = (u64, u64)> {
    map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().skip(1).map(str::parse::<u64>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str =
        "Name:\tcat\nUid:\t5\t5\t5\t5\nGroups:\t4 24 1000 \nCapEff:\t0000000000000010\n";

    fn status(text: &str) -> Status {
        Status(text.to_owned())
    }

    #[test]
    fn groups_and_capabilities_are_read_from_the_status() {
        let of = status(STATUS);
        assert!(of.is_member(4) && of.is_member(1000) && !of.is_member(5));
        assert_eq!(of.groups().collect::<Vec<_>>(), [4, 24, 1000]);
        assert!(!status("").is_member(0) && !status("Groups:\t\n").is_member(0));
        assert!(of.has(1 << 4) && of.has(1 << 4 | 1) && !of.has(1));
        assert!(!status("CapEff:\tx\n").has(1));
    }

    #[test]
    fn ids_of_a_namespace_are_read_from_its_map() {
        let whole = "         0          0 4294967295\n";
        assert!(is_mapped(whole, 0) && is_mapped(whole, 65_534) && maps_all(whole));
        let own = "0 65534 1\n10 1000 5\n";
        assert!(is_mapped(own, 65_534) && is_mapped(own, 1000) && is_mapped(own, 1004));
        assert!(!is_mapped(own, 0) && !is_mapped(own, 10) && !is_mapped(own, 1005));
        assert!(!is_mapped("", 0) && !is_mapped("0 x 1\n0 0", 0));
        assert!(!maps_all(own) && !maps_all("") && !maps_all("0 1000 4294967295"));
    }

    #[test]
    fn a_process_of_our_namespace_has_all_its_ids() {
        assert!(Process { thread: std::process::id() }.maps_all());
        assert!(!Process { thread: 0 }.maps_all());
    }
}
