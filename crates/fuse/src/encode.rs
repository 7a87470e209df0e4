//! Encoding of replies and notices. Each layout is an array on the stack.

use std::time::Duration;

use crate::attr::{Attr, Timestamp};
use crate::bytes::Layout;
use crate::ids::NodeId;
use crate::init::{MAJOR, MajorReply, NEWEST_MINOR, Negotiated};
use crate::operation::FileLock;
use crate::reply::{
    Attributes, Created, Encode, Entry, Offset, Opened, Statfs, Statx, Written, Xattr,
};

/// Bytes of `fuse_attr`.
const ATTR_BYTES: usize = 88;
/// Bytes of `fuse_entry_out`.
pub(crate) const ENTRY_BYTES: usize = 128;
/// Bytes of `fuse_statx_out`.
const STATX_BYTES: usize = 288;
/// The fields of `stat` and the birth time (`STATX_BASIC_STATS`, `STATX_BTIME`).
const STATX_MASK: u32 = 0xfff;
/// Bytes of `fuse_open_out`.
const OPEN_BYTES: usize = 16;

/// Encodes `fuse_notify_inval_inode_out`.
pub(crate) fn inval_inode(node: NodeId, offset: i64, length: i64) -> [u8; 24] {
    *Layout::new().u64(node.0).i64(offset).i64(length).done()
}

/// Encodes `fuse_notify_inval_entry_out`; the name and a NUL follow it.
pub(crate) fn inval_entry(dir: NodeId, name_bytes: u32, flags: u32) -> [u8; 16] {
    *Layout::new().u64(dir.0).u32(name_bytes).u32(flags).done()
}

/// Encodes `fuse_notify_prune_out`; `count` node ids follow it.
pub(crate) fn prune(count: u32) -> [u8; 16] {
    *Layout::new().u32(count).u32(0).u64(0).done()
}

/// Encodes a node id in a list of them.
pub(crate) fn node_id(node: NodeId) -> [u8; 8] {
    *Layout::new().u64(node.0).done()
}

/// Encodes `fuse_entry_out`.
pub(crate) fn entry(entry: &Entry) -> [u8; ENTRY_BYTES] {
    let mut layout = Layout::new();
    put_entry(&mut layout, entry);
    *layout.done()
}

impl Encode for () {
    fn with_bytes(&self, send: &mut dyn FnMut(&[u8])) {
        send(&[]);
    }
}

impl Encode for [u8] {
    fn with_bytes(&self, send: &mut dyn FnMut(&[u8])) {
        send(self);
    }
}

impl Encode for Entry {
    fn with_bytes(&self, send: &mut dyn FnMut(&[u8])) {
        let mut layout = Layout::<ENTRY_BYTES>::new();
        put_entry(&mut layout, self);
        send(layout.done());
    }
}

impl Encode for Attributes {
    fn with_bytes(&self, send: &mut dyn FnMut(&[u8])) {
        let mut layout = Layout::<{ 16 + ATTR_BYTES }>::new();
        layout.u64(seconds(self.ttl)).u32(self.ttl.subsec_nanos()).u32(0);
        put_attr(&mut layout, &self.attr);
        send(layout.done());
    }
}

impl Encode for Statx {
    fn with_bytes(&self, send: &mut dyn FnMut(&[u8])) {
        let mut layout = Layout::<STATX_BYTES>::new();
        layout.u64(seconds(self.ttl)).u32(self.ttl.subsec_nanos()).u32(0).padding(16);
        put_statx(&mut layout, &self.attr, self.birth);
        send(layout.done());
    }
}

impl Encode for Opened {
    fn with_bytes(&self, send: &mut dyn FnMut(&[u8])) {
        let mut layout = Layout::<OPEN_BYTES>::new();
        put_opened(&mut layout, self);
        send(layout.done());
    }
}

impl Encode for Created {
    fn with_bytes(&self, send: &mut dyn FnMut(&[u8])) {
        let mut layout = Layout::<{ ENTRY_BYTES + OPEN_BYTES }>::new();
        put_entry(&mut layout, &self.entry);
        put_opened(&mut layout, &self.opened);
        send(layout.done());
    }
}

impl Encode for Written {
    fn with_bytes(&self, send: &mut dyn FnMut(&[u8])) {
        send(Layout::<8>::new().u32(self.0).u32(0).done());
    }
}

impl Encode for Offset {
    fn with_bytes(&self, send: &mut dyn FnMut(&[u8])) {
        send(Layout::<8>::new().u64(self.0).done());
    }
}

/// `fuse_lk_out`.
impl Encode for FileLock {
    fn with_bytes(&self, send: &mut dyn FnMut(&[u8])) {
        let mut layout = Layout::<24>::new();
        layout.u64(self.start).u64(self.end).u32(self.kind as u32).u32(self.pid);
        send(layout.done());
    }
}

