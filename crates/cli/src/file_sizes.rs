//! The limit of file sizes that this process was started with (`ulimit -f`).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;

use crate::failure::{Exit, Failure, Outcome};
use crate::output;

/// Bytes of the largest file that a volume needs for itself. Its journals take 64 MiB and what
/// comes until a memtable is sealed, its reserve 64 MiB, a file of a sorted run 32 MiB and a table
/// of its blocks.
const LEAST_BYTES: u64 = 256 << 20;

#[derive(Debug, thiserror::Error)]
#[error("this process may make no file larger than {}, a volume needs {}",
    output::bytes(*.may), output::bytes(LEAST_BYTES))]
struct TooSmall {
    may: u64,
}

/// Raises the limit as far as it may be, and has a write beyond it answer `EFBIG`: by default the
/// signal SIGXFSZ ends the process that writes.
pub(crate) fn prepare() {
    // A handler that does nothing, unlike a signal that is ignored, is not inherited.
    if let Err(error) = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))) {
        tracing::warn!(%error, "SIGXFSZ still ends this process");
    }
    let now = getrlimit(Resource::Fsize);
    if now.current != now.maximum {
        let raised = Rlimit { current: now.maximum, maximum: now.maximum };
        if let Err(error) = setrlimit(Resource::Fsize, raised) {
            tracing::warn!(%error, "the limit of file sizes stays");
        }
    }
}

/// Refuses to serve a volume under a limit that leaves no room for its own files.
pub(crate) fn expect_room() -> Outcome<()> {
    match getrlimit(Resource::Fsize).current {
        Some(may) if may < LEAST_BYTES => Err(Failure::new(Exit::Failed, TooSmall { may })
            .hint("`ulimit -f unlimited`, then again; or as a user without this limit")),
        _ => Ok(()),
    }
}
