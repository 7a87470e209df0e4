//! The caller of a request. Each request has its user and group; supplementary groups and
//! capabilities are read from `/proc`, which is safe because the caller waits for its reply.

use std::{fs, io};

use pelago_fuse::Header;
use pelago_wire::{Attr, Context, Handle};

use crate::state::State;

/// A process that waits for a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    uid: u32,
    gid: u32,
    /// Thread id; zero if it is outside our pid namespace.
    thread: u32,
}

/// The capability to keep the setgid bit of files of other groups.
const CAP_FSETID: u64 = 1 << 4;
const SETGID: u16 = 0o2000;

impl Caller {
    /// Returns the caller of a request.
    pub(crate) const fn of(header: &Header) -> Self {
        Self { uid: header.uid, gid: header.gid, thread: header.pid }
    }

    /// Returns the context that the server gets.
    pub(crate) const fn context(self) -> Context {
        Context::direct(self.uid, self.gid)
    }

    /// Calls `go` with whether a change by this caller clears the setgid bit of a file even if its
    /// group may not execute it: the bit is set, and the caller is neither in the file's group nor
    /// has the capability to keep the bit (`in_group_or_capable` in Linux).
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
        let Ok(status) = self.read_proc("status") else { return self.uid == 0 };
        is_member(&status, attr.gid) || (has(&status, CAP_FSETID) && self.maps_owners(attr))
    }

    /// Returns whether owner and group of a file are mapped in the caller's user namespace. The
    /// capabilities of that namespace count for such files only (`capable_wrt_inode_uidgid` in
    /// Linux).
    fn maps_owners(self, attr: &Attr) -> bool {
        let maps = |file, id| self.read_proc(file).is_ok_and(|map| is_mapped(&map, id));
        maps("uid_map", attr.uid) && maps("gid_map", attr.gid)
    }

    fn read_proc(self, file: &str) -> io::Result<String> {
        fs::read_to_string(format!("/proc/{}/{file}", self.thread))
    }
}

/// Returns whether an id of our namespace is in a `/proc/PID/uid_map` or `gid_map`, whose lines
/// have the first id inside, the first id outside and the count.
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

/// Returns whether `group` is a supplementary group in `/proc/PID/status`.
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
    fn groups_and_capabilities_are_read_from_the_status() {
        assert!(is_member(STATUS, 4) && is_member(STATUS, 1000));
        assert!(!is_member(STATUS, 5) && !is_member("", 0) && !is_member("Groups:\t\n", 0));
        assert!(has(STATUS, CAP_FSETID) && !has(STATUS, 1) && !has("CapEff:\tx\n", 1));
    }

    #[test]
    fn ids_of_a_namespace_are_read_from_its_map() {
        let whole = "         0          0 4294967295\n";
        assert!(is_mapped(whole, 0) && is_mapped(whole, 65_534));
        let own = "0 65534 1\n10 1000 5\n";
        assert!(is_mapped(own, 65_534) && is_mapped(own, 1000) && is_mapped(own, 1004));
        assert!(!is_mapped(own, 0) && !is_mapped(own, 10) && !is_mapped(own, 1005));
        assert!(!is_mapped("", 0) && !is_mapped("0 x 1\n0 0", 0));
    }
}
