//! File locks of this mount's programs: the owners whose close ends one, and the requests that wait
//! for one. The server keeps the locks themselves.
//!
//! Linux sends no unlock when a close ends locks: FLUSH names the process, and RELEASE does not
//! name the owner of locks of an open file description (`F_OFD_SETLK`). So the mount remembers
//! owners. An owner counts as holding a lock from the moment its request is sent: a program that is
//! killed while it waits may have got its lock meanwhile, and its close then ends it at the server.

use std::collections::HashMap;

use parking_lot::Mutex;
use pelago_wire::{InodeId, LockOwner, OpenId};

use crate::striped::StripedMap;

/// Owners of locks, and requests that wait for one.
#[derive(Default)]
pub(crate) struct Locks {
    /// The owners that may have `fcntl` locks, by the inode.
    owners: StripedMap<Vec<Owner>>,
    /// Requests that wait, by the kernel's number. A leaf lock.
    waiting: Mutex<HashMap<u64, Waiting>>,
}

/// An owner, and the open through which it has last set a lock: an owner that is an open file
/// description ends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    owner: LockOwner,
    open: OpenId,
}

/// The progress of a request that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    /// It is on its way to the server, which may not know it yet.
    Sending { interrupted: bool },
    /// The server can cancel it.
    Sent,
}

/// The consequence of an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// Cancel the request.
    Cancel,
    /// Nothing: the request is cancelled once it was sent.
    Kept,
    /// No request with this number waits for a lock.
    Unknown,
}

impl Locks {
    /// Records that an owner is about to set an `fcntl` lock, or has set it.
    pub(crate) fn sets(&self, ino: InodeId, open: OpenId, owner: LockOwner) {
        let mut stripe = self.owners.lock(ino.raw());
        let owners = stripe.entry(ino.raw()).or_default();
        match owners.iter_mut().find(|known| known.owner == owner) {
            Some(known) => known.open = open,
            None => owners.push(Owner { owner, open }),
        }
    }

    /// Forgets an owner, which has closed a descriptor of the file. Returns whether it may have had
    /// `fcntl` locks of the file.
    pub(crate) fn take(&self, ino: InodeId, owner: LockOwner) -> bool {
        self.remove(ino, |known| known.owner == owner)
    }

    /// Forgets the owners that end with an open.
    pub(crate) fn released(&self, ino: InodeId, open: OpenId) {
        self.remove(ino, |known| known.open == open);
    }

    /// Removes owners. Returns whether there were any.
    fn remove(&self, ino: InodeId, is_it: impl Fn(&Owner) -> bool) -> bool {
        let mut stripe = self.owners.lock(ino.raw());
        let Some(owners) = stripe.get_mut(&ino.raw()) else { return false };
        let before = owners.len();
        owners.retain(|known| !is_it(known));
        let removed = owners.len() < before;
        if owners.is_empty() {
            stripe.remove(&ino.raw());
        }
        removed
    }

    /// Records a request that may wait, before it is sent.
    pub(crate) fn sending(&self, unique: u64) {
        self.waiting.lock().insert(unique, Waiting::Sending { interrupted: false });
    }

    /// Records that the server has a request. Returns whether it must be cancelled now.
    pub(crate) fn sent(&self, unique: u64) -> bool {
        let old = self.waiting.lock().insert(unique, Waiting::Sent);
        old == Some(Waiting::Sending { interrupted: true })
    }

    /// Forgets a request that was answered.
    pub(crate) fn answered(&self, unique: u64) {
        self.waiting.lock().remove(&unique);
    }

    /// Returns the consequence of an interrupt of a request.
    pub(crate) fn interrupt(&self, unique: u64) -> Interrupt {
        match self.waiting.lock().get_mut(&unique) {
            Some(Waiting::Sent) => Interrupt::Cancel,
            Some(Waiting::Sending { interrupted }) => {
                *interrupted = true;
                Interrupt::Kept
            }
            None => Interrupt::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: InodeId = InodeId::from_raw(7);

    #[test]
    fn an_owner_holds_until_it_closes_any_descriptor() {
        let locks = Locks::default();
        assert!(!locks.take(INO, LockOwner(1)));
        locks.sets(INO, OpenId(1), LockOwner(1));
        locks.sets(INO, OpenId(2), LockOwner(1));
        locks.sets(INO, OpenId(2), LockOwner(2));
        assert!(locks.take(INO, LockOwner(1)) && !locks.take(INO, LockOwner(1)));
        assert!(locks.take(INO, LockOwner(2)));
        assert_eq!(locks.owners.drain().count(), 0);
    }

    /// The release of an open may come after its process has locked again through another.
    #[test]
    fn a_release_ends_the_owners_that_used_the_open_last() {
        let locks = Locks::default();
        locks.sets(INO, OpenId(1), LockOwner(1));
        locks.sets(INO, OpenId(1), LockOwner(2));
        locks.sets(INO, OpenId(2), LockOwner(2));
        locks.released(INO, OpenId(1));
        assert!(!locks.take(INO, LockOwner(1)) && locks.take(INO, LockOwner(2)));
    }

    #[test]
    fn an_interrupt_waits_until_the_server_knows_the_request() {
        let locks = Locks::default();
        assert_eq!(locks.interrupt(9), Interrupt::Unknown);
        locks.sending(9);
        assert_eq!(locks.interrupt(9), Interrupt::Kept);
        assert!(locks.sent(9));
        assert_eq!(locks.interrupt(9), Interrupt::Cancel);
        locks.answered(9);
        assert_eq!(locks.interrupt(9), Interrupt::Unknown);
        locks.sending(10);
        assert!(!locks.sent(10));
    }
}
