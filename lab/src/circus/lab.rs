//! What all runs share: programs, and a disk with the files for both servers.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::Scale;
use super::disk::{Disk, failed, output};

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
    /// How many small files there are.
    pub(super) small_files: usize,
    /// The roots of the large file, and of each of the small ones.
    pub(super) root: String,
    pub(super) small_root: String,
}

impl Lab {
    /// Returns the folder that nginx serves.
    pub(super) fn plain(&self) -> PathBuf {
        self.disk.point.join("plain")
    }

    pub(super) fn volume(&self) -> PathBuf {
        self.disk.point.join("volume")
    }

    /// Returns the file for what a server complains of.
    pub(super) fn log(&self, name: &str) -> Result<File, String> {
        let path = self.logs.join(name).with_extension("err");
        let opened = File::options().create(true).append(true).open(&path);
        opened.map_err(|why| failed(&path, &why))
    }

    /// Writes the large file and the small ones into a folder, and returns the root of the former
    /// and of each of the latter.
    pub(super) fn make(&self, folder: &Path) -> Result<(String, String), String> {
        let make = |path: &Path, bytes: u64| {
            let mut make = Command::new(&self.crowd);
            let root = output(make.arg("make").arg(path).args([&bytes.to_string(), FILE_SEED]))?;
            Ok::<_, String>(root.trim().to_owned())
        };
        let root = make(&folder.join(LARGE), self.scale.file_bytes)?;
        let mut small_root = String::new();
        for file in 0..self.small_files {
            small_root = make(&folder.join(format!("{SMALL}{file}")), self.scale.small_bytes())?;
        }
        Ok((root, small_root))
    }

    /// Parses what a crowd said, and checks the bytes of its samples.
    pub(super) fn parsed(&self, said: &str, root: &str) -> Result<Value, String> {
        let seen: Value = serde_json::from_str(said).map_err(|why| format!("crowd: {why}"))?;
        let roots = seen["roots"].as_array().into_iter().flatten();
        match roots.into_iter().find(|it| *it != root) {
            Some(root) => Err(format!("a client has other bytes: root {root}")),
            None => Ok(seen),
        }
    }
}
