//! A directory to measure.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::process;

/// A directory to measure, and the processes that serve it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contender {
    /// Its name in reports.
    pub name: String,
    /// The directory; files made in it are removed afterwards.
    pub path: PathBuf,
    /// The processes whose CPU time counts as the file system's; none if the kernel serves it.
    pub daemons: Vec<u32>,
}

impl Contender {
    /// Returns the directory `path`, named by its path. If it is on a FUSE mount, its daemon is
    /// found in `/proc` as far as permissions allow.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        let daemon = path.metadata().ok().and_then(|meta| {
            let device = meta.dev();
            process::fuse_daemon(rustix::fs::minor(device))
        });
        Self {
            name: path.display().to_string(),
            path: path.to_owned(),
            daemons: Vec::from_iter(daemon),
        }
    }
}
