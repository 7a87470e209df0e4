//! Making the bytes of content files safe, and telling everybody who must know when that fails.
//!
//! A failed sync is an error of the file ([`crate::error_sequence`]): each descriptor that was open
//! is told once. The file is then *in error* ([`crate::lost_ranges`]): its mark stays, no later
//! sync makes it safe, and nothing relies on its bytes, until they were all written again.

use pelago_store::content::{self, ContentFile, SyncError, SyncScope, subfolder_of};
use pelago_wire::{Code, Error, Generation, Handle, InodeId, OpenId};

use crate::blocking::{MayBlock, OpError};
use crate::content_file::OpenContent;
use crate::inode::{Bytes, Inode, InodeState};
use crate::lost_ranges::Lost;
use crate::open_files::OpenFiles;
use crate::writing::{Ended, Watch};
use pelago_meta::shard::WritingRow;
use pelago_store::report::content_failed;

impl OpenFiles {
    /// Commits what was written through this open and makes its bytes safe; the row is safe when
    /// everything that is done now is.
    ///
    /// # Errors
    /// As [`OpenFiles::flush`]; an error of the file that this open was not told of.
    pub fn fsync(&self, open: OpenId, data_only: bool, may_block: MayBlock) -> Result<(), OpError> {
        let file = self.known.get(open)?.file;
        self.sync_open(open, &file, data_only, may_block)
    }

    /// As [`OpenFiles::fsync`], of a file that was found already.
    pub(crate) fn sync_open(
        &self,
        open: OpenId,
        file: &Inode,
        data_only: bool,
        may_block: MayBlock,
    ) -> Result<(), OpError> {
        match self.sync_file(file, data_only, may_block) {
            Err(OpError::WouldBlock) => Err(OpError::WouldBlock),
            synced => match self.check_errors(open, file) {
                Some(error) => Err(error.into()),
                None => synced,
            },
        }
    }

    /// An error of the file that this open was not told of; it is told now.
    pub(crate) fn check_errors(&self, open: OpenId, file: &Inode) -> Option<Error> {
        file.errors.has_any().then(|| self.known.check_errors(open)).flatten()
    }

    /// What an open is told whose changes may never become safe, because of `cause`.
    pub fn tell_open(&self, open: OpenId, cause: Error) -> Error {
        self.known.check_errors(open).unwrap_or(cause)
    }

    /// The same, of a directory.
    pub fn tell_directory(&self, dir: InodeId, cause: Error) -> Error {
        let _unseen = self.durability.writeback_errors.report(dir, None);
        cause
    }

    /// Makes the bytes of a file safe if they are not yet, whether it is open or not: before a
    /// rename puts it over another. Blocks on the medium.
    ///
    /// # Errors
    /// `Stale`; if the table or the medium fails, or the file is in error.
    pub fn make_safe(&self, handle: Handle) -> Result<(), Error> {
        let (file, _) = self.enter(handle, false)?;
        let synced = match self.sync_file(&file, true, MayBlock::Yes) {
            Ok(()) => Ok(()),
            Err(OpError::Failed(error)) => Err(error),
            Err(OpError::WouldBlock) => Err(Code::Bug.into()),
        };
        let left = self.leave(&file, file.wait(), false);
        synced.and(left)
    }

    /// Refuses a file that lost changes of which nobody was told: its bytes must not replace
    /// others. The caller is told now.
    ///
    /// # Errors
    /// The error.
    pub fn expect_no_loss(&self, ino: InodeId) -> Result<(), Error> {
        let unseen = match self.known.file(ino) {
            Some(file) => file.errors.tell_unseen(),
            None => self.durability.writeback_errors.report(ino, None).then(|| Code::Io.into()),
        };
        unseen.map_or(Ok(()), Err)
    }

    /// Whether the bytes of a file may be lost with the machine, whatever its row says.
    pub fn is_unsafe(&self, ino: InodeId) -> bool {
        self.marks.is_unsafe(ino)
    }

