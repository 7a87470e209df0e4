//! A witness of operations on a directory, for checks of what survived a crash.
//!
//! [`run`] works on a directory with several threads. It logs each operation to a file outside,
//! before the system call (the intent) and after it has returned (the answer), one `write` per
//! record. After the file system or the process has died, [`verify`] compares the directory with
//! the log:
//!
//! 1. every acknowledged operation on a name has happened, and no other;
//! 2. bytes that were fsynced, or whose file was closed, are there, with the file's size; its mtime
//!    is the one that was read after the close;
//! 3. changes of an open file since the last fsync may be missing, but only the latest ones, and no
//!    byte is invented;
//! 4. the operation in flight of each thread has happened or has not.
//!
//! Each thread has a directory of its own and names of its own in a shared one, so its expectation
//! is exact. A later run with the same log continues where the previous one ended.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

pub(crate) use run::is_death;
pub use run::{RunSummary, run};
pub use verify::{VerifyReport, verify};

mod action;
mod choose;
mod log;
mod perform;
mod run;
mod snapshot;
mod state;
mod verify;

/// Threads of a run.
pub const THREADS: usize = 4;

/// The reason for which a run or a verification failed.
#[derive(Debug, thiserror::Error)]
pub enum WitnessError {
    /// The log cannot be read or written.
    #[error("the log {path} cannot be used")]
    Log {
        /// The log file.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// A line of the log cannot be parsed, or contradicts earlier ones.
    #[error("line {line} of the log is invalid")]
    Line {
        /// Counted from 1.
        line: usize,
    },
    /// The directory cannot be read.
    #[error("{path} cannot be read")]
    Dir {
        /// The path in the directory.
        path: String,
        /// The error of the system call.
        #[source]
        source: Errno,
    },
    /// An operation that must succeed failed, but the file system is alive.
    #[error("{action} failed")]
    Refused {
        /// The operation as it stands in the log.
        action: String,
        /// The error of the system call.
        #[source]
        source: Errno,
    },
    /// The directory contradicts the log, so a further run cannot continue from it.
    #[error("the directory contradicts the log: {}", .0.problems.join("; "))]
    Lost(Box<VerifyReport>),
}
