//! When a file was read last, as with `relatime`.
//!
//! A read that counts is known to the shard at once and reaches the row with the file's next
//! commit, or with the group commit behind the end of an open that was there: many in one batch,
//! and not one for each file that somebody reads. Reads that cannot count are told by one
//! comparison: until when that is so is known from the row, or from the last read that was asked
//! about.
//!
//! Who reads by a descriptor of the content file changes the time that *it* has, if the medium
//! keeps such times, by the medium's own `relatime`. That is a sign, not an authority: when it has
//! moved while an open is there whose reads count, the file was read then, and whether that counts
//! the row's times decide, as ever. Where they would and the medium's would not, the content file
//! gets an old time when it is handed out. A time that somebody sets is set there too, so that it
//! wins, and the next read counts again.

use std::sync::atomic::Ordering;

use pelago_store::content::ContentStat;
use pelago_wire::{Attr, InodeId};

use crate::inode::Inode;
use crate::open_files::OpenFiles;
use crate::passthrough::observer::Observer;
use pelago_meta::shard::{ATIME_INTERVAL_SECONDS, atime_is_due};
use pelago_store::clock;

impl Inode {
    /// The row was read: these are its attributes.
    pub(crate) fn loaded(&self, attr: &Attr) {
        if !atime_is_due(attr, clock::now()) {
            self.unread.store(
                attr.atime.seconds.saturating_add(ATIME_INTERVAL_SECONDS),
                Ordering::Relaxed,
            );
        }
    }

    /// The next read counts.
    pub(crate) fn changed(&self) {
        self.unread.store(i64::MIN, Ordering::Relaxed);
    }
}

impl OpenFiles {
    /// A file is read; its state is locked. A read does not fail for this. `always`: it counts
    /// whatever was read before.
    pub(crate) fn note_read(&self, file: &Inode, always: bool) {
        let now = clock::now();
        let counts = always || now.seconds >= file.unread.load(Ordering::Relaxed);
        if self.read_only || !counts {
            return;
        }
        let until = now.seconds.saturating_add(ATIME_INTERVAL_SECONDS);
        // Before it is asked: attributes that change meanwhile make the next read count.
        file.unread.store(until, Ordering::Relaxed);
        if self.shard.record_read(file.handle, now, always) == Ok(true) {
            file.read.store(true, Ordering::Relaxed);
        }
    }

    /// A content file is about to be read by a descriptor: where the next read counts, the medium
    /// shall tell of it. That it cannot is no reason not to hand it out.
    pub(crate) fn expect_reads(&self, file: &Inode, outside: &Observer) {
        let now = clock::now();
        let known = now.seconds < file.unread.load(Ordering::Relaxed);
        if self.read_only || known || !self.content.keeps_atime() {
            return;
        }
        let Ok(attr) = self.shard.attr(file.handle) else { return };
        let ContentStat { atime, mtime, ctime, .. } = outside.measured();
        if !atime_is_due(&attr, now) || atime_is_due(&Attr { atime, mtime, ctime, ..attr }, now) {
            return;
        }
        if let Err(error) = outside.set_atime(attr.atime) {
            tracing::debug!(ino = %attr.ino, %error, "the time of the next read is not seen");
        }
    }

    /// Attributes of a file have changed, whoever has it open.
    pub(crate) fn forget_read(&self, ino: InodeId) {
        if let Some(file) = self.known.file(ino) {
            file.changed();
        }
    }

    /// Somebody leaves: the row shall say soon when the file was read. That it cannot be written is
    /// no reason to keep the file open.
    pub(crate) fn keep_read(&self, file: &Inode) {
        if file.read.load(Ordering::Relaxed)
            && file.read.swap(false, Ordering::Relaxed)
            && let Err(error) = self.shard.queue_read_time(file.handle)
        {
            tracing::debug!(ino = %file.handle.ino, %error, "the time of a read is lost");
        }
    }
}
