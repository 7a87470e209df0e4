//! The eviction of idle content files when descriptors run out.
//!
//! An evicted file is opened again when it is needed; the programs that have it open do not notice.
//!
//! A writeback error that a descriptor has not reported is lost when the descriptor is closed. So a
//! file that may have one is synced first, and a failure is recorded for the next sync of the file.

use std::sync::Arc;

use pelago_meta::shard::WritingRow;
use pelago_wire::{Error, InodeId};

use crate::blocking::MayBlock;
use crate::content_file::OpenContent;
use crate::fd_budget::FdPermit;
use crate::inode::{Bytes, Uncommitted};
use crate::inode_guard::InodeGuard;
use crate::open_files::OpenFiles;

/// The most content files that are checked to find one that can be closed.
const SCAN: usize = 1024;

impl OpenFiles {
    /// Takes the permit to open a content file of this inode; an idle one may be closed for it.
    ///
    /// # Errors
    /// `TooManyOpen` if all are in use.
    pub(crate) fn take_fd_permit(&self, ino: InodeId) -> Result<FdPermit, Error> {
        let fd_budget = &self.disk.fd_budget;
        let refused = match fd_budget.take(ino) {
            Ok(permit) => return Ok(permit),
            Err(error) => error,
        };
        // Two rounds: other threads search too, and may take the permit that becomes free here.
        let scan = (2 * fd_budget.taken()).min(SCAN);
        for may_sync in [false, true] {
            for _ in 0..scan {
                let Some(idle) = fd_budget.next() else { break };
                if self.close_idle(idle, may_sync)
                    && let Ok(permit) = fd_budget.take(ino)
                {
                    return Ok(permit);
                }
            }
        }
        Err(refused)
    }

    /// Closes the content file of an inode if that loses nothing. If `may_sync` is set, a file that
    /// may have unsafe bytes is synced first. Never waits for a lock, because the caller holds one.
    fn close_idle(&self, ino: InodeId, may_sync: bool) -> bool {
        let Some(inode) = self.opens.inode(ino) else { return self.writing.close_kept(ino) };
        match self.lock_if(&inode, MayBlock::No) {
            Ok(mut guard) => guard.close_content(may_sync),
            Err(_) => false,
        }
    }
}

impl InodeGuard<'_> {
    fn close_content(&mut self, may_sync: bool) -> bool {
        let state = &*self.state;
        let Bytes::ContentOpen(content) = &state.bytes else { return false };
        let writes_all = state.uncommitted == Uncommitted::All;
        // An operation that uses the content file without the lock has a clone of it.
        if state.observer.is_some() || writes_all || Arc::strong_count(content) > 1 {
            return false;
        }
        let content = Arc::clone(content);
        let may_be_unsafe = state.writeback.has_row || self.files.writing.contains(self.ino());
        let is_safe = state.writeback.is_synced() || !may_be_unsafe;
        if !(is_safe || may_sync && self.sync_idle(&content)) {
            return false;
        }
        if self.commit(WritingRow::Keep).is_err() {
            return false;
        }
        self.state.bytes = Bytes::ContentClosed(content.generation());
        true
    }

    fn sync_idle(&self, content: &OpenContent) -> bool {
        match content.sync(true) {
            Ok(()) => true,
            Err(error) => {
                let ino = self.ino();
                tracing::warn!(%ino, %error, "an idle content file stays open: its sync failed");
                self.files.bytes_failed(ino, self.files.disk.failed(&error));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pelago_lossfs::Operation;
    use pelago_wire::{Code, Entry};
    use rustix::io::Errno;

    use crate::open_key::OpenKey;
    use crate::testing::{FailingRig, READ, READ_WRITE, Rig};

    const LARGE: usize = 10_000;

    /// Creates `count` files, each filled with its own byte; returns them with their opens.
    fn filled(rig: &Rig, count: u8) -> Vec<(Entry, OpenKey)> {
        let fill = |number: u8| {
            let (entry, open) = rig.create(&format!("f{number}"));
            rig.write(open, 0, &vec![number; LARGE]).unwrap();
            (entry, open)
        };
        (0..count).map(fill).collect()
    }

    #[test]
    fn safe_files_are_closed_before_others_that_were_used_longer_ago() {
        let rig = Rig::with_descriptors(2);
        let files = filled(&rig, 2);
        let (dirty, dirty_open) = files[0];
        let (safe, safe_open) = files[1];
        let other = rig.file("g", &[7; 100]);
        rig.close(safe_open);
        rig.files.write_back().unwrap();
        let safe_open = rig.open(safe.handle, READ).unwrap();
        rig.read(safe_open, 0, 10).unwrap();
        let other_open = rig.open(other.handle, READ_WRITE).unwrap();
        let all = [dirty, safe, other].map(|entry| entry.handle);
        let open = || all.map(|handle| rig.is_content_open(handle));

        rig.write(other_open, 0, &[7; LARGE]).unwrap();
        assert_eq!(open(), [true, false, true], "the safe one makes room");
        assert_eq!(rig.read(safe_open, 0, 1).unwrap(), [1], "it is opened again");
        assert_eq!(open(), [false, true, true], "the one that was used longest ago makes room");
        assert_eq!(rig.read(dirty_open, 0, 1).unwrap(), [0]);
    }

    /// The kernel reports a writeback error once, and not to a descriptor that is opened later: the
    /// server must remember it.
    #[test]
    fn a_file_whose_sync_fails_is_not_closed_and_its_next_sync_fails() {
        let Some(failing) = FailingRig::with_descriptors(3) else { return };
        let rig = &failing.rig;
        let files = filled(rig, 3);
        failing.fail_next(Operation::Sync, 1, Errno::IO);
        let (_, more) = rig.create("more");
        rig.write(more, 0, &[7; LARGE]).unwrap();
        let open = files.iter().filter(|(entry, _)| rig.is_content_open(entry.handle)).count();
        assert_eq!(open, 2, "one made room");

        let twice = |open| [rig.fsync(open), rig.fsync(open)];
        let synced: Vec<_> = files.iter().map(|(_, open)| twice(*open)).collect();
        let count = |result: [_; 2]| synced.iter().filter(|synced| **synced == result).count();
        assert_eq!((count([Err(Code::Io); 2]), count([Ok(()); 2])), (1, 2), "{synced:?}");
        for (number, (_, open)) in (0_u8..).zip(&files) {
            assert_eq!(rig.read(*open, 0, 1 << 20).unwrap(), vec![number; LARGE]);
        }
    }
}
