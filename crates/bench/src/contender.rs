//! What is measured.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::process;

/// A directory to measure, and the process behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contender {
    /// What reports call it.
    pub name: String,
    /// The directory; what is made in it is removed again.
    pub path: PathBuf,
    /// The process whose CPU time counts as the file system's, where there is one.
    pub daemon: Option<u32>,
}

impl Contender {
    /// The directory `path`, called by its path, with the process that serves it where it is a FUSE
    /// mount and this process may see whose.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        let daemon = path.metadata().ok().and_then(|meta| {
            let device = meta.dev();
            process::fuse_daemon(rustix::fs::minor(device))
        });
        Self { name: path.display().to_string(), path: path.to_owned(), daemon }
    }
}
