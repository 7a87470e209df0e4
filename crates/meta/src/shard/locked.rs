//! A shard whose lock is held.
//!
//! The functions of an operation work on a [`Locked`]: while one exists, no other thread reads or
//! changes the state. Its methods that find rows are in [`super::lookup`].

use std::sync::atomic::Ordering;

use pelago_store::report::table_failed;
use pelago_store::rows::Stamp;
use pelago_store::table::Batch;
use pelago_wire::Error;

use super::Shard;

#[cfg(test)]
use super::lock_cost::StateGuard;
#[cfg(not(test))]
type StateGuard<'a> = pelago_store::sync::MutexGuard<'a, super::State>;

/// The number of attempts to take the lock before a caller sleeps: 20 to 100 microseconds.
const SPINS: u32 = 2_000;

/// A shard whose lock is held by this thread.
pub(super) struct Locked<'a> {
    pub(super) shard: &'a Shard,
    pub(super) state: StateGuard<'a>,
}

impl Shard {
    /// Takes the lock.
    #[inline]
    pub(super) fn lock(&self) -> Locked<'_> {
        let mut state = self.lock_state();
        #[cfg(test)]
        (state.locked_times += 1);
        // Not when a directory is added: an operation relies on the directories that it has loaded.
        state.directories.make_room();
        Locked { shard: self, state }
    }

    /// Takes the lock. An operation takes a few microseconds, less than putting a thread to sleep
    /// and waking it. So a caller spins for the time of some operations before it sleeps.
    fn lock_state(&self) -> StateGuard<'_> {
        #[cfg(test)]
        super::lock_cost::assert_not_locked();
        for _ in 0..SPINS {
            if !self.state.is_locked()
                && let Some(state) = self.state.try_lock()
            {
                return StateGuard::from(state);
            }
            std::hint::spin_loop();
        }
        StateGuard::from(self.state.lock())
    }
}

impl Locked<'_> {
    /// Returns the stamp of the next batch.
    pub(super) fn next_stamp(&self) -> Stamp {
        let epoch = self.shard.epoch.load(Ordering::Relaxed);
        Stamp { epoch, sequence: self.state.sequence + 1 }
    }

    /// Writes a batch whose rows bear [`Locked::next_stamp`].
    ///
    /// # Errors
    /// If the table fails; nothing has changed then.
    #[inline]
    pub(super) fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        // Before the write: a batch whose write fails may be in the journal all the same.
        if let Some(changed) = &mut self.state.changed_rows {
            changed.add(batch);
        }
        self.shard.table.write(batch).map_err(|error| table_failed("writing", &error))?;
        self.state.sequence += 1;
        self.shard.durability.applied(self.state.sequence);
        Ok(())
    }
}
