//! Making many content files safe.

use std::collections::BTreeSet;

use pelago_wire::{Generation, InodeId};

use super::{ContentStore, Error, FileAccess, subfolder_of};

/// Content files that could not be made safe.
#[derive(Debug, thiserror::Error)]
#[error("content files could not be synced")]
pub struct SyncError {
    /// The first error.
    #[source]
    pub source: Error,
    /// The files that may be lost.
    pub scope: SyncScope,
}

/// The files that a failed sync may have lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncScope {
    /// Any content file that was not safe before.
    All,
    /// Some of the files that were to be synced.
    Some {
        /// Files whose bytes may be lost.
        files: Vec<InodeId>,
        /// Subfolders in which names may be lost: the low bytes of the inodes.
        folders: Vec<u64>,
    },
}

impl ContentStore {
    /// Returns whether [`ContentStore::sync_all`] reaches the disk and reports every failed
    /// write-back since the last call, also of files that are closed (`syncfs` of Linux 5.8).
    #[must_use]
    pub fn has_syncfs(&self) -> bool {
        self.root.has_syncfs()
    }

    /// Makes bytes, times and names of these files safe, and the removal of those that are gone. It
    /// syncs the whole file system at once, or each file and its subfolder if `syncfs` does not
    /// reach the disk, as below FUSE.
    ///
    /// # Errors
    /// [`SyncError`] says what may be lost. Linux reports a failed write-back only once: if a later
    /// sync succeeds, the bytes may be lost all the same.
    pub fn sync_files(&self, files: &[(InodeId, Generation)]) -> Result<(), SyncError> {
        if self.has_syncfs() {
            let scope = SyncScope::All;
            return self.sync_all().map_err(|source| SyncError { source, scope });
        }
        let mut failed = Vec::new();
        let mut folders = BTreeSet::new();
        let mut first = None;
        for (ino, generation) in files {
            let opened = self.open_file(*ino, *generation, FileAccess::Read);
            let synced = opened.and_then(|file| file.map_or(Ok(()), |file| file.sync(false)));
            if let Err(error) = synced {
                failed.push(*ino);
                first.get_or_insert(error);
            }
            folders.insert(subfolder_of(*ino));
        }
        let mut failed_folders = Vec::new();
        for folder in folders {
            if let Err(error) = self.root.sync_names(folder) {
                failed_folders.push(folder);
                first.get_or_insert(error);
            }
        }
        let scope = SyncScope::Some { files: failed, folders: failed_folders };
        first.map_or(Ok(()), |source| Err(SyncError { source, scope }))
    }

    /// Makes all content files safe with their names and times, and everything else on their file
    /// system. Does not reach the disk unless [`ContentStore::has_syncfs`].
    ///
    /// # Errors
    /// [`Error`] if the system call fails.
    pub fn sync_all(&self) -> Result<(), Error> {
        self.root.sync_all()
    }
}
