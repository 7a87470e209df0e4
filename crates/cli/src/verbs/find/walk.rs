//! The walk through a folder and all below it.

use std::fs::{self, DirEntry, ReadDir};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pelago_find::Query;
use pelago_wire::Time;

use super::candidate::{Found, Users};

/// Where a walk is.
pub(super) struct Walk {
    /// The folders from the first one to the present one, each with what is left of it.
    open: Vec<ReadDir>,
    /// The file system that is not left.
    device: u64,
    users: Users,
    unread: Unread,
}

/// Folders that could not be read.
#[derive(Debug, Default)]
pub(super) struct Unread {
    pub(super) count: u64,
    pub(super) first: Option<(PathBuf, io::Error)>,
}

impl Walk {
    /// Begins a walk through a folder.
    ///
    /// # Errors
    /// If that folder cannot be read.
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        let device = fs::metadata(folder)?.dev();
        let open = vec![fs::read_dir(folder)?];
        Ok(Self { open, device, users: Users::default(), unread: Unread::default() })
    }

    /// Returns the next file that matches, by the path that leads to it from the first folder.
    pub(super) fn next_match(&mut self, query: &Query, now: Time) -> Option<PathBuf> {
        loop {
            let entry = match self.open.last_mut()?.next() {
                None => {
                    self.open.pop();
                    continue;
                }
                Some(Ok(entry)) => entry,
                Some(Err(error)) => {
                    self.unread.note(PathBuf::from("a folder"), error);
                    self.open.pop();
                    continue;
                }
            };
            let path = entry.path();
            // A file that is gone is no match.
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                self.enter(&entry, &path);
            }
            let name = entry.file_name();
            let file = Found::new(&path, &name, kind, &self.users);
            if query.matches(&file, now) && !file.is_gone() {
                return Some(path);
            }
        }
    }

    /// Returns the folders that could not be read so far.
    pub(super) const fn unread(&self) -> &Unread {
        &self.unread
    }

    fn enter(&mut self, entry: &DirEntry, path: &Path) {
        let opened = match entry.metadata() {
            Ok(metadata) if metadata.dev() != self.device => return,
            Ok(_) => fs::read_dir(path),
            Err(error) => Err(error),
        };
        match opened {
            Ok(inside) => self.open.push(inside),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.unread.note(path.to_owned(), error),
        }
    }
}

impl Unread {
    fn note(&mut self, path: PathBuf, error: io::Error) {
        self.count += 1;
        self.first.get_or_insert((path, error));
    }
}
