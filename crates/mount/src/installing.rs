//! Inodes whose entry was sent to the kernel and is perhaps not installed yet.
//!
//! While other sessions exist the attributes of an entry may have a lifetime. Linux installs an
//! entry in the thread of the program that requested it, some time after the reply was written to
//! the device. An invalidation in between finds no inode (`ENOENT`) and has no effect, and the old
//! attributes are installed after it. The mount counts the references that the kernel has or is
//! about to have ([`Inodes`]). As long as there is one and the kernel has no such inode, an entry
//! is on its way to the kernel, or a FORGET from it. So the invalidation is repeated until one of
//! both has arrived.
//!
//! [`Inodes`]: crate::inodes::Inodes

use std::thread;
use std::time::{Duration, Instant};

use pelago_wire::InodeId;

use crate::init::INSTALLS;
use crate::state::State;

/// The first pause between two attempts to invalidate such an inode; each further one is twice as
/// long, up to [`LONGEST_PAUSE`].
pub(crate) const FIRST_PAUSE: Duration = Duration::from_micros(100);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// Returns whether the kernel may be about to install an inode that it does not have (`ENOENT`).
pub(crate) fn may_be(state: &State, ino: InodeId) -> bool {
    state.lifetimes.is_shared() && state.inodes.is_known(ino)
}

/// Invalidates an inode whose entry may be on its way since `since`. Returns whether that is done:
/// `invalidate` has found the inode, the kernel does not refer to it any more, or the lifetime of
/// its attributes is over.
pub(crate) fn is_over(
    state: &State,
    ino: InodeId,
    since: Instant,
    invalidate: impl FnOnce(InodeId) -> bool,
) -> bool {
    !may_be(state, ino)
        || invalidate(ino)
        || since.elapsed() > state.lifetimes.entry_ttl() + INSTALLS
}

/// Invalidates inodes once the kernel has installed them. Returns when that is done for each.
pub(crate) fn wait_for_all(
    state: &State,
    mut inodes: Vec<InodeId>,
    invalidate: impl Fn(InodeId) -> bool,
) {
    let since = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        inodes.retain(|ino| !is_over(state, *ino, since, &invalidate));
        if inodes.is_empty() {
            return;
        }
        // The kernel sends no message when it has installed an inode.
        thread::sleep(pause);
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use pelago_client::Files;
    use pelago_wire::{Attr, Handle, LeaseTimes, Name, NameHash};

    use super::*;
    use crate::options::Keeps;
    use crate::silent::Silent;
    use crate::state::Preferences;

    /// Leases that are not used.
    struct Unused;

    impl LeaseTimes for Unused {
        fn attr_left(&self, _ino: InodeId) -> Duration {
            Duration::ZERO
        }

        fn attr_holds(&self, _attr: &Attr) -> Duration {
            Duration::ZERO
        }

        fn name_left(&self, _dir: InodeId, _name: &Name) -> Duration {
            Duration::ZERO
        }
    }

    const FILE: InodeId = InodeId::from_raw(99);

    fn state(keeps: Keeps) -> State {
        let preferences = Preferences { keeps, ..Preferences::default() };
        let state = State::new(Files::new(Arc::new(Silent)), preferences);
        state.learn(Handle::at(FILE, InodeId::ROOT, NameHash(1)));
        state
    }

    #[test]
    fn an_inode_is_invalidated_until_the_kernel_has_it_or_has_forgotten_it() {
        let state = state(Keeps::Leased(Arc::new(Unused)));
        let tries = Cell::new(0);
        let attempt = |ends_with: bool| {
            tries.set(tries.get() + 1);
            tries.get() % 5 == 0 && ends_with
        };
        wait_for_all(&state, vec![FILE], |_| attempt(true));
        assert_eq!(tries.get(), 5);
        wait_for_all(&state, vec![FILE], |_| {
            state.inodes.forget(FILE, 1);
            attempt(false)
        });
        assert_eq!(tries.get(), 6);
        assert!(!may_be(&state, FILE));
    }

    #[test]
    fn without_other_sessions_nothing_waits_for_the_kernel() {
        let state = state(Keeps::Everything);
        wait_for_all(&state, vec![FILE], |_| panic!("no other session changes it"));
        state.lifetimes.set_shared(true);
        let tries = Cell::new(0);
        wait_for_all(&state, vec![FILE], |_| tries.replace(tries.get() + 1) == 2);
        assert_eq!(tries.get(), 3);
    }
}
