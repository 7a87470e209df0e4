//! Retries while another process of the volume is exiting.
//!
//! A killed process releases its locks a moment after the kill, one after the other. A start right
//! after a `kill -9` waits for that, but never for a process that serves the volume. If the guard
//! of the mount was killed too, a thread of the killed process may wait for a program that waits
//! for the mount: then the mount's connection is ended first.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use pelago_check::{CheckError, SalvageError};
use pelago_server::StartError;
use pelago_store::table;
use pelago_store::volume::VolumeError;

use crate::control::{AskError, ask_status};
use crate::stale_mount;

/// The longest time that a process may take to exit: the kernel frees its memory before it closes
/// its files.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);
/// The time without an answer after which a process counts as exiting.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// An error that may go away by itself.
pub(crate) trait Transient {
    /// Returns whether another process holds the volume or its table.
    fn is_in_use(&self) -> bool;
}

impl Transient for StartError {
    fn is_in_use(&self) -> bool {
        matches!(
            self,
            Self::Volume(VolumeError::InUse { .. })
                | Self::Table { source: table::Error::InUse { .. }, .. }
        )
    }
}

impl Transient for CheckError {
    fn is_in_use(&self) -> bool {
        matches!(
            self,
            Self::Volume(VolumeError::InUse { .. }) | Self::Table(table::Error::InUse { .. })
        )
    }
}

impl Transient for SalvageError {
    fn is_in_use(&self) -> bool {
        matches!(self, Self::Volume(VolumeError::InUse { .. }))
    }
}

/// Runs `work` on the volume in `dir`, and again while an exiting process holds the volume, for at
/// most 5 seconds. Returns the last result.
pub(crate) fn retry_while_exiting<T, E: Transient>(
    dir: &Path,
    mut work: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let deadline = Instant::now() + EXIT_TIMEOUT;
    let mut is_freed = false;
    loop {
        let result = work();
        let is_in_use = result.as_ref().is_err_and(Transient::is_in_use);
        if !is_in_use || Instant::now() > deadline {
            return result;
        }
        // A dying process listens until its last thread ends, and never answers.
        if stale_mount::server_is_dying(dir) {
            if !std::mem::replace(&mut is_freed, true) {
                stale_mount::free(dir);
            }
        } else if is_served(dir) {
            return result;
        }
        thread::sleep(PAUSE);
    }
}

/// Returns whether a process answers on the volume's control socket.
fn is_served(dir: &Path) -> bool {
    ask_status(dir, ANSWER_TIMEOUT).as_ref().map_or_else(AskError::is_answer, |_| true)
}
