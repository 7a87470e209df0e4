//! The interface that a file system implements.

use std::ffi::OsStr;

use crate::Errno;
use crate::ids::{FileId, NodeId};
use crate::listing::Listing;
use crate::operation::{
    CopyFileRange, Create, Fallocate, Flush, Fsync, Link, Lseek, Mkdir, Mknod, Open, Read, Readdir,
    Release, Rename, SetAttr, Setxattr, Symlink, Write,
};
use crate::reply::{
    Attributes, Created, Entry, Offset, Opened, Reply, Statfs, Statx, Written, Xattr,
};
use crate::request::Header;

/// A file system: one method for each request. The default of a method replies `ENOSYS`; for most
/// requests the kernel then stops sending them and falls back.
///
/// The threads of the session call these methods, which should return soon. A reply may be kept and
/// completed later, by any thread.
#[expect(missing_docs, reason = "each is the request of its name, with the reply of its type")]
#[expect(unused_variables, reason = "the names of unused parameters say what they are")]
pub trait Filesystem: Send + Sync + 'static {
    fn lookup(&self, header: &Header, name: &OsStr, reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    /// The kernel drops `lookups` of the lookups of `node` that replies have counted. After the
    /// last it does not refer to the node any more.
    fn forget(&self, node: NodeId, lookups: u64) {}

    fn get_attr(&self, header: &Header, file: Option<FileId>, reply: Reply<Attributes>) {
        reply.error(Errno::NOSYS);
    }

    /// As [`Filesystem::get_attr`], with the birth time.
    fn statx(&self, header: &Header, reply: Reply<Statx>) {
        reply.error(Errno::NOSYS);
    }

    fn set_attr(&self, header: &Header, request: SetAttr, reply: Reply<Attributes>) {
        reply.error(Errno::NOSYS);
    }

    fn readlink(&self, header: &Header, reply: Reply<[u8]>) {
        reply.error(Errno::NOSYS);
    }

    fn symlink(&self, header: &Header, request: Symlink<'_>, reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    fn mknod(&self, header: &Header, request: Mknod<'_>, reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    fn mkdir(&self, header: &Header, request: Mkdir<'_>, reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    fn unlink(&self, header: &Header, name: &OsStr, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn rmdir(&self, header: &Header, name: &OsStr, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn rename(&self, header: &Header, request: Rename<'_>, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn link(&self, header: &Header, request: Link<'_>, reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    fn open(&self, header: &Header, request: Open, reply: Reply<Opened>) {
        reply.error(Errno::NOSYS);
    }

    fn create(&self, header: &Header, request: Create<'_>, reply: Reply<Created>) {
        reply.error(Errno::NOSYS);
    }

    /// Creates and opens an unnamed temporary file (`O_TMPFILE`).
    fn tmpfile(&self, header: &Header, request: Create<'_>, reply: Reply<Created>) {
        reply.error(Errno::NOSYS);
    }

    fn read(&self, header: &Header, request: Read, reply: Reply<[u8]>) {
        reply.error(Errno::NOSYS);
    }

    fn write(&self, header: &Header, request: Write<'_>, reply: Reply<Written>) {
        reply.error(Errno::NOSYS);
    }

    fn flush(&self, header: &Header, request: Flush, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn release(&self, header: &Header, request: Release, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn fsync(&self, header: &Header, request: Fsync, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn opendir(&self, header: &Header, flags: i32, reply: Reply<Opened>) {
        reply.error(Errno::NOSYS);
    }

    /// FUSE_READDIR and FUSE_READDIRPLUS. `listing` is empty, and has attributes for the latter.
    fn readdir(&self, header: &Header, request: Readdir, listing: Listing, reply: Reply<Listing>) {
        reply.error(Errno::NOSYS);
    }

    fn releasedir(&self, header: &Header, file: FileId, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn fsyncdir(&self, header: &Header, request: Fsync, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn statfs(&self, header: &Header, reply: Reply<Statfs>) {
        reply.error(Errno::NOSYS);
    }

    fn setxattr(&self, header: &Header, request: Setxattr<'_>, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    /// A `size` of zero asks for the size of the value.
    fn getxattr(&self, header: &Header, name: &OsStr, size: u32, reply: Reply<Xattr>) {
        reply.error(Errno::NOSYS);
    }

    /// A `size` of zero asks for the size of the list.
    fn listxattr(&self, header: &Header, size: u32, reply: Reply<Xattr>) {
        reply.error(Errno::NOSYS);
    }

    fn removexattr(&self, header: &Header, name: &OsStr, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn access(&self, header: &Header, mask: u32, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn fallocate(&self, header: &Header, request: Fallocate, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn lseek(&self, header: &Header, request: Lseek, reply: Reply<Offset>) {
        reply.error(Errno::NOSYS);
    }

    fn copy_file_range(&self, header: &Header, request: CopyFileRange, reply: Reply<Written>) {
        reply.error(Errno::NOSYS);
    }

    /// The caller of request `unique` got a signal. The reply to that request may be `EINTR`, or
    /// what it would have been otherwise.
    fn interrupt(&self, unique: u64) {}

    /// The session has ended, and no more requests come.
    fn end(&self) {}
}
