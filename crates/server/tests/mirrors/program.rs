//! A program that writes one number after the other into a file, and then makes a name of it; and
//! the check that a mirror has it as it was at one moment.

use std::thread;
use std::time::Duration;

use pelago_check as check;
use pelago_server::{MirrorStore, Options, Server};
use pelago_wire::{Handle, OpenId};

use super::primary::put;
use crate::harness::requests::{create, unlink, write};
use crate::harness::rig::DEADLINE;
use crate::loss::world::see;

/// The last number.
pub(super) const STEPS: u8 = 60;
/// More than is kept in the table.
const BYTES: usize = 20_000;
/// The byte of a file that comes and goes.
const OTHER: u8 = 0xee;

/// What a tree has of the program; 0 for nothing.
pub(super) struct Progress {
    /// The least number in the file.
    pub(super) least: u64,
    /// The largest number in the file.
    pub(super) most: u64,
    /// The largest number that has a name.
    pub(super) named: u64,
    /// Names of numbers.
    names: usize,
}

/// Makes the file.
pub(super) fn begin(server: &Server) -> OpenId {
    let (_, open) = create(server, Handle::ROOT, "bytes").unwrap();
    write(server, open, 0, &[0; BYTES]).unwrap();
    open
}

/// Has all numbers written, and calls `after` with each one.
pub(super) fn run(server: &Server, open: OpenId, mut after: impl FnMut(u8)) {
    for step in 1..=STEPS {
        write(server, open, 0, &[step; BYTES]).unwrap();
        put(server, &format!("step-{step}"), b"");
        if let Some(old) = step.checked_sub(2).filter(|old| *old > 0) {
            unlink(server, Handle::ROOT, &format!("step-{old}")).unwrap();
        }
        if step % 5 == 0 {
            put(server, "other", &[OTHER; BYTES]);
            unlink(server, Handle::ROOT, "other").unwrap();
        }
        after(step);
        // So that a group is cut now and then.
        thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until the mirror has all that was done.
pub(super) fn wait(server: &Server) {
    let commit = server.next_commit().unwrap();
    assert_eq!(server.wait_for_mirror(commit, DEADLINE), Ok(true));
}

/// Returns the number in a name.
pub(super) fn step_of(name: &str) -> Option<u64> {
    name.strip_prefix("step-")?.parse().ok()
}

/// Returns what a volume has of the program.
pub(super) fn progress(server: &Server, when: &str) -> Progress {
    let tree = see(server, when);
    let bytes = tree.get("bytes").and_then(|(_, bytes)| bytes.clone()).unwrap_or_default();
    let numbers = || bytes.iter().map(|byte| u64::from(*byte));
    let named: Vec<u64> = tree.keys().filter_map(|name| step_of(name)).collect();
    Progress {
        least: numbers().min().unwrap_or(0),
        most: numbers().max().unwrap_or(0),
        named: named.iter().copied().max().unwrap_or(0),
        names: named.len(),
    }
}

/// Promotes the only mirror: it is whole and has the program as it was at one moment. Returns the
/// group and the last name that it has.
pub(super) fn promote(store: MirrorStore, when: &str) -> (u64, u64) {
    let volume = store.list()[0].volume;
    let promoted = store.promote(volume).unwrap();
    drop(store);
    let plan = check::plan(&promoted.path).unwrap();
    assert!(plan.is_whole(), "{when}: {:#?}", plan.findings);
    let server = Server::start(&promoted.path, Options::default()).unwrap();
    let Progress { least, most, named, names } = progress(&server, when);
    assert!(least >= named && most <= named + 1, "{when}: {least} to {most}, named {named}");
    assert!(names <= 3, "{when}: {names} names");
    server.stop().unwrap();
    (promoted.number.unwrap(), named)
}
