//! The parts that all runs share: programs, and a disk with the files for both servers.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::Scale;
use super::disk::Disk;
use crate::kit::process::output;
use crate::kit::report::failed;

/// The seed of the files' bytes.
const FILE_SEED: &str = "1";
/// The name of the large file; that of each small one is longer by its number.
pub(super) const LARGE: &str = "file";
pub(super) const SMALL: &str = "small";

/// Programs, and a disk with the files for both servers.
pub(super) struct Lab {
    pub(super) pelago: PathBuf,
    pub(super) crowd: PathBuf,
    pub(super) logs: PathBuf,
    pub(super) disk: Disk,
    pub(super) scale: Scale,
    /// The number of small files.
    pub(super) small_files: usize,
    /// The roots of the files.
    pub(super) roots: Roots,
}

/// The roots of the hash trees of files with the same seeds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Roots {
    pub(super) large: String,
    /// The root of each small file; empty without small files.
    pub(super) small: String,
}

impl Lab {
    /// Returns the folder that nginx serves.
    pub(super) fn plain(&self) -> PathBuf {
        self.disk.point.join("plain")
    }

    pub(super) fn volume(&self) -> PathBuf {
        self.disk.point.join("volume")
    }

    /// Returns the file for the errors of a server.
    pub(super) fn log(&self, name: &str) -> Result<File, String> {
        let path = self.logs.join(name).with_extension("err");
        let opened = File::options().create(true).append(true).open(&path);
        opened.map_err(|why| failed(&path, &why))
    }

    /// Writes the large file and the small ones into a folder, and returns their roots.
    pub(super) fn make(&self, folder: &Path) -> Result<Roots, String> {
        let make = |path: &Path, bytes: u64| {
            let mut make = Command::new(&self.crowd);
            let root = output(make.arg("make").arg(path).args([&bytes.to_string(), FILE_SEED]))?;
            Ok::<_, String>(root.trim().to_owned())
        };
        let large = make(&folder.join(LARGE), self.scale.file_bytes)?;
        let mut small = String::new();
        for file in 0..self.small_files {
            small = make(&folder.join(format!("{SMALL}{file}")), self.scale.small_bytes())?;
        }
        Ok(Roots { large, small })
    }

    /// Parses the output of a crowd, and checks the roots of its samples.
    pub(super) fn parsed(&self, said: &str, root: &str) -> Result<Value, String> {
        let seen: Value = serde_json::from_str(said).map_err(|why| format!("crowd: {why}"))?;
        let roots = seen["roots"].as_array().into_iter().flatten();
        match roots.into_iter().find(|it| *it != root) {
            Some(root) => Err(format!("a client has other bytes: root {root}")),
            None => Ok(seen),
        }
    }
}
