//! The limit for the size of files that the process may write, RLIMIT_FSIZE (`ulimit -f`).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;

use crate::failure::{Exit, Failure, Outcome};
use crate::output;

/// The limit that a volume needs at least for its own files: a journal has 64 MiB and the bytes
/// that arrive until the memtable is sealed, the reserve 64 MiB, a file of a sorted run 32 MiB and
/// its block index.
const MIN_BYTES: u64 = 256 << 20;

#[derive(Debug, thiserror::Error)]
#[error("the file size limit (ulimit -f) is {}, but a volume needs {}",
    output::bytes(*.limit), output::bytes(MIN_BYTES))]
struct TooSmall {
    limit: u64,
}

/// Raises the soft limit to the hard limit, and makes a write beyond it fail with `EFBIG`: by
/// default the signal SIGXFSZ kills the process.
pub(crate) fn raise_limit() {
    // A handler, because an ignored signal would be inherited by child processes.
    if let Err(error) = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))) {
        tracing::warn!(%error, "SIGXFSZ still kills this process");
    }
    let now = getrlimit(Resource::Fsize);
    if now.current != now.maximum {
        let raised = Rlimit { current: now.maximum, maximum: now.maximum };
        if let Err(error) = setrlimit(Resource::Fsize, raised) {
            tracing::warn!(%error, "the file size limit could not be raised");
        }
    }
}

/// Refuses to serve a volume if the limit leaves no room for the volume's own files.
pub(crate) fn check_limit() -> Outcome<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < MIN_BYTES => Err(Failure::new(Exit::Failed, TooSmall { limit })
            .hint("run `ulimit -f unlimited`, then retry; or run as a user without this limit")),
        _ => Ok(()),
    }
}
