//! The report of a salvage: a file with lines for what is lost or may be older than it was, and
//! notes.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::{SalvageError, failed_at};
use crate::FINDINGS;

/// The report under way.
#[derive(Debug)]
pub(super) struct Report {
    file: BufWriter<File>,
    path: PathBuf,
    /// The first lines, for the caller.
    pub(super) lines: Vec<String>,
    /// The number of lines with a loss; one file may have several.
    pub(super) lost: u64,
}

impl Report {
    /// Creates the file in the target.
    pub(super) fn create(target: &Path) -> Result<Self, SalvageError> {
        let path = target.join("report");
        // The names of all users are in it.
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(|error| failed_at("making", &path, error))?;
        Ok(Self { file: BufWriter::new(file), path, lines: Vec::new(), lost: 0 })
    }

    /// Reports something that does not count as a loss.
    pub(super) fn note(&mut self, text: &str) -> Result<(), SalvageError> {
        self.line(format!("note  {text}"))
    }

    /// Reports that something is lost, or may be older than it was. `path` is in the target; it is
    /// empty if the loss belongs to no file.
    pub(super) fn lose(&mut self, path: &[u8], loss: &str) -> Result<(), SalvageError> {
        self.lost += 1;
        match path {
            [] => self.line(format!("lost  {loss}")),
            path => self.line(format!("lost  {}: {loss}", printable(path))),
        }
    }

    /// Writes the lines that are still buffered.
    pub(super) fn finish(&mut self) -> Result<(), SalvageError> {
        self.file.flush().map_err(|error| failed_at("writing", &self.path, error))
    }

    fn line(&mut self, line: String) -> Result<(), SalvageError> {
        let written = writeln!(self.file, "{line}");
        written.map_err(|error| failed_at("writing", &self.path, error))?;
        if self.lines.len() < FINDINGS {
            self.lines.push(line);
        }
        Ok(())
    }
}

/// Returns a path for people: a name may have any bytes, also those that control a terminal.
fn printable(path: &[u8]) -> String {
    let mut text = String::new();
    for character in String::from_utf8_lossy(path).chars() {
        match character.is_control() {
            true => text.extend(character.escape_default()),
            false => text.push(character),
        }
    }
    text
}
