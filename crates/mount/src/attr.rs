//! Conversions of attributes, types, times and errors between `pelago_wire` and `pelago_fuse`.

use std::time::Duration;

use pelago_client::errno;
use pelago_fuse::ids::NodeId;
use pelago_fuse::{Errno, FileType, Timestamp, operation, reply};
use pelago_wire::{
    Attr, Entry, Error, FileKind, InodeId, SetAttr, SetTime, Time, VolumeStats, limits,
};

use crate::flags;

/// Preferred I/O size in bytes that programs see (`st_blksize`).
const BLOCK_BYTES: u32 = 4096;

/// Converts attributes.
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

/// Converts an entry, whose name holds for `name_ttl` and whose attributes for `attr_ttl`. Inode
/// ids are never reused, so that one generation suffices.
pub(crate) const fn entry(entry: &Entry, name_ttl: Duration, attr_ttl: Duration) -> reply::Entry {
    let node = NodeId(entry.attr.ino.raw());
    let attr = attr(&entry.attr);
    reply::Entry { node, generation: 0, entry_ttl: name_ttl, attr_ttl, attr }
}

/// Returns the reply that a name does not exist, which the kernel may cache for `ttl`.
pub(crate) const fn absent(ttl: Duration) -> reply::Entry {
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
    reply::Entry { node: NodeId(0), generation: 0, entry_ttl: ttl, attr_ttl: Duration::ZERO, attr }
}

/// Converts a file type.
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

/// Returns the inode id of a node id: they are the same number.
pub(crate) const fn ino(node: NodeId) -> InodeId {
    InodeId::from_raw(node.0)
}

/// Returns the errno of an error.
pub(crate) const fn error(error: Error) -> Errno {
    errno::of(error.code)
}

/// Converts a time of the kernel.
pub(crate) const fn time(time: Timestamp) -> Time {
    Time { seconds: time.seconds, nanos: time.nanos }
}

/// Converts a time that the kernel sets.
pub(crate) const fn set_time(to: operation::SetTime) -> SetTime {
    match to {
        operation::SetTime::Now => SetTime::Now,
        operation::SetTime::To(to) => SetTime::To(time(to)),
    }
}

/// Converts a time for the kernel.
pub(crate) const fn timestamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanos: time.nanos }
}

/// Converts a change of attributes, except for setuid and setgid bits that it clears.
pub(crate) fn changes(request: &operation::SetAttr) -> SetAttr {
    SetAttr {
        mode: request.mode.map(flags::permissions),
        uid: request.uid,
        gid: request.gid,
        size: request.size,
        atime: request.atime.map(set_time),
        mtime: request.mtime.map(set_time),
        ctime: request.ctime.map(time),
        kill_privileges: false,
        kill_setgid: false,
    }
}

/// Converts the space and inodes of a volume.
pub(crate) fn statfs(stats: &VolumeStats) -> reply::Statfs {
    reply::Statfs {
        blocks: stats.blocks,
        free: stats.free,
        available: stats.available,
        files: stats.files,
        free_files: stats.free_files,
        block_bytes: stats.block_bytes,
        name_bytes: u32::try_from(limits::NAME_BYTES).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converting_a_time_there_and_back_changes_nothing() {
        for seconds in [i64::MIN, -2, -1, 0, 1, 1 << 40, i64::MAX] {
            for nanos in [0, 1, 800_000_000, 999_999_999] {
                let some = Time { seconds, nanos };
                assert_eq!(time(timestamp(some)), some);
            }
        }
    }
}
