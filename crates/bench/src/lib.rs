//! The engines of `pelago bench`: the same work on several directories in turn, or on [`Files`]
//! without a mount.
//!
//! A machine is not the same from minute to minute, so what is compared alternates: each step of
//! each round is done on the first directory, then on the second, and so on, and the ratio of each
//! round is taken by itself. Beside every rate stands the CPU time it cost, of this process and of
//! the file system's daemon.
//!
//! [`Files`]: pelago_client::Files

#![forbid(unsafe_code)]

use std::path::PathBuf;

use pelago_wire::Error;
use rustix::io::Errno;

pub use contender::Contender;
pub use direct::{LibOptions, LibReport, Window, lib};
pub use fill::{Filled, fill};
pub use io::{IoOptions, io};
pub use meta::{MetaOptions, meta};
pub use report::{Figures, Ratio, Report, Row};
pub use tree::{Restart, Side, TreeOptions, tree};

mod contender;
mod direct;
mod fill;
mod io;
mod meta;
mod process;
mod report;
mod timing;
mod tree;

/// The version of what [`Report::to_json`] and [`LibReport::to_json`] give.
pub const JSON_VERSION: u32 = 1;

/// Why a measurement stopped.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// There is nothing to measure.
    #[error("no directory is given")]
    NoContender,
    /// A directory did not take an operation.
    #[error("{step} failed in {path}")]
    Step {
        /// What was being done.
        step: &'static str,
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: Errno,
    },
    /// What serves a directory did not end or start.
    #[error("what serves {path} cannot be started again")]
    Restart {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A request failed.
    #[error("a request failed")]
    Request(#[from] Error),
}

/// In which order contenders have their turns in a round: each is first as often as any other. What
/// one step leaves behind, the first of the next one pays for: bytes that the disk still writes,
/// memory that is being given back.
fn turns(round: u32, contenders: usize) -> impl Iterator<Item = usize> {
    let first = round as usize % contenders.max(1);
    (first..contenders).chain(0..first)
}

/// Has the kernel drop its caches of everything; `false` where it may not be asked.
fn drop_caches() -> bool {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_first_in_its_turn() {
        let order = |round| turns(round, 3).collect::<Vec<_>>();
        assert_eq!([order(0), order(1), order(2)], [[0, 1, 2], [1, 2, 0], [2, 0, 1]]);
        assert_eq!(order(3), order(0));
        assert_eq!(turns(7, 0).count(), 0);
    }
}
