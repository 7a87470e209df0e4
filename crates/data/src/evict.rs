//! Content files that nobody is reading or writing at the moment are closed when descriptors run
//! out, and opened again when they are needed: whoever has such a file open need not know.
//!
//! A descriptor that is closed takes along what it was never told of bytes that could not be
//! written back. Where a file may have such bytes it is synced first, and a failure is kept for
//! whoever syncs the file next.

use std::sync::Arc;

use pelago_wire::{Error, InodeId};

use crate::blocking::MayBlock;
use crate::content_file::OpenContent;
use crate::fd_budget::FdPermit;
use crate::inode::{Bytes, Inode};
use crate::open_files::OpenFiles;
use pelago_meta::shard::WritingRow;

/// Content files that are looked at, at most, for one that can be closed.
const SCAN: usize = 1024;

impl OpenFiles {
    /// The right to open a content file of this inode; another may be closed for it.
    ///
    /// # Errors
    /// `TooManyOpen`: all are in use.
    pub(crate) fn take_descriptor(&self, ino: InodeId) -> Result<FdPermit, Error> {
        let refused = match self.descriptors.take(ino) {
            Ok(descriptor) => return Ok(descriptor),
            Err(error) => error,
        };
        // Twice: others look too, and may take what becomes free here.
        let scan = (2 * self.descriptors.taken()).min(SCAN);
        for syncs in [false, true] {
            for _ in 0..scan {
                let Some(idle) = self.descriptors.next() else { break };
                if self.close_idle(idle, syncs)
                    && let Ok(descriptor) = self.descriptors.take(ino)
                {
                    return Ok(descriptor);
                }
            }
        }
        Err(refused)
    }

    /// Closes the content file of an open file, if it can be without loss; one with bytes that may
    /// not be safe only where `syncs` is set. Waits for nobody: the caller is at a file.
    fn close_idle(&self, ino: InodeId, syncs: bool) -> bool {
        let Some(file) = self.known.file(ino) else { return self.marks.close_kept(ino) };
        let Ok(mut state) = file.lock(MayBlock::No) else { return false };
        let Bytes::Content(content) = &state.bytes else { return false };
        // Whoever reads, writes or syncs it at the moment has it from here.
        if state.outside.is_some() || state.changed.all || Arc::strong_count(content) > 1 {
            return false;
        }
        let content = Arc::clone(content);
        let synced = state.marked && state.written == state.synced;
        let is_safe = synced || !(state.marked || self.marks.is_unsafe(ino));
        if !(is_safe || syncs && self.sync_idle(&file, &content)) {
            return false;
        }
        if self.commit(&file, &mut state, WritingRow::Keep).is_err() {
            return false;
        }
        state.bytes = Bytes::File(content.generation());
        true
    }

    fn sync_idle(&self, file: &Inode, content: &OpenContent) -> bool {
        match content.sync(true) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(ino = %file.handle.ino, %error, "an idle file cannot be synced");
                self.bytes_failed(file.handle.ino, self.refused(&error));
                false
            }
        }
    }
}
