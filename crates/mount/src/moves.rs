//! Inodes that other sessions have moved: they are looked up under another name than the last time.
//!
//! For a file of one name, [`Inodes`] has the place while the kernel refers to it. Directories, and
//! files that had several names once, have no place there. So the name by which each was looked up
//! last is recorded here, for as many as there is room for.
//!
//! [`Inodes`]: crate::inodes::Inodes

use std::thread;
use std::time::Duration;

use pelago_wire::{FileKind, InodeId};

use crate::process::Process;
use crate::striped::StripedMap;

/// Limit of inodes of one stripe. Beyond it, all of the stripe are forgotten.
const NODES: usize = 1024;

/// The names of inodes without a place, as 64-bit keys.
#[derive(Default)]
pub(crate) struct SeenNames(StripedMap<u64>);

impl SeenNames {
    /// Records the name of an inode. Returns whether it was last seen under another one.
    pub(crate) fn see(&self, ino: InodeId, name: u64) -> bool {
        let mut stripe = self.0.lock(ino.raw());
        if stripe.len() >= NODES && !stripe.contains_key(&ino.raw()) {
            stripe.clear();
        }
        stripe.insert(ino.raw(), name).is_some_and(|before| before != name)
    }

    /// Forgets the name of an inode, which this mount has removed.
    pub(crate) fn forget_name(&self, ino: InodeId, name: u64) {
        let mut stripe = self.0.lock(ino.raw());
        if stripe.get(&ino.raw()) == Some(&name) {
            stripe.remove(&ino.raw());
        }
    }
}

/// Limit of looks at a thread that still runs: it is on its way into the wait for its reply.
const LOOKS: u32 = 20;
/// Time between two looks.
const PAUSE: Duration = Duration::from_micros(50);

/// Returns whether the system call in which a thread waits is a rename, or may be one. The request
/// does not say so: Linux looks up the names of a rename as those of any other call.
pub(crate) fn may_rename(process: Process, kind: FileKind) -> bool {
    for _ in 0..LOOKS {
        // Yama may forbid to read it. `mkdir` does not begin again after `ESTALE`: a program that
        // makes a directory at a name to which others have moved one would see that error.
        let Ok(call) = process.read("syscall") else {
            return process.is_known() && kind != FileKind::Directory;
        };
        match call.split_whitespace().next() {
            Some("running") => thread::sleep(PAUSE),
            // A negative number is no system call: a thread of the kernel works for a program.
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
