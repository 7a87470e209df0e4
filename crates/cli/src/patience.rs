//! A process that was killed lets go of its files one after the other: the volume's lock is free a
//! moment before its table is. Whoever has the lock may wait for the rest.

use std::thread;
use std::time::Duration;

use pelago_server::StartError;
use pelago_server::check::CheckError;
use pelago_store::table;

/// Together ten seconds: ending a process with many files and much memory takes that long at most.
const TRIES: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(10);

/// An error that may be about a process that is just ending.
pub(crate) trait MayPass {
    /// Whether the table is held by somebody, though its volume's lock was free.
    fn is_held(&self) -> bool;
}

impl MayPass for StartError {
    fn is_held(&self) -> bool {
        matches!(self, Self::Table { source: table::Error::InUse { .. }, .. })
    }
}

impl MayPass for CheckError {
    fn is_held(&self) -> bool {
        matches!(self, Self::Table(table::Error::InUse { .. }))
    }
}

/// Does `work`, again and again while somebody who is ending is in its way.
pub(crate) fn wait_for_the_dying<T, E: MayPass>(
    mut work: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    for _ in 1..TRIES {
        match work() {
            Err(error) if error.is_held() => thread::sleep(PAUSE),
            done => return done,
        }
    }
    work()
}
