//! What all runs share: programs, and a disk with the file for both servers.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::Scale;
use super::disk::{Disk, failed, output};

/// The seed of the file's bytes.
const FILE_SEED: &str = "1";

/// Programs, and a disk with the file for both servers.
pub(super) struct Lab {
    pub(super) pelago: PathBuf,
    pub(super) crowd: PathBuf,
    pub(super) logs: PathBuf,
    pub(super) disk: Disk,
    pub(super) scale: Scale,
    /// The root of the file.
    pub(super) root: String,
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

    /// Writes the file, and returns its root.
    pub(super) fn make(&self, path: &Path) -> Result<String, String> {
        let bytes = self.scale.file_bytes.to_string();
        let mut make = Command::new(&self.crowd);
        let root = output(make.arg("make").arg(path).args([&bytes, FILE_SEED]))?;
        Ok(root.trim().to_owned())
    }

    /// Parses what a crowd said, and checks the bytes of its samples.
    pub(super) fn parsed(&self, said: &str) -> Result<Value, String> {
        let seen: Value = serde_json::from_str(said).map_err(|why| format!("crowd: {why}"))?;
        let roots = seen["roots"].as_array().into_iter().flatten();
        match roots.into_iter().find(|root| *root != &self.root) {
            Some(root) => Err(format!("a client has other bytes: root {root}")),
            None => Ok(seen),
        }
    }
}
