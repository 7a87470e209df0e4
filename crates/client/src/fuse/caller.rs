//! Who asks, as far as the kernel says it: user and group come with each request, further groups
//! and capabilities stand under `/proc`, where the caller waits for its answer meanwhile.

use std::fs;

use pelago_fuse::Header;
use pelago_wire::{Context, Handle};

use super::state::State;

/// A process that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    uid: u32,
    gid: u32,
    /// Its thread; zero where it is not ours to see.
    thread: u32,
}

/// The right to keep the setgid bit of others' files.
const CAP_FSETID: u64 = 1 << 4;
const SETGID: u16 = 0o2000;

impl Caller {
    /// Who sent this request.
    pub(crate) const fn of(header: &Header) -> Self {
        Self { uid: header.uid, gid: header.gid, thread: header.pid }
    }

    /// Who asks, for the server.
    pub(crate) const fn context(self) -> Context {
        Context::direct(self.uid, self.gid)
    }

    /// Calls `go` with whether a change by this caller takes the setgid bit of a file even where
    /// its group may not execute: it has one, and the caller is neither in that group nor has the
    /// right to keep it (`in_group_or_capable` in Linux).
    pub(crate) fn kills_setgid(
        self,
        state: &State,
        node: Handle,
        go: impl FnOnce(bool) + Send + 'static,
    ) {
        let attr = state.files.get_attr(&self.context(), node);
        attr.then(move |attr| {
            go(attr.is_ok_and(|attr| attr.mode & SETGID != 0 && !self.keeps_setgid(attr.gid)));
        });
    }

    fn keeps_setgid(self, group: u32) -> bool {
        let is_root = self.uid == 0;
        self.gid == group
            || fs::read_to_string(format!("/proc/{}/status", self.thread))
                .map_or(is_root, |status| is_member(&status, group) || has(&status, CAP_FSETID))
    }
}

/// Whether one of the further groups of `/proc/PID/status` is this one.
fn is_member(status: &str, group: u32) -> bool {
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    groups.is_some_and(|groups| groups.split_whitespace().any(|gid| gid.parse() == Ok(group)))
}

fn has(status: &str, capability: u64) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.is_some_and(|bits| bits & capability != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str =
        "Name:\tcat\nUid:\t5\t5\t5\t5\nGroups:\t4 24 1000 \nCapEff:\t0000000000000010\n";

    #[test]
    fn groups_and_capabilities_are_those_of_the_status() {
        assert!(is_member(STATUS, 4) && is_member(STATUS, 1000));
        assert!(!is_member(STATUS, 5) && !is_member("", 0) && !is_member("Groups:\t\n", 0));
        assert!(has(STATUS, CAP_FSETID) && !has(STATUS, 1) && !has("CapEff:\tx\n", 1));
    }
}
