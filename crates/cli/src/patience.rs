//! A process that was killed lets go of what it held a moment later, one thing after the other.
//! Whoever brings its volume up again waits for that, but not for one that serves it.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use pelago_check::CheckError;
use pelago_server::StartError;
use pelago_store::table;
use pelago_store::volume::VolumeError;

use crate::control::{AskError, Request, ask};

/// How long ending takes at the most: memory is given back before files are.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);
/// How long a process that serves may think before it counts as one that is ending.
const ANSWER: Duration = Duration::from_secs(2);

/// An error that may be about a process that is just ending.
pub(crate) trait MayPass {
    /// Whether somebody holds the volume or its table.
    fn is_held(&self) -> bool;
}

impl MayPass for StartError {
    fn is_held(&self) -> bool {
        matches!(
            self,
            Self::Volume(VolumeError::InUse { .. })
                | Self::Table { source: table::Error::InUse { .. }, .. }
        )
    }
}

impl MayPass for CheckError {
    fn is_held(&self) -> bool {
        matches!(
            self,
            Self::Volume(VolumeError::InUse { .. }) | Self::Table(table::Error::InUse { .. })
        )
    }
}

/// Does `work` on the volume in `dir`, again and again while somebody who is ending is in its way.
pub(crate) fn wait_for_the_dying<T, E: MayPass>(
    dir: &Path,
    mut work: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let until = Instant::now() + PATIENCE;
    loop {
        let done = work();
        let is_held = done.as_ref().is_err_and(MayPass::is_held);
        if !is_held || is_served(dir) || Instant::now() > until {
            return done;
        }
        thread::sleep(PAUSE);
    }
}

/// Whether a process answers for the volume.
fn is_served(dir: &Path) -> bool {
    matches!(ask(dir, Request::Status, ANSWER), Ok(_) | Err(AskError::Denied))
}