    /// Commits a file and makes its content safe; the row is safe with the next group commit.
    pub(crate) fn sync_file(
        &self,
        file: &Inode,
        data_only: bool,
        may_block: MayBlock,
    ) -> Result<(), OpError> {
        let ino = file.handle.ino;
        let mut state = file.lock(may_block)?;
        self.load(file, &mut state)?;
        if !state.has_content() || !(state.marked || self.marks.is_unsafe(ino)) {
            self.commit(file, &mut state, WritingRow::Keep)?;
            return Ok(());
        }
        if may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        let content = self.open_content(file, &mut state)?;
        self.commit(file, &mut state, WritingRow::Keep)?;
        if self.marks.is_failed(ino) {
            // The system would answer success now, about other bytes than those that it lost.
            return Err(Code::Io.into());
        }
        let written = state.written;
        // Others read and write on meanwhile.
        drop(state);
        self.sync_content(file, &content, data_only)?;
        let mut state = file.wait();
        state.synced = state.synced.max(written);
        Ok(())
    }

    /// Makes the bytes of an open content file safe, and its name.
    pub(crate) fn sync_content(
        &self,
        file: &Inode,
        content: &OpenContent,
        data_only: bool,
    ) -> Result<(), Error> {
        // A medium that is synced file by file is synced by others too, with descriptors of their
        // own: they take turns, so that the failure of one is known before another is answered.
        let others = (!self.content.has_syncfs()).then(|| self.whole_turn.lock());
        let turn = file.sync_turn.lock();
        let ino = content.ino();
        if let Err(error) = content.sync(data_only) {
            let refused = self.refused(&error);
            self.bytes_failed(ino, refused);
            return Err(refused);
        }
        self.sync_name(content)?;
        drop((turn, others));
        match self.marks.watch(ino) {
            Some(watch @ (Watch::Broken | Watch::Earlier)) => {
                self.sync_unwatched(content, watch)?
            }
            Some(Watch::Whole) | None => {}
        }
        // Somebody else's sync of the same bytes may have failed before this one.
        if self.marks.is_failed(ino) { Err(Code::Io.into()) } else { Ok(()) }
    }

    /// Makes the name of a content file safe.
    pub(crate) fn sync_name(&self, content: &ContentFile) -> Result<(), Error> {
        content.sync_name().map_err(|error| {
            let refused = self.refused(&error);
            self.names_failed(subfolder_of(content.ino()), refused);
            refused
        })
    }

    /// Makes a file safe whose content file was not open all the time since its mark was put.
    fn sync_unwatched(&self, content: &OpenContent, watch: Watch) -> Result<(), Error> {
        let (ino, generation) = (content.ino(), content.generation());
        if self.content.has_syncfs() {
            self.sync_some(&[(ino, generation)])?;
        }
        if watch == Watch::Earlier {
            // The life before this one may have been told that pages in memory are not on the
            // medium, and nobody remembers: they go.
            content.drop_page_cache().map_err(|error| self.refused(&error))?;
        }
        self.marks.begin_watch(ino);
        Ok(())
    }

    /// Makes content files safe that nobody writes any more, and deletes their marks.
    /// For a worker: blocks on the medium. Answers how many marks went.
    ///
    /// # Errors
    /// If the medium or the table fails.
    pub fn settle(&self) -> Result<usize, Error> {
        let ended = self.marks.to_settle();
        if ended.is_empty() {
            return Ok(0);
        }
        let files: Vec<_> = ended.iter().map(Ended::file).collect();
        let synced = self.sync_some(&files);
        for (ino, generation) in ended.iter().filter(|one| one.is_earlier).map(Ended::file) {
            // As behind a sync of one file.
            let dropped = self.content.drop_page_cache(ino, generation);
            dropped.map_err(|error| content_failed(&error))?;
        }
        // Files whose own sync went well are safe though that of others failed.
        let settled = self.marks.settle(&ended, &self.shard);
        synced.and(settled)
    }

