//! Access times of files, by the rules of `relatime`.
//!
//! A read that changes the access time is reported to the shard at once. The row gets the time with
//! the next commit of the file, or with the group commit after the end of an open that read: one
//! batch for many reads, not one for each file. A read that cannot change the access time costs one
//! comparison with a time that was derived from the row, or from the last reported read.
//!
//! A read by a descriptor of the content file changes the access time of *that* file, if the disk
//! keeps access times, by the disk's own `relatime`. This time shows only that the file was read:
//! if it moves while an open is there whose reads count, the times in the row decide whether the
//! read changes the access time. If a read would change the time in the row but not that of the
//! disk, the content file gets an old access time before its descriptor is handed out. An access
//! time that a program sets is set in the content file too, so that it stays until the next read.

use std::sync::atomic::Ordering;

use pelago_meta::shard::{ATIME_INTERVAL_SECONDS, atime_is_due};
use pelago_store::clock;
use pelago_store::content::ContentStat;
use pelago_wire::Attr;

use crate::inode::Inode;
use crate::inode_guard::InodeGuard;
use crate::passthrough::observer::Observer;

impl Inode {
    /// Derives from the attributes in the row the time until which no read changes the access time.
    pub(crate) fn note_atime(&self, attr: &Attr) {
        if !atime_is_due(attr, clock::now()) {
            let until = attr.atime.seconds.saturating_add(ATIME_INTERVAL_SECONDS);
            self.atime_fresh_until.store(until, Ordering::Relaxed);
        }
    }

    /// Records that the shard has an access time that the row does not have yet.
    pub(crate) fn note_atime_uncommitted(&self) {
        self.atime_uncommitted.store(true, Ordering::Relaxed);
    }

    /// Records that attributes have changed: the next read is reported to the shard again.
    pub(crate) fn invalidate_atime(&self) {
        self.atime_fresh_until.store(i64::MIN, Ordering::Relaxed);
    }
}

impl InodeGuard<'_> {
    /// Records a read. A failure is ignored, because the read itself succeeded. With `always` the
    /// read changes the access time in any case.
    pub(crate) fn note_read(&self, always: bool) {
        let files = self.files;
        let inode = self.inode;
        let now = clock::now();
        let counts = always || now.seconds >= inode.atime_fresh_until.load(Ordering::Relaxed);
        if files.read_only || !counts {
            return;
        }
        let until = now.seconds.saturating_add(ATIME_INTERVAL_SECONDS);
        // Before the call of the shard: if attributes change meanwhile, the next read counts.
        inode.atime_fresh_until.store(until, Ordering::Relaxed);
        if files.shard.record_read(inode.handle, now, always) == Ok(true) {
            inode.note_atime_uncommitted();
        }
    }

    /// Prepares a content file that is about to be read by a descriptor: if the next read changes
    /// the access time in the row, it must move that of the content file too. A failure does not
    /// matter.
    pub(crate) fn prepare_passthrough_read(&self, observer: &Observer) {
        let files = self.files;
        let now = clock::now();
        let is_fresh = now.seconds < self.inode.atime_fresh_until.load(Ordering::Relaxed);
        if files.read_only || is_fresh || !files.disk.content.keeps_atime() {
            return;
        }
        let Ok(attr) = files.shard.attr(self.handle()) else { return };
        let ContentStat { atime, mtime, ctime, .. } = observer.measured();
        if !atime_is_due(&attr, now) || atime_is_due(&Attr { atime, mtime, ctime, ..attr }, now) {
            return;
        }
        if let Err(error) = observer.set_atime(attr.atime) {
            tracing::debug!(ino = %attr.ino, %error, "the next access time may be lost");
        }
    }

    /// Queues an access time that is not in the row for the group commit, because an opener leaves.
    /// A failure loses the time, and does not keep the file open.
    pub(crate) fn commit_atime(&self) {
        let inode = self.inode;
        if inode.atime_uncommitted.load(Ordering::Relaxed)
            && inode.atime_uncommitted.swap(false, Ordering::Relaxed)
            && let Err(error) = self.files.shard.queue_read_time(inode.handle)
        {
            tracing::debug!(ino = %self.ino(), %error, "an access time is lost");
        }
    }
}
