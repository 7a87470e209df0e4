//! An open inode whose state is locked: the receiver of nearly every operation of this crate.
//!
//! The operations are in the files of their topics: reads in `read`, commits in `commit`, and so
//! on. Each expects that the same thread has locked no other open inode.

use std::sync::Arc;
use std::time::Duration;

use pelago_store::sync::MutexGuard;
use pelago_wire::{Handle, InodeId};

use crate::blocking::{MayBlock, OpError};
use crate::inode::{Inode, InodeState, Uncommitted};
use crate::open_files::OpenFiles;

/// An open inode with its state locked.
pub(crate) struct InodeGuard<'a> {
    pub(crate) files: &'a OpenFiles,
    pub(crate) inode: &'a Arc<Inode>,
    pub(crate) state: MutexGuard<'a, InodeState>,
}

impl OpenFiles {
    /// Locks an inode; waits as long as necessary.
    pub(crate) fn lock<'a>(&'a self, inode: &'a Arc<Inode>) -> InodeGuard<'a> {
        InodeGuard { files: self, inode, state: inode.lock() }
    }

    /// Locks an inode.
    ///
    /// # Errors
    /// [`OpError::WouldBlock`] if another thread has it and the caller may not block.
    pub(crate) fn lock_if<'a>(
        &'a self,
        inode: &'a Arc<Inode>,
        may_block: MayBlock,
    ) -> Result<InodeGuard<'a>, OpError> {
        Ok(InodeGuard { files: self, inode, state: inode.lock_if(may_block)? })
    }

    /// Locks an inode; returns `None` if another thread has it for longer than `timeout`.
    pub(crate) fn lock_within<'a>(
        &'a self,
        inode: &'a Arc<Inode>,
        timeout: Duration,
    ) -> Option<InodeGuard<'a>> {
        Some(InodeGuard { files: self, inode, state: inode.lock_within(timeout)? })
    }
}

impl InodeGuard<'_> {
    /// Returns whether the row lacks values.
    pub(crate) fn has_uncommitted(&self) -> bool {
        self.state.uncommitted != Uncommitted::Nothing
    }

    /// Returns the handle of the inode.
    pub(crate) fn handle(&self) -> Handle {
        self.inode.handle
    }

    /// Returns the id of the inode.
    pub(crate) fn ino(&self) -> InodeId {
        self.inode.handle.ino
    }

    /// Passes the present size and times to the shard, so that every attribute has them.
    pub(crate) fn publish(&self) {
        self.files.shard.set_live_attrs(self.ino(), Some(self.state.live()));
    }
}
