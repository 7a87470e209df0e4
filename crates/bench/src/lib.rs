//! The engines of `pelago bench`: the same work on several directories in turn, or on [`Files`]
//! without a mount.
//!
//! The speed of a machine changes from minute to minute, so directories alternate: each step of
//! each round runs on the first directory, then on the second, and so on, and ratios are taken
//! within a round. Each rate comes with its cost in CPU time, of this process and of the file
//! system's daemon.
//!
//! [`Files`]: pelago_client::Files

#![forbid(unsafe_code)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use pelago_wire::Error;
use rustix::io::Errno;

pub use contender::Contender;
pub use direct::{DirectOptions, DirectReport, Window, direct};
pub use discfs::{DiscfsFigures, DiscfsOptions, DiscfsReport, DiscfsRow, Paper, discfs};
pub use everyday::{EverydayOptions, EverydayReport, JobFigures, JobTimes, everyday};
pub use fill::{FillReport, fill};
pub use io::{IoOptions, io};
pub use leases::{LeaseClients, LeaseStep, LeasesReport, leases};
pub use memory_limit::MemoryLimit;
pub use meta::{MetaOptions, meta};
pub use report::{Figures, Ratio, Report, Row, quartiles};
pub use ringer::{
    RequestCounter, RingerFigures, RingerFolder, RingerOptions, RingerPaper, RingerReport,
    RingerRow, ringer,
};
pub use smfs::{MirrorWait, SmfsFigures, SmfsFolder, SmfsLevel, SmfsOptions, SmfsReport, smfs};
pub use tree::{ColdContender, Restart, TreeOptions, tree};

pub mod circus;
mod contender;
mod direct;
mod discfs;
mod everyday;
mod fill;
pub mod find;
mod io;
mod leases;
mod memory_limit;
mod meta;
mod process;
mod programs;
mod report;
mod ringer;
mod smfs;
mod timing;
mod tree;
mod vocabulary;

/// The version of the objects of [`Report::to_json`] and its like.
pub const JSON_VERSION: u32 = 1;

/// The reason for which a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The list of directories is empty.
    #[error("no directory is given")]
    NoContender,
    /// An operation failed.
    #[error("{step} failed in {path}")]
    Step {
        /// The operation.
        step: &'static str,
        /// The directory.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: Errno,
    },
    /// A file of a corpus could not be made.
    #[error("cannot make a file in {path}")]
    Fill {
        /// The directory.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: std::io::Error,
    },
    /// A given tree cannot be read.
    #[error("cannot read {path}")]
    Tree {
        /// The tree, or a file of it.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: std::io::Error,
    },
    /// A program is not installed.
    #[error("`{program}` is missing: it is in the Debian package `{package}`")]
    NoProgram {
        /// The program.
        program: &'static str,
        /// The package that has it.
        package: &'static str,
    },
    /// A program failed.
    #[error("`{program}` failed in {path} ({status}): {said}")]
    Program {
        /// The program.
        program: &'static str,
        /// The directory in which it ran.
        path: PathBuf,
        /// The exit code, or the signal that ended the program.
        status: ExitStatus,
        /// The output of the program.
        said: String,
    },
    /// The result of a job is not what it should be.
    #[error("the result of `{job}` in {path} is wrong: {said}")]
    Wrong {
        /// The job.
        job: &'static str,
        /// The directory in which it was done.
        path: PathBuf,
        /// The output of the check.
        said: String,
    },
    /// A query was not answered as it should be.
    #[error("`{query}` in {path}: {why}")]
    Search {
        /// The query.
        query: String,
        /// The directory that was searched.
        path: PathBuf,
        /// The finding.
        why: String,
    },
    /// Two threads could not pass a byte to each other.
    #[error("a pair of sockets failed")]
    Socket {
        /// The error of the system call.
        #[source]
        source: std::io::Error,
    },
    /// The process that serves a directory did not stop or start.
    #[error("the process that serves {path} cannot be restarted")]
    Restart {
        /// The directory.
        path: PathBuf,
        /// The error of the restart.
        #[source]
        source: std::io::Error,
    },
    /// A request to the file system without a mount failed.
    #[error("a request failed")]
    Request(#[from] Error),
}

/// Returns the order of contenders in a round. Each is first equally often, because the first one
/// pays for the rest of the previous step: bytes that are still being written, memory that is being
/// freed.
fn turns(round: u32, contenders: usize) -> impl Iterator<Item = usize> {
    let first = round as usize % contenders.max(1);
    (first..contenders).chain(0..first)
}

/// Waits until all writes are on the disks: those that the file system holds back, and then those
/// of its daemon to another file system.
fn settle(path: &Path) -> Result<(), BenchError> {
    let settled = || -> Result<(), Errno> {
        let dir =
            File::open(path).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        // Some file systems do not sync directories.
        let _unsupported = rustix::fs::fsync(&dir);
        rustix::fs::syncfs(&dir)
    };
    let failed = |source| BenchError::Step { step: "syncfs", path: path.to_owned(), source };
    settled().map_err(failed)?;
    rustix::fs::sync();
    Ok(())
}

/// Makes the kernel drop its page, dentry and inode caches; returns `false` if that is not
/// permitted.
fn drop_caches() -> bool {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_contender_is_first_equally_often() {
        let order = |round| turns(round, 3).collect::<Vec<_>>();
        assert_eq!([order(0), order(1), order(2)], [[0, 1, 2], [1, 2, 0], [2, 0, 1]]);
        assert_eq!(order(3), order(0));
        assert_eq!(turns(7, 0).count(), 0);
    }
}
