//! A folder for one measurement.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::failure::{Exit, Failure, Outcome};
use crate::{locate, output};

/// A folder that is created for a measurement and removed on drop.
pub(super) struct Scratch {
    pub(super) path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
#[error("{} cannot be created", .path.display())]
struct ScratchError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl Scratch {
    /// Creates the folder in `dir`. `benchmark` is a part of its name.
    pub(super) fn new(dir: &Path, benchmark: &str) -> Outcome<Self> {
        let dir = locate::absolute(dir)?;
        let path = dir.join(format!("pelago-bench-{benchmark}-{}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => Ok(Self { path }),
            Err(source) => {
                let error = ScratchError { path, source };
                Err(Failure::new(Exit::Failed, error).hint("name a folder that can be written to"))
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            output::print_error(&format!("{} was not removed: {error}", self.path.display()));
        }
    }
}
