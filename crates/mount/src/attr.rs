//! Attributes, kinds, times and errors between our words and the kernel's.

use std::time::Duration;

use pelago_fuse::ids::NodeId;
use pelago_fuse::{Errno, FileType, Timestamp, operation, reply};
use pelago_wire::{Attr, Entry, Error, FileKind, InodeId, SetTime, Time};

use crate::init::TTL;
use pelago_client::errno;

/// Bytes that programs are told to read and write at a time (`st_blksize`).
const BLOCK_BYTES: u32 = 4096;

/// Attributes for the kernel.
pub(crate) const fn attr(attr: &Attr) -> pelago_fuse::Attr {
    pelago_fuse::Attr {
        ino: attr.ino.raw(),
        size: attr.size,
        blocks: attr.blocks,
        atime: timestamp(attr.atime),
        mtime: timestamp(attr.mtime),
        ctime: timestamp(attr.ctime),
        file_type: file_type(attr.kind),
        mode: attr.mode,
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        block_bytes: BLOCK_BYTES,
    }
}

/// What a name leads to, with attributes that hold for `ttl`. Nodes are never reused, so one
/// generation serves them all.
pub(crate) const fn entry(entry: &Entry, ttl: Duration) -> reply::Entry {
    let node = NodeId(entry.attr.ino.raw());
    let attr = attr(&entry.attr);
    reply::Entry { node, generation: 0, entry_ttl: TTL, attr_ttl: ttl, attr }
}

/// The answer that there is no such name, which the kernel may keep.
pub(crate) const fn absent() -> reply::Entry {
    let never = Timestamp { seconds: 0, nanos: 0 };
    let attr = pelago_fuse::Attr {
        ino: 0,
        size: 0,
        blocks: 0,
        atime: never,
        mtime: never,
        ctime: never,
        file_type: FileType::Regular,
        mode: 0,
        links: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        block_bytes: BLOCK_BYTES,
    };
    reply::Entry { node: NodeId(0), generation: 0, entry_ttl: TTL, attr_ttl: Duration::ZERO, attr }
}

/// The kernel's word for a kind.
pub(crate) const fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::Regular,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

/// The inode that a node number of the kernel is: they are the same.
pub(crate) const fn ino(node: NodeId) -> InodeId {
    InodeId::from_raw(node.0)
}

/// The kernel's number for an error.
pub(crate) const fn error(error: Error) -> Errno {
    errno::of(error.code)
}

/// A time from the kernel.
pub(crate) const fn time(time: Timestamp) -> Time {
    Time { seconds: time.seconds, nanos: time.nanos }
}

/// A time to set.
pub(crate) const fn set_time(to: operation::SetTime) -> SetTime {
    match to {
        operation::SetTime::Now => SetTime::Now,
        operation::SetTime::To(to) => SetTime::To(time(to)),
    }
}

/// A time for the kernel.
pub(crate) const fn timestamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanos: time.nanos }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_through_unchanged_however_far_away() {
        for seconds in [i64::MIN, -2, -1, 0, 1, 1 << 40, i64::MAX] {
            for nanos in [0, 1, 800_000_000, 999_999_999] {
                let some = Time { seconds, nanos };
                assert_eq!(time(timestamp(some)), some);
            }
        }
    }
}
