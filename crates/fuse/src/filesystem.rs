//! What a file system does with requests.

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

/// A method for each request. What is not written answers `ENOSYS`, which the kernel understands as
/// "never ask again" where it can do without.
///
/// Methods are called on the threads of the session and should return soon; the reply may be kept
/// and answered later, from anywhere.
#[expect(missing_docs, reason = "each is the request of its name; its answer is the reply's type")]
#[expect(unused_variables, reason = "the names of what is not looked at say what it is")]
pub trait Filesystem: Send + Sync + 'static {
    fn lookup(&self, header: &Header, name: &OsStr, reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    /// The kernel gives back `lookups` of the entries of `node` it was given; with the last one it
    /// refers to it no more.
    fn forget(&self, node: NodeId, lookups: u64) {}

    fn get_attr(&self, header: &Header, file: Option<FileId>, reply: Reply<Attributes>) {
        reply.error(Errno::NOSYS);
    }

    /// As [`Filesystem::get_attr`], with the time of birth.
    fn statx(&self, header: &Header, reply: Reply<Statx>) {
        reply.error(Errno::NOSYS);
    }

    fn set_attr(&self, header: &Header, asked: SetAttr, reply: Reply<Attributes>) {
        reply.error(Errno::NOSYS);
    }

    fn readlink(&self, header: &Header, reply: Reply<[u8]>) {
        reply.error(Errno::NOSYS);
    }

    fn symlink(&self, header: &Header, asked: Symlink<'_>, reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    fn mknod(&self, header: &Header, asked: Mknod<'_>, reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    fn mkdir(&self, header: &Header, asked: Mkdir<'_>, reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    fn unlink(&self, header: &Header, name: &OsStr, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn rmdir(&self, header: &Header, name: &OsStr, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn rename(&self, header: &Header, asked: Rename<'_>, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn link(&self, header: &Header, asked: Link<'_>, reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    fn open(&self, header: &Header, asked: Open, reply: Reply<Opened>) {
        reply.error(Errno::NOSYS);
    }

    fn create(&self, header: &Header, asked: Create<'_>, reply: Reply<Created>) {
        reply.error(Errno::NOSYS);
    }

    /// `O_TMPFILE`: a file without a name, in this directory's file system.
    fn tmpfile(&self, header: &Header, asked: Create<'_>, reply: Reply<Created>) {
        reply.error(Errno::NOSYS);
    }

    fn read(&self, header: &Header, asked: Read, reply: Reply<[u8]>) {
        reply.error(Errno::NOSYS);
    }

    fn write(&self, header: &Header, asked: Write<'_>, reply: Reply<Written>) {
        reply.error(Errno::NOSYS);
    }

    fn flush(&self, header: &Header, asked: Flush, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn release(&self, header: &Header, asked: Release, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn fsync(&self, header: &Header, asked: Fsync, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn opendir(&self, header: &Header, flags: i32, reply: Reply<Opened>) {
        reply.error(Errno::NOSYS);
    }

    /// FUSE_READDIR and FUSE_READDIRPLUS: `listing` is empty, and takes attributes with the second.
    fn readdir(&self, header: &Header, asked: Readdir, listing: Listing, reply: Reply<Listing>) {
        reply.error(Errno::NOSYS);
    }

    fn releasedir(&self, header: &Header, file: FileId, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn fsyncdir(&self, header: &Header, asked: Fsync, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn statfs(&self, header: &Header, reply: Reply<Statfs>) {
        reply.error(Errno::NOSYS);
    }

    fn setxattr(&self, header: &Header, asked: Setxattr<'_>, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    /// `size` zero asks how large the value is.
    fn getxattr(&self, header: &Header, name: &OsStr, size: u32, reply: Reply<Xattr>) {
        reply.error(Errno::NOSYS);
    }

    /// `size` zero asks how large the list is.
    fn listxattr(&self, header: &Header, size: u32, reply: Reply<Xattr>) {
        reply.error(Errno::NOSYS);
    }

    fn removexattr(&self, header: &Header, name: &OsStr, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn access(&self, header: &Header, mask: u32, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn fallocate(&self, header: &Header, asked: Fallocate, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    fn lseek(&self, header: &Header, asked: Lseek, reply: Reply<Offset>) {
        reply.error(Errno::NOSYS);
    }

    fn copy_file_range(&self, header: &Header, asked: CopyFileRange, reply: Reply<Written>) {
        reply.error(Errno::NOSYS);
    }

    /// Whoever sent request `unique` was signalled. It may be answered with `EINTR`, or as if
    /// nothing had happened.
    fn interrupt(&self, unique: u64) {}

    /// The session has ended; no request comes any more.
    fn end(&self) {}
}