    /// Makes all content files safe that have a mark, but those in error: the last thing but one
    /// before a clean end.
    ///
    /// # Errors
    /// If the medium fails.
    pub fn sync_marked(&self) -> Result<(), content::Error> {
        self.sync_recorded(&self.marks.files()).map_err(|unsynced| unsynced.source)
    }

    /// Files in error: their marks outlive a clean end.
    pub fn in_error(&self) -> Vec<InodeId> {
        self.marks.failed()
    }

    /// Makes these content files safe; of those that are removed, that they are.
    ///
    /// # Errors
    /// If the medium fails: it is recorded for the openers of all files that it is about.
    pub fn sync_some(&self, files: &[(InodeId, Generation)]) -> Result<(), Error> {
        let synced = self.sync_recorded(files);
        synced.map_err(|unsynced| self.refused(&unsynced.source))
    }

    /// Closes what is kept open of closed files, as the end of the process does.
    pub fn close_kept(&self) {
        self.marks.close_all_kept();
    }

    /// A content file is about to be removed: its descriptor is not kept.
    pub fn let_go_of_content(&self, ino: InodeId) {
        self.marks.close_kept(ino);
        self.marks.heal(ino);
    }

    /// One sync of content files at a time: the system tells a failure to one of them, which puts
    /// every file in error that it is about before another one begins.
    fn sync_recorded(&self, files: &[(InodeId, Generation)]) -> Result<(), SyncError> {
        let turn = self.whole_turn.lock();
        let synced = self.content.sync_files(files);
        if let Err(unsynced) = &synced {
            let refused = self.refused(&unsynced.source);
            match &unsynced.scope {
                SyncScope::All => {
                    self.marks.all().into_iter().for_each(|ino| self.bytes_failed(ino, refused));
                }
                SyncScope::Some { files, folders } => {
                    files.iter().for_each(|ino| self.bytes_failed(*ino, refused));
                    folders.iter().for_each(|folder| self.names_failed(*folder, refused));
                }
            }
        }
        drop(turn);
        synced
    }

    /// The bytes of a file could not be made safe.
    pub fn bytes_failed(&self, ino: InodeId, error: Error) {
        self.file_failed(ino, Lost::all(false), error);
    }

    /// The names of a folder of content files could not be made safe.
    fn names_failed(&self, folder: u64, error: Error) {
        for ino in self.marks.all().into_iter().filter(|ino| subfolder_of(*ino) == folder) {
            if !self.known.file(ino).is_some_and(|file| has_safe_name(&file)) {
                self.file_failed(ino, Lost::all(true), error);
            }
        }
    }

    fn file_failed(&self, ino: InodeId, lost: Lost, error: Error) {
        let in_error = self.marks.fail(ino, lost);
        if in_error {
            tracing::error!(%ino, %error, "a file is in error until all of it is written again");
        }
        match self.known.file(ino) {
            Some(file) => file.errors.record(error),
            None if in_error => self.durability.writeback_errors.record_inode(ino),
            None => {}
        }
    }

    /// The last one leaves: an error that nobody was told of waits for the next opener.
    pub(crate) fn keep_error(&self, file: &Inode) {
        if file.errors.unseen().is_some() {
            self.durability.writeback_errors.record_inode(file.handle.ino);
        }
    }

    /// The last one leaves: the descriptor of a file that is not safe stays open until it is.
    pub(crate) fn keep_descriptor(&self, file: &Inode, state: &InodeState) {
        let ino = file.handle.ino;
        if !self.marks.is_unsafe(ino) || !self.known.has_one_opener(ino) {
            return;
        }
        if let Bytes::Content(content) = &state.bytes {
            self.marks.keep(content);
        }
    }
}

/// Whether the name of an open file's content file is known to be safe. Waits for nobody: the
/// caller may be at a file.
fn has_safe_name(file: &Inode) -> bool {
    let Ok(state) = file.lock(MayBlock::No) else { return false };
    match &state.bytes {
        Bytes::Content(content) => content.has_safe_name(),
        _ => false,
    }
}
