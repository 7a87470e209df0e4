//! The access time of files, as with `relatime`.
//!
//! The shard learns at once of a read that changes the access time. The row gets it with the next
//! commit of the file, or with the group commit after the end of an open that read: one batch for
//! many reads, and none for each file. Reads that cannot change it cost one comparison: the row, or
//! the last read that was reported to the shard, says until when.
//!
//! A read by a descriptor of the content file changes the access time of *that* file, if the disk
//! keeps access times, by the disk's own `relatime`. This is a sign, not an authority: if it has
//! moved while an open is there whose reads count, the file was read then, and the times in the row
//! decide whether the read changes the access time. If they would and the disk's would not, the
//! content file gets an old access time before its descriptor is handed out. An access time that a
//! program sets is set in the content file too, so that it wins, and the next read counts again.

use std::sync::atomic::Ordering;

use pelago_meta::shard::{ATIME_INTERVAL_SECONDS, atime_is_due};
use pelago_store::clock;
use pelago_store::content::ContentStat;
use pelago_wire::Attr;

use crate::inode::Inode;
use crate::inode_guard::InodeGuard;
use crate::passthrough::observer::Observer;

impl Inode {
    /// Notes attributes that were read from the row: until when no read changes the access time.
    pub(crate) fn note_atime(&self, attr: &Attr) {
        if !atime_is_due(attr, clock::now()) {
            let until = attr.atime.seconds.saturating_add(ATIME_INTERVAL_SECONDS);
            self.atime_fresh_until.store(until, Ordering::Relaxed);
        }
    }

    /// Notes that the shard has an access time that the row does not have yet.
    pub(crate) fn note_atime_uncommitted(&self) {
        self.atime_uncommitted.store(true, Ordering::Relaxed);
    }

    /// Notes that attributes have changed: the next read asks the shard again.
    pub(crate) fn invalidate_atime(&self) {
        self.atime_fresh_until.store(i64::MIN, Ordering::Relaxed);
    }
}

impl InodeGuard<'_> {
    /// Notes a read, which never fails for that; with `always` it changes the access time whatever
    /// was read before.
    pub(crate) fn note_read(&self, always: bool) {
        let files = self.files;
        let inode = self.inode;
        let now = clock::now();
        let counts = always || now.seconds >= inode.atime_fresh_until.load(Ordering::Relaxed);
        if files.read_only || !counts {
            return;
        }
        let until = now.seconds.saturating_add(ATIME_INTERVAL_SECONDS);
        // Before the shard is asked: if attributes change meanwhile, the next read counts.
        inode.atime_fresh_until.store(until, Ordering::Relaxed);
        if files.shard.record_read(inode.handle, now, always) == Ok(true) {
            inode.note_atime_uncommitted();
        }
    }

    /// Prepares a content file that is about to be read by a descriptor: if the next read changes
    /// the access time, it must move that of the content file. A failure does not matter.
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

    /// Hands an access time that is not in the row to the group commit, because an opener leaves. A
    /// failure loses it, and does not keep the file open.
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
