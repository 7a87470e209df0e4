//! A salvage: the copy of all readable files of a damaged volume, with a report of the rest.
//!
//! The volume is not changed, and no server can open it meanwhile. Its rows are read past damage,
//! each file of the engine by itself, into a table of the salvage below the target; of each key the
//! newest version counts. Then the tree of names is copied, and after that the directories and
//! files without a name:
//!
//! ```text
//! files/         the tree: names, bytes, modes, times, extended attributes, links; owners for root
//! lost+found/    directories by inode, bytes by inode and generation, whose names are lost
//! report         a line for each thing that is lost, or that may be older than it was
//! ```

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use pelago_store::content::ContentStore;
use pelago_store::table;
use pelago_store::table::fjall::salvage::{Lost, Unread, read_rows};
use pelago_store::volume::{Remains, VolumeError};

use bytes::Copier;
use report::Report;
use rows::FoundRows;
use target::Target;
use tree::TreeCopy;

mod bytes;
mod lost_found;
mod report;
mod rows;
mod target;
mod tree;

/// The result of a salvage: the counts of copied and of lost things.
#[derive(Debug, Default)]
pub struct Salvaged {
    /// Files of all types under their names, without directories.
    pub files: u64,
    /// Directories under their names.
    pub directories: u64,
    /// Bytes of regular files.
    pub bytes: u64,
    /// Directories and files in `lost+found`.
    pub found: u64,
    /// The first [`super::FINDINGS`] lines of the report.
    pub lines: Vec<String>,
    /// Things that are lost, or may be older than they were.
    pub lost: u64,
}

impl Salvaged {
    /// Returns whether everything was copied.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.lost == 0
    }
}

/// An error after which nothing, or not everything that can be read, was copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SalvageError {
    /// The volume cannot be opened.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The target has files, or is no folder.
    #[error("{} is not an empty folder: name one that is empty or missing", path.display())]
    NotEmpty {
        /// The target.
        path: PathBuf,
    },
    /// The target is in the volume.
    #[error("{} is in the volume, which is not changed: name a folder beside it", path.display())]
    Inside {
        /// The target.
        path: PathBuf,
    },
    /// The target cannot be written.
    #[error("{doing} {} failed", path.display())]
    Target {
        /// The operation, for a message: "writing".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// The table of the salvage, in the target, failed.
    #[error("the rows that were read cannot be kept in {}", path.display())]
    Rows {
        /// The target.
        path: PathBuf,
        /// The error.
        #[source]
        source: table::Error,
    },
}

/// The folder of the rows that were read, in the target. It is removed at the end.
const ROWS: &str = ".rows";

/// Copies all readable files of the volume in `dir` into the folder `to`, which must be empty or
/// missing.
///
/// # Errors
/// [`SalvageError`]. What was copied before stays.
pub fn salvage(dir: &Path, to: &Path) -> Result<Salvaged, SalvageError> {
    let remains = Remains::open(dir)?;
    let to = make_target(dir, to)?;
    let mut report = Report::create(&to)?;
    let failed = |source| SalvageError::Rows { path: to.clone(), source };
    // Names and bytes of all users are in it.
    let private = fs::DirBuilder::new().mode(0o700).create(to.join(ROWS));
    private.map_err(|source| failed_at("making", &to.join(ROWS), source))?;
    let mut rows = FoundRows::create(&to.join(ROWS)).map_err(failed)?;
    if let Err(error) = remains.format() {
        report.note(&error.to_string())?;
    }
    let unread = match remains.table() {
        Ok(table) => read_rows(table, &mut |row| rows.add(row)).map_err(failed)?,
        Err(error) => {
            report.lose(b"", &error.to_string())?;
            rows.lose_all();
            Vec::new()
        }
    };
    note_unread(&unread, &mut rows, &mut report)?;
    let content = match remains.content() {
        Ok(folder) => ContentStore::open_unchanged(folder).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    // Without content files the names and the small files are still copied.
    let content = match content {
        Ok(content) => Some(content),
        Err(error) => {
            report.lose(b"", &error)?;
            None
        }
    };
    let copier = Copier::new(&rows, content.as_ref());
    let target = Target::open(&to)?;
    let mut copy = TreeCopy::new(&rows, copier, report, &target);
    copy.tree()?;
    copy.lost_and_found()?;
    let salvaged = copy.finish()?;
    target.remove_links()?;
    target.sync()?;
    rows.close();
    let rows = to.join(ROWS);
    fs::remove_dir_all(&rows).map_err(|source| failed_at("removing", &rows, source))?;
    Ok(salvaged)
}

/// Reports the parts of the engine's files that could not be read.
fn note_unread(
    unread: &[Unread],
    rows: &mut FoundRows,
    report: &mut Report,
) -> Result<(), SalvageError> {
    for Unread { path, what, lost } in unread {
        let says = format!("{}: {what}", path.display());
        match lost {
            Lost::Nothing => report.note(&says)?,
            Lost::Rows(ranges) => {
                rows.lose(ranges);
                report.lose(b"", &says)?;
            }
            Lost::Changes => {
                rows.lose_changes();
                report.lose(b"", &format!("{says}; the latest changes may be missing"))?;
            }
        }
    }
    Ok(())
}

/// Makes the target. Returns its path without symbolic links.
fn make_target(dir: &Path, to: &Path) -> Result<PathBuf, SalvageError> {
    let path = to.to_path_buf();
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| Path::new("."));
    let whole = |path: &Path| path.canonicalize().map_err(|e| failed_at("looking for", path, e));
    let dir = whole(dir)?;
    let is_there = fs::symlink_metadata(to).is_ok();
    let place = if is_there { whole(to)? } else { whole(parent)? };
    if place.starts_with(&dir) {
        return Err(SalvageError::Inside { path });
    }
    if is_there {
        let mut entries = match fs::read_dir(to) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(SalvageError::NotEmpty { path });
            }
            listed => listed.map_err(|error| failed_at("listing", to, error))?,
        };
        if entries.next().is_some() {
            return Err(SalvageError::NotEmpty { path });
        }
    } else {
        let made = fs::DirBuilder::new().mode(0o700).create(to);
        made.map_err(|error| failed_at("making", to, error))?;
    }
    whole(to)
}

fn failed_at(doing: &'static str, path: &Path, source: io::Error) -> SalvageError {
    SalvageError::Target { doing, path: path.to_path_buf(), source }
}
