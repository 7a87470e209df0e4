//! Inodes that others have moved: a name leads to them that is not the one under which they were
//! last seen.
//!
//! Of a file that the kernel knows and that has one name, [`Inodes`] has the place. Directories,
//! and files that had several names once, have no place there. So the names are noted here by which
//! they were looked up last, of as many as there is room for.
//!
//! [`Inodes`]: crate::inodes::Inodes

use std::thread;
use std::time::Duration;

use pelago_wire::{FileKind, InodeId};

use crate::process::Process;
use crate::striped::StripedMap;

/// Inodes of one stripe. If there are more, all of them are forgotten.
const NODES: usize = 1024;

/// The names of inodes without a place, as 64-bit keys.
#[derive(Default)]
pub(crate) struct SeenNames(StripedMap<u64>);

impl SeenNames {
    /// Notes the name of an inode. Returns whether it was last seen under another one.
    pub(crate) fn see(&self, ino: InodeId, name: u64) -> bool {
        let mut stripe = self.0.lock(ino.raw());
        if stripe.len() >= NODES && !stripe.contains_key(&ino.raw()) {
            stripe.clear();
        }
        stripe.insert(ino.raw(), name).is_some_and(|before| before != name)
    }

    /// Forgets that an inode was last seen under a name that this mount has removed.
    pub(crate) fn forget_name(&self, ino: InodeId, name: u64) {
        let mut stripe = self.0.lock(ino.raw());
        if stripe.get(&ino.raw()) == Some(&name) {
            stripe.remove(&ino.raw());
        }
    }
}

/// Looks at a thread that still runs: it is on its way into the wait for its answer.
const LOOKS: u32 = 20;
/// Between two of them.
const PAUSE: Duration = Duration::from_micros(50);

/// Returns whether the call in which a thread waits is a rename, or may be one.
pub(crate) fn may_rename(process: Process, kind: FileKind) -> bool {
    for _ in 0..LOOKS {
        // Yama may forbid to read it. `mkdir` of a directory that others have moved there does not
        // begin again, and would show the error.
        let Ok(call) = process.read("syscall") else {
            return process.is_known() && kind != FileKind::Directory;
        };
        match call.split_whitespace().next() {
            Some("running") => thread::sleep(PAUSE),
            // A negative number is none: a thread of the kernel that works for a program.
            Some(number) => {
                return number.parse::<u32>().map_or(true, |number| RENAMES.contains(&number));
            }
            None => return true,
        }
    }
    true
}

/// The numbers of `rename`, `renameat` and `renameat2`, also those of 32-bit programs.
#[cfg(target_arch = "x86_64")]
const RENAMES: [u32; 6] = [82, 264, 316, 38, 302, 353];
/// The numbers of `renameat` and `renameat2`, and for 32-bit programs those of all three.
#[cfg(not(target_arch = "x86_64"))]
const RENAMES: [u32; 5] = [38, 276, 38, 329, 382];

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: InodeId = InodeId::from_raw(9);

    #[test]
    fn an_inode_under_another_name_was_moved() {
        let seen = SeenNames::default();
        assert!(!seen.see(DIR, 1) && !seen.see(DIR, 1));
        assert!(seen.see(DIR, 2) && !seen.see(DIR, 2));
        seen.forget_name(DIR, 1);
        assert!(!seen.see(DIR, 2), "it was seen under 2");
        seen.forget_name(DIR, 2);
        assert!(!seen.see(DIR, 1));
    }

    #[test]
    fn the_names_of_many_inodes_take_no_memory_for_ever() {
        let seen = SeenNames::default();
        for ino in 0..100_000 {
            assert!(!seen.see(InodeId::from_raw(ino), 1));
        }
        let count: usize = seen.0.stripes().map(|stripe| stripe.len()).sum();
        assert!(count <= 16 * NODES, "{count}");
    }
}
