//! Who asks, as far as the kernel says it: user and group come with each request, further groups
//! and capabilities stand under `/proc`, where the caller waits for its answer meanwhile.

use std::fs;
use std::io;

use pelago_fuse::Header;
use pelago_wire::{Attr, Context, Handle};

use crate::state::State;

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
            go(attr.is_ok_and(|attr| attr.mode & SETGID != 0 && !self.keeps_setgid(&attr)));
        });
    }

    fn keeps_setgid(self, attr: &Attr) -> bool {
        if self.gid == attr.gid {
            return true;
        }
        let Ok(status) = self.told("status") else { return self.uid == 0 };
        is_member(&status, attr.gid) || (has(&status, CAP_FSETID) && self.knows_owners(attr))
    }

    /// Whether the owner and the group of a file are somebody in the caller's user namespace: its
    /// capabilities are of that namespace, and count for no other file
    /// (`capable_wrt_inode_uidgid` in Linux).
    fn knows_owners(self, attr: &Attr) -> bool {
        let maps = |file, id| self.told(file).is_ok_and(|map| is_mapped(&map, id));
        maps("uid_map", attr.uid) && maps("gid_map", attr.gid)
    }

    fn told(self, file: &str) -> io::Result<String> {
        fs::read_to_string(format!("/proc/{}/{file}", self.thread))
    }
}

/// Whether an id of ours is one of the ids in a `/proc/PID/uid_map` or `gid_map`: each line has the
/// first id there, the first id here and how many there are.
fn is_mapped(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().skip(1).map(str::parse::<u64>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(first)), Some(Ok(count))) => {
                (first..first.saturating_add(count)).contains(&id.into())
            }
            _ => false,
        }
    })
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

    #[test]
    fn ids_of_a_namespace_are_those_of_its_map() {
        let whole = "         0          0 4294967295\n";
        assert!(is_mapped(whole, 0) && is_mapped(whole, 65_534));
        let own = "0 65534 1\n10 1000 5\n";
        assert!(is_mapped(own, 65_534) && is_mapped(own, 1000) && is_mapped(own, 1004));
        assert!(!is_mapped(own, 0) && !is_mapped(own, 10) && !is_mapped(own, 1005));
        assert!(!is_mapped("", 0) && !is_mapped("0 x 1\n0 0", 0));
    }
}