impl Encode for Xattr {
    fn with_bytes(&self, send: &mut dyn FnMut(&[u8])) {
        match self {
            Self::Size(size) => send(Layout::<8>::new().u32(*size).u32(0).done()),
            Self::Value(value) => send(value),
        }
    }
}

impl Encode for Statfs {
    fn with_bytes(&self, send: &mut dyn FnMut(&[u8])) {
        let mut layout = Layout::<80>::new();
        layout
            .u64(self.blocks)
            .u64(self.free)
            .u64(self.available)
            .u64(self.files)
            .u64(self.free_files)
            .u32(self.block_bytes)
            .u32(self.name_bytes)
            .u32(self.block_bytes)
            .padding(28);
        send(layout.done());
    }
}

/// `fuse_init_out`.
impl Encode for Negotiated {
    fn with_bytes(&self, send: &mut dyn FnMut(&[u8])) {
        let flags = self.capabilities.0;
        let mut layout = Layout::<64>::new();
        layout
            .u32(MAJOR)
            .u32(self.minor)
            .u32(self.max_readahead)
            .u32(flags as u32)
            .u16(self.max_background)
            .u16(self.congestion())
            .u32(self.max_write)
            // The granularity of times: one nanosecond.
            .u32(1)
            .u16(self.pages())
            .u16(0)
            .u32((flags >> 32) as u32)
            .u32(self.stack_depth())
            .padding(24);
        send(layout.done());
    }
}

/// `fuse_init_out`, of which the kernel reads only the version.
impl Encode for MajorReply {
    fn with_bytes(&self, send: &mut dyn FnMut(&[u8])) {
        send(Layout::<64>::new().u32(MAJOR).u32(NEWEST_MINOR).padding(56).done());
    }
}

/// `fuse_entry_out`.
fn put_entry<const BYTES: usize>(layout: &mut Layout<BYTES>, entry: &Entry) {
    layout
        .u64(entry.node.0)
        .u64(entry.generation)
        .u64(seconds(entry.entry_ttl))
        .u64(seconds(entry.attr_ttl))
        .u32(entry.entry_ttl.subsec_nanos())
        .u32(entry.attr_ttl.subsec_nanos());
    put_attr(layout, &entry.attr);
}

/// `fuse_open_out`.
fn put_opened<const BYTES: usize>(layout: &mut Layout<BYTES>, opened: &Opened) {
    layout.u64(opened.file.0).u32(opened.flags).i32(opened.backing.unwrap_or(0));
}

/// `fuse_attr`.
fn put_attr<const BYTES: usize>(layout: &mut Layout<BYTES>, attr: &Attr) {
    let &Attr { atime, mtime, ctime, .. } = attr;
    layout
        .u64(attr.ino)
        .u64(attr.size)
        .u64(attr.blocks)
        .i64(atime.seconds)
        .i64(mtime.seconds)
        .i64(ctime.seconds)
        .u32(atime.nanos)
        .u32(mtime.nanos)
        .u32(ctime.nanos)
        .u32(attr.file_type as u32 | u32::from(attr.mode & 0o7777))
        .u32(attr.links)
        .u32(attr.uid)
        .u32(attr.gid)
        .u32(attr.rdev)
        .u32(attr.block_bytes)
        .u32(0);
}

/// `fuse_statx`.
fn put_statx<const BYTES: usize>(layout: &mut Layout<BYTES>, attr: &Attr, birth: Timestamp) {
    let mode = attr.file_type as u32 | u32::from(attr.mode & 0o7777);
    // Splits what `new_encode_dev` of Linux has combined.
    let major = attr.rdev >> 8 & 0xfff;
    let minor = attr.rdev & 0xff | attr.rdev >> 12 & 0xf_ff00;
    layout
        .u32(STATX_MASK)
        .u32(attr.block_bytes)
        .u64(0)
        .u32(attr.links)
        .u32(attr.uid)
        .u32(attr.gid)
        .u16(mode as u16)
        .u16(0)
        .u64(attr.ino)
        .u64(attr.size)
        .u64(attr.blocks)
        .u64(0);
    for time in [attr.atime, birth, attr.ctime, attr.mtime] {
        layout.i64(time.seconds).u32(time.nanos).u32(0);
    }
    layout.u32(major).u32(minor).u32(0).u32(0).padding(14 * 8);
}

/// Returns the seconds of `ttl`, at most `i64::MAX`: the kernel reads more as a time in the past.
fn seconds(ttl: Duration) -> u64 {
    ttl.as_secs().min(i64::MAX.unsigned_abs())
}
