//! Syncs of one file, as for `fsync`.

use std::sync::Arc;

use pelago_meta::shard::WritingRow;
use pelago_store::content::{ContentFile, subfolder_of};
use pelago_wire::{Code, Error, Handle, InodeId};

use crate::blocking::{MayBlock, OpError};
use crate::content_file::OpenContent;
use crate::inode::Inode;
use crate::open_files::OpenFiles;
use crate::open_key::OpenKey;
use crate::writing::ErrorWatch;

impl OpenFiles {
    /// Commits the file and makes its bytes safe. The row is safe once all batches that are done
    /// now are safe.
    ///
    /// # Errors
    /// Those of [`OpenFiles::flush`]; an error of the file that this open has not reported.
    pub fn fsync(
        &self,
        open: OpenKey,
        data_only: bool,
        may_block: MayBlock,
    ) -> Result<(), OpError> {
        let inode = self.opens.get(open)?.inode;
        self.sync_open(open, &inode, data_only, may_block)
    }

    /// Does the same as [`OpenFiles::fsync`] for an open whose inode the caller has.
    pub(crate) fn sync_open(
        &self,
        open: OpenKey,
        inode: &Arc<Inode>,
        data_only: bool,
        may_block: MayBlock,
    ) -> Result<(), OpError> {
        match self.sync_inode(inode, data_only, may_block) {
            Err(OpError::WouldBlock) => Err(OpError::WouldBlock),
            synced => match self.check_errors(open, inode) {
                Some(error) => Err(error.into()),
                None => synced,
            },
        }
    }

    /// Returns an error of the file that this open has not reported; it counts as reported now.
    pub(crate) fn check_errors(&self, open: OpenKey, inode: &Inode) -> Option<Error> {
        inode.errors.has_any().then(|| self.opens.check_errors(open)).flatten()
    }

    /// Reports an error of the file that this open has not reported, without a sync.
    ///
    /// # Errors
    /// That error; `BadOpen`.
    pub fn report_error(&self, open: OpenKey) -> Result<(), Error> {
        let inode = self.opens.get(open)?.inode;
        self.check_errors(open, &inode).map_or(Ok(()), Err)
    }

    /// Returns the error that an open reports if its changes may never become safe, because of
    /// `cause`.
    pub fn open_error(&self, open: OpenKey, cause: Error) -> Error {
        self.opens.check_errors(open).unwrap_or(cause)
    }

    /// Returns the error that a sync of a directory reports if its changes may never become safe,
    /// because of `cause`. An error that was recorded for the directory counts as reported now.
    pub fn directory_error(&self, dir: InodeId, cause: Error) -> Error {
        let _unseen = self.durability.writeback_errors.report(dir, None);
        cause
    }

    /// Makes the bytes of a file safe, open or not, before a rename puts it over another one.
    /// Blocks on the disk.
    ///
    /// # Errors
    /// `Stale`; if the table or the disk fails, or the file is in error.
    pub fn make_safe(&self, handle: Handle) -> Result<(), Error> {
        let (inode, _) = self.enter(handle, false)?;
        let synced = match self.sync_inode(&inode, true, MayBlock::Yes) {
            Ok(()) => Ok(()),
            Err(OpError::Failed(error)) => Err(error),
            Err(OpError::WouldBlock) => Err(Code::Bug.into()),
        };
        let released = self.lock(&inode).release(false);
        synced.and(released)
    }

    /// Checks that a file has no error that no descriptor has reported: otherwise its bytes must
    /// not replace others. The error counts as reported now.
    ///
    /// # Errors
    /// The unreported error.
    pub fn check_unreported_error(&self, ino: InodeId) -> Result<(), Error> {
        let unseen = match self.opens.inode(ino) {
            Some(inode) => inode.errors.take_unseen(),
            None => self.durability.writeback_errors.report(ino, None).then(|| Code::Io.into()),
        };
        unseen.map_or(Ok(()), Err)
    }

    /// Commits a file and makes its content safe; the row is safe with the next group commit.
    fn sync_inode(
        &self,
        inode: &Arc<Inode>,
        data_only: bool,
        may_block: MayBlock,
    ) -> Result<(), OpError> {
        let mut guard = self.lock_if(inode, may_block)?;
        guard.load()?;
        let ino = guard.ino();
        let may_be_unsafe = guard.state.writeback.has_row || self.writing.contains(ino);
        if !guard.state.has_content() || !may_be_unsafe {
            guard.commit(WritingRow::Keep)?;
            return Ok(());
        }
        if may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        let content = guard.open_content()?;
        guard.commit(WritingRow::Keep)?;
        if self.writing.is_in_error(ino) {
            // The kernel would report success, because it has forgotten the lost bytes.
            return Err(Code::Io.into());
        }
        let changes = guard.state.writeback.changes();
        // Other threads read and write during the sync.
        drop(guard);
        self.sync_content(inode, &content, data_only)?;
        inode.lock().writeback.note_synced(changes);
        Ok(())
    }

    /// Makes the bytes of an open content file safe, and its name.
    fn sync_content(
        &self,
        inode: &Inode,
        content: &OpenContent,
        data_only: bool,
    ) -> Result<(), Error> {
        // Without `syncfs`, a sync of several files uses descriptors of its own: the two take
        // turns, so that a failure of one is recorded before the other returns.
        let all = (!self.disk.content.has_syncfs()).then(|| self.writing.sync_turn.lock());
        let one = inode.sync_turn.lock();
        let ino = content.ino();
        if let Err(error) = content.sync(data_only) {
            let failed = self.disk.failed(&error);
            self.bytes_failed(ino, failed);
            return Err(failed);
        }
        self.sync_name(content)?;
        drop((one, all));
        match self.writing.watch(ino) {
            Some(watch @ (ErrorWatch::Interrupted | ErrorWatch::EarlierRun)) => {
                self.sync_unwatched(content, watch)?;
            }
            Some(ErrorWatch::Complete) | None => {}
        }
        // Another sync of the same bytes may have failed before this one.
        if self.writing.is_in_error(ino) { Err(Code::Io.into()) } else { Ok(()) }
    }

    /// Makes the name of a content file safe.
    pub(crate) fn sync_name(&self, content: &ContentFile) -> Result<(), Error> {
        content.sync_name().map_err(|error| {
            let failed = self.disk.failed(&error);
            self.names_failed(subfolder_of(content.ino()), failed);
            failed
        })
    }

    /// Makes a file safe whose content file was closed for some time since its `writing` row was
    /// written.
    fn sync_unwatched(&self, content: &OpenContent, watch: ErrorWatch) -> Result<(), Error> {
        let ino = content.ino();
        let generation = content.generation();
        if self.disk.content.has_syncfs() {
            self.sync_contents(&[(ino, generation)])?;
        }
        if watch == ErrorWatch::EarlierRun {
            // An error of the cached pages may have been reported to the earlier run, and is lost
            // now. The pages are dropped, so that reads return the bytes on the disk.
            content.drop_page_cache().map_err(|error| self.disk.failed(&error))?;
        }
        self.writing.restart_watch(ino);
        Ok(())
    }
}
