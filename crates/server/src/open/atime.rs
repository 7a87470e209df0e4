//! When a file was read last, as with `relatime`.
//!
//! A read that counts is known to the shard at once and reaches the row with the file's next
//! commit, or when an open that was there ends. Reads that cannot count are told by one comparison:
//! until when that is so is known from the row, or from the last read that was asked about.

use std::sync::atomic::Ordering;

use pelago_wire::{Attr, InodeId};

use super::Opens;
use super::file::OpenFile;
use crate::clock;
use crate::shard::{READ_AGAIN, read_counts};

impl OpenFile {
    /// The row was read: these are its attributes.
    pub(super) fn loaded(&self, attr: &Attr) {
        if !read_counts(attr, clock::now()) {
            self.unread.store(attr.atime.seconds.saturating_add(READ_AGAIN), Ordering::Relaxed);
        }
    }

    /// The next read counts.
    pub(super) fn changed(&self) {
        self.unread.store(i64::MIN, Ordering::Relaxed);
    }
}

impl Opens {
    /// A file is read; its state is locked. A read does not fail for this.
    pub(super) fn note_read(&self, file: &OpenFile) {
        let now = clock::now();
        if self.read_only || now.seconds < file.unread.load(Ordering::Relaxed) {
            return;
        }
        let until = now.seconds.saturating_add(READ_AGAIN);
        // Before it is asked: attributes that change meanwhile make the next read count.
        file.unread.store(until, Ordering::Relaxed);
        if self.shard.read(file.handle, now) == Ok(true) {
            file.read.store(true, Ordering::Relaxed);
        }
    }

    /// Attributes of a file have changed, whoever has it open.
    pub(super) fn forget_read(&self, ino: InodeId) {
        if let Some(file) = self.known.file(ino) {
            file.changed();
        }
    }

    /// Somebody leaves: the row shall say when the file was read. That it could not be written is
    /// no reason to keep the file open.
    pub(super) fn commit_read(&self, file: &OpenFile) {
        if file.read.swap(false, Ordering::Relaxed)
            && let Err(error) = self.shard.commit_read(file.handle)
        {
            tracing::debug!(ino = %file.handle.ino, %error, "the time of a read is lost");
        }
    }
}

#[cfg(test)]
mod tests;
