//! What must be there after a crash.
//!
//! [`run`] works on a directory with several threads and logs, in a file elsewhere, each operation
//! before it is issued (the intent) and after it was answered, one `write` a record. When the file
//! system dies under it, or it is killed itself, [`verify`] reads the log and looks at the
//! directory:
//!
//! 1. every answered operation on a name has happened, and nothing else has;
//! 2. bytes of a file that was closed, or fsynced since they were written, are there, with its
//!    size; the time of the last change is the one seen after the close;
//! 3. of a file that was open, the changes since may lack from some moment on, never in between,
//!    and no byte is invented;
//! 4. the operation in flight of each thread has happened or not.
//!
//! Each thread works in a directory of its own and on names of its own in a shared one, so that
//! what it expects is exact. A later run with the same log goes on where the last one ended.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

pub use run::{Ran, run};
pub use verify::{Report, verify};

mod action;
mod choose;
mod log;
mod perform;
mod run;
mod snapshot;
mod state;
mod verify;

/// Threads of a workload.
pub const THREADS: usize = 4;

/// Why a workload or its verification stopped.
#[derive(Debug, thiserror::Error)]
pub enum WitnessError {
    /// The log cannot be read or written.
    #[error("the log {path} cannot be used")]
    Log {
        /// Where it is.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A line of the log is none of ours.
    #[error("line {line} of the log makes no sense")]
    Line {
        /// Counted from 1.
        line: usize,
    },
    /// The directory cannot be looked at.
    #[error("{path} cannot be read")]
    Dir {
        /// Below the directory.
        path: String,
        /// Why.
        #[source]
        source: Errno,
    },
    /// An operation that must go well failed, and not because the file system died.
    #[error("{action} failed")]
    Refused {
        /// The operation as the log has it.
        action: String,
        /// Why.
        #[source]
        source: Errno,
    },
    /// The directory is not what the log says, so that no further run can go on from it.
    #[error("the directory is not what the log says: {}", .0.problems.join("; "))]
    Lost(Box<Report>),
}
