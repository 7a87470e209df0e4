//! Writers of which each goes a way of its own, and a ledger of what was answered to them.
//!
//! What a writer does follows from a seed (`plan`): it makes, grows, overwrites, cuts, renames
//! and removes the files of one folder, and syncs them. The folder has a level of safety, which is
//! what these syncs mean. [`run`] notes each step in a file outside, before the system call and
//! after its answer. After a disaster [`verify`] looks for the step up to which a folder has
//! happened:
//!
//! 1. each folder has the names after some number of its steps, and each file bytes that it had by
//!    then: bytes that no sync asked for are in memory first, so names are there before them; of
//!    the write that was under way there may be a part;
//! 2. of each sync that was answered, and whose level survives the disaster, everything is there:
//!    its own step, and all that had been answered to any writer before the sync began;
//! 3. syncs of other levels that are missing are counted.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

pub use run::{LedgerSummary, run};
pub use verify::{Fates, LevelCounts, verify};

mod book;
mod plan;
mod run;
mod states;
mod verify;

/// The extended attribute with the level of a folder.
const LEVEL: &str = "user.pelago.level";

/// The reason for which a run or a verification failed.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The ledger cannot be read or written.
    #[error("the ledger {path} cannot be used")]
    Ledger {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// A line of the ledger cannot be parsed, or contradicts earlier ones.
    #[error("line {line} of the ledger is invalid")]
    Line {
        /// Counted from 1.
        line: usize,
    },
    /// A step that must succeed failed, but the file system is alive.
    #[error("step {step} of writer {writer} failed")]
    Refused {
        /// The writer, counted from 0.
        writer: usize,
        /// The step, counted from 1.
        step: usize,
        /// The error of the system call.
        #[source]
        source: Errno,
    },
    /// A folder cannot be made or read.
    #[error("{path} cannot be used")]
    Folder {
        /// The path below the root.
        path: String,
        /// The error of the system call.
        #[source]
        source: Errno,
    },
}

/// Returns the folder of a writer.
fn folder_of(writer: usize) -> String {
    format!("writer-{writer}")
}

/// Returns the seed of a writer in a run.
const fn seed_of(seed: u64, writer: usize) -> u64 {
    seed.wrapping_mul(1_000).wrapping_add(writer as u64)
}
