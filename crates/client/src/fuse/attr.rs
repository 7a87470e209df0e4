//! Attributes, kinds, times and errors between our words and the kernel's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use pelago_wire::{Attr, Error, FileKind, InodeId, SetTime, Time};

use crate::errno;

/// Bytes that programs are told to read and write at a time (`st_blksize`).
const BLOCK_BYTES: u32 = 4096;

/// Attributes for the kernel.
pub(crate) fn attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.raw()),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.btime),
        kind: file_type(attr.kind),
        perm: attr.mode,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// Attributes of which only number and kind count: an entry that is absent (number 0), or a dot
/// of a listing.
pub(crate) fn bare(ino: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::Directory,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// The kernel's word for a kind.
pub(crate) const fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

/// The inode that a node number of the kernel is: they are the same.
pub(crate) const fn ino(node: INodeNo) -> InodeId {
    InodeId::from_raw(node.0)
}

/// The kernel's number for an error.
pub(crate) fn error(error: Error) -> fuser::Errno {
    fuser::Errno::from_i32(errno::of(error.code).raw_os_error())
}

/// A time for the kernel; beyond what it can show, the epoch.
fn system_time(time: Time) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 {
        UNIX_EPOCH.checked_sub(seconds)
    } else {
        UNIX_EPOCH.checked_add(seconds)
    };
    let nanos = Duration::from_nanos(u64::from(time.nanos));
    whole.and_then(|whole| whole.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

/// A time from the kernel.
///
/// The kernel sends seconds rounded down and nanoseconds behind them. Before 1970 fuser 0.18 goes
/// back by both instead of back by the one and forth by the other; this undoes it.
pub(crate) fn time(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Time {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanos: since.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            Time {
                seconds: 0_i64.checked_sub_unsigned(before.as_secs()).unwrap_or(i64::MIN),
                nanos: before.subsec_nanos(),
            }
        }
    }
}

/// A time to set.
pub(crate) fn set_time(to: TimeOrNow) -> SetTime {
    match to {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(to) => SetTime::To(time(to)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_nanoseconds() {
        let early = Time { seconds: -2, nanos: 800_000_000 };
        assert_eq!(system_time(early), UNIX_EPOCH - Duration::from_millis(1200));
        let as_fuser_says_it = UNIX_EPOCH - Duration::new(2, 800_000_000);
        assert_eq!(time(as_fuser_says_it), early);
    }

    #[test]
    fn times_after_1970_go_through_unchanged() {
        for seconds in [0, 1, 1 << 40] {
            let some = Time { seconds, nanos: 999_999_999 };
            assert_eq!(time(system_time(some)), some);
        }
    }

    #[test]
    fn a_time_that_cannot_be_shown_is_no_panic() {
        for seconds in [i64::MIN, i64::MAX] {
            let _ = system_time(Time { seconds, nanos: 999_999_999 });
        }
    }
}
