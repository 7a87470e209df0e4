//! Syncs of many content files, and the records of their failures.
//!
//! A failed sync is an error of the file ([`crate::error_sequence`]): each descriptor that was open
//! reports it once. The file is then *in error* ([`crate::lost_ranges`]): until all of its bytes
//! were written again its `writing` row stays, no later sync makes it safe, and no other operation
//! relies on its bytes.

use pelago_store::content::{self, SyncError, SyncScope, subfolder_of};
use pelago_store::report::content_failed;
use pelago_wire::{Error, Generation, InodeId};

use crate::blocking::MayBlock;
use crate::inode::{Bytes, Inode};
use crate::lost_ranges::LostRanges;
use crate::open_files::OpenFiles;
use crate::writing::ClosedRow;

impl OpenFiles {
    /// Makes the content files without writers safe, and deletes their `writing` rows. Blocks on
    /// the disk. Returns the number of deleted rows.
    ///
    /// # Errors
    /// If the disk or the table fails.
    pub fn write_back(&self) -> Result<usize, Error> {
        let rows = self.writing.closed_rows();
        if rows.is_empty() {
            return Ok(0);
        }
        let files: Vec<_> = rows.iter().map(ClosedRow::file).collect();
        let synced = self.sync_contents(&files);
        let earlier = rows.iter().filter(|row| row.is_from_earlier_run);
        for (ino, generation) in earlier.map(ClosedRow::file) {
            // As for a single file of an earlier run (`OpenFiles::sync_unwatched`).
            let dropped = self.disk.content.drop_page_cache(ino, generation);
            dropped.map_err(|error| content_failed(&error))?;
        }
        // If the sync failed for some files, the others are safe nevertheless.
        let deleted = self.writing.clear_synced(&rows, &self.shard);
        synced.and(deleted)
    }

    /// Makes all content files with a `writing` row safe, except those in error. It is the last
    /// step but one before a clean end.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn sync_writing(&self) -> Result<(), content::Error> {
        self.sync_and_record(&self.writing.healthy_files()).map_err(|failed| failed.source)
    }

    /// Returns the files in error, whose `writing` rows stay after a clean end.
    pub fn inodes_in_error(&self) -> Vec<InodeId> {
        self.writing.inodes_in_error()
    }

    /// Returns the copy-on-write files, whose `writing` rows stay after a clean end.
    pub fn inodes_copy_on_write(&self) -> Vec<InodeId> {
        self.writing.inodes_copy_on_write()
    }

    /// Makes these content files safe; of a removed file, its removal.
    ///
    /// # Errors
    /// If the disk fails; the openers of all affected files report it too.
    pub fn sync_contents(&self, files: &[(InodeId, Generation)]) -> Result<(), Error> {
        self.sync_and_record(files).map_err(|failed| self.disk.failed(&failed.source))
    }

    /// Closes the kept descriptors of closed files, as the end of the process does. For tests that
    /// start a server again in the same process.
    pub fn close_kept(&self) {
        self.writing.close_all_kept();
    }

    /// Forgets the descriptor and the error of a content file that is about to be removed.
    pub fn forget_content(&self, ino: InodeId) {
        self.writing.close_kept(ino);
        self.writing.clear_error(ino);
    }

    /// Records that the bytes of a file could not be made safe.
    pub(crate) fn bytes_failed(&self, ino: InodeId, error: Error) {
        self.record_failure(ino, LostRanges::all(false), error);
    }

    /// Syncs content files, one call at a time: the kernel reports a failure to one call, which
    /// puts all affected files in error before the next call begins.
    fn sync_and_record(&self, files: &[(InodeId, Generation)]) -> Result<(), SyncError> {
        let _turn = self.writing.sync_turn.lock();
        let synced = self.disk.content.sync_files(files);
        if let Err(failed) = &synced {
            let error = self.disk.failed(&failed.source);
            match &failed.scope {
                SyncScope::All => {
                    self.writing.inodes().into_iter().for_each(|ino| self.bytes_failed(ino, error));
                }
                SyncScope::Some { files, folders } => {
                    files.iter().for_each(|ino| self.bytes_failed(*ino, error));
                    folders.iter().for_each(|folder| self.names_failed(*folder, error));
                }
            }
        }
        synced
    }

    /// Records that the names in a folder of content files could not be made safe.
    pub(crate) fn names_failed(&self, folder: u64, error: Error) {
        let inodes = self.writing.inodes();
        for ino in inodes.into_iter().filter(|ino| subfolder_of(*ino) == folder) {
            if !self.opens.inode(ino).is_some_and(|inode| has_safe_name(&inode)) {
                self.record_failure(ino, LostRanges::all(true), error);
            }
        }
    }

    fn record_failure(&self, ino: InodeId, lost: LostRanges, error: Error) {
        let in_error = self.writing.set_error(ino, lost);
        if in_error {
            tracing::error!(
                %ino, %error,
                "a sync failed and bytes of a file may be lost; \
                 the file is in error until all of it is written again"
            );
        }
        match self.opens.inode(ino) {
            Some(inode) => inode.errors.record(error),
            None if in_error => self.durability.writeback_errors.record_inode(ino),
            None => {}
        }
    }
}

/// Returns whether the name of an open content file is known to be safe. Never waits for the lock,
/// because the caller may hold it.
fn has_safe_name(inode: &Inode) -> bool {
    let Ok(state) = inode.lock_if(MayBlock::No) else { return false };
    match &state.bytes {
        Bytes::ContentOpen(content) => content.has_safe_name(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::Code;

    use crate::testing::{READ, READ_WRITE, Rig};

    const LARGE: usize = 10_000;

    #[test]
    fn a_file_that_could_not_be_synced_is_in_error_until_all_of_it_was_written_again() {
        let rig = Rig::new();
        let (entry, open) = rig.create("f");
        rig.write(open, 0, &[1; LARGE]).unwrap();
        rig.files.bytes_failed(entry.handle.ino, Code::NoSpace.into());
        let twice = || [rig.fsync(open), rig.fsync(open)];
        assert_eq!(twice(), [Err(Code::NoSpace), Err(Code::Io)]);
        rig.write(open, 0, &[1; LARGE - 1]).unwrap();
        assert_eq!(twice(), [Err(Code::Io); 2], "a byte is missing");
        rig.write(open, LARGE as u64 - 1, &[1]).unwrap();
        assert_eq!(twice(), [Ok(()); 2]);
    }

    #[test]
    fn an_error_that_no_descriptor_reported_outlives_the_last_close() {
        let rig = Rig::new();
        let file = rig.file("f", &[1; LARGE]);
        let open = rig.open(file.handle, READ).unwrap();
        rig.files.bytes_failed(file.handle.ino, Code::Io.into());
        rig.close(open);
        let open = rig.open(file.handle, READ_WRITE).unwrap();
        assert_eq!(rig.flush(open), Err(Code::Io), "reported by the close of a writer");
        assert_eq!(rig.flush(open), Ok(()));
    }
}
