//! The interface that a file system implements, and the call of the method that a request names.

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::time::Duration;

use pelago_trace::RequestSpan;

use crate::Errno;
use crate::ids::{FileId, NodeId};
use crate::interrupts::{Interrupt, Interrupts};
use crate::listing::Listing;
use crate::operation::{
    CopyFileRange, Create, Fallocate, FileLock, Flush, Fsync, Getlk, Link, Lseek, Mkdir, Mknod,
    Open, Operation, Read, Readdir, Release, Rename, SetAttr, Setlk, Setxattr, Symlink, Write,
};
use crate::reply::{
    Attributes, Created, Encode, Entry, Offset, Opened, Reply, Statfs, Statx, Written, Xattr,
};
use crate::reply_to::ReplyTo;
use crate::request::Header;

/// A file system: one method for each request. The default of a method replies `ENOSYS`; for most
/// requests the kernel then stops sending them and falls back.
///
/// The threads of the session call these methods, which should return soon. A reply may be held and
/// completed later, by any thread.
#[expect(missing_docs, reason = "each is the request of its name, with the reply of its type")]
#[expect(unused_variables, reason = "the names of unused parameters say what they are")]
pub trait Filesystem: Send + Sync + 'static {
    fn lookup(&self, header: &Header, name: &OsStr, reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    /// Drops `lookups` of the lookups of `node` that replies have counted. After the last one the
    /// kernel does not refer to the node any more.
    fn forget(&self, node: NodeId, lookups: u64) {}

    fn get_attr(&self, header: &Header, file: Option<FileId>, reply: Reply<Attributes>) {
        reply.error(Errno::NOSYS);
    }

    /// As [`Filesystem::get_attr`], with the birth time (7.39, Linux 6.6).
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

    /// Creates and opens an unnamed temporary file (`O_TMPFILE`; 7.37, Linux 6.1).
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

    fn getlk(&self, header: &Header, request: Getlk, reply: Reply<FileLock>) {
        reply.error(Errno::NOSYS);
    }

    /// FUSE_SETLK and FUSE_SETLKW. The reply to a request that waits comes later; the program that
    /// sent it cannot be killed before [`Filesystem::interrupt`] or the reply.
    fn setlk(&self, header: &Header, request: Setlk, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    /// Interrupts request `unique`, whose caller got a signal. The reply to that request may be
    /// `EINTR`, or the same as without the signal. Returns `false` if this request is not known
    /// here: the thread that read it may not have called its method yet. The interrupt then comes
    /// again, also after that call, and perhaps often; `true` ends that.
    ///
    /// A file system that ends waiting requests must record them by their number and look them up
    /// here under the same lock, so that either this call or the method comes second.
    fn interrupt(&self, unique: u64) -> bool {
        true
    }

    /// Records that the caller of request `unique` was killed and its request was answered `EINTR`.
    /// The request may be carried out all the same; a reply to it is dropped.
    fn given_up(&self, unique: u64) {
        let _is_known = self.interrupt(unique);
    }

    /// Returns for how long the server behind the file system has sent nothing, although it should
    /// have; `None` if this process alone answers requests. A caller whose signals cannot be seen
    /// is given up after a long silence only.
    fn silence(&self) -> Option<Duration> {
        None
    }

    /// Called once the session has ended, and no more requests come.
    fn end(&self) {}
}

/// Calls the method of `operation`. The reply goes to `reply_to`. A request without a method gets
/// `ENOSYS`. `interrupts` holds interrupts that come before their request.
pub(crate) fn dispatch(
    filesystem: &dyn Filesystem,
    interrupts: &Interrupts,
    reply_to: &ReplyTo,
    header: &Header,
    operation: Operation<'_>,
    span: &RequestSpan,
) {
    let to = filesystem;
    let caller = Caller { header, to: reply_to, span };
    match operation {
        // The session has negotiated already; the kernel sends FUSE_INIT once.
        Operation::Init(_) => caller.reply::<()>().error(Errno::IO),
        // Nothing needs to happen before the unmount: `Filesystem::end` follows.
        Operation::Destroy => caller.reply().ok(&()),
        Operation::Lookup { name } => to.lookup(header, name, caller.reply()),
        Operation::Forget { lookups } => to.forget(header.node, lookups),
        Operation::BatchForget(nodes) => nodes.for_each(|(node, count)| to.forget(node, count)),
        Operation::GetAttr { file } => to.get_attr(header, file, caller.reply()),
        Operation::SetAttr(request) => to.set_attr(header, request, caller.reply()),
        Operation::Readlink => to.readlink(header, caller.reply()),
        Operation::Symlink(request) => to.symlink(header, request, caller.reply()),
        Operation::Mknod(request) => to.mknod(header, request, caller.reply()),
        Operation::Mkdir(request) => to.mkdir(header, request, caller.reply()),
        Operation::Unlink { name } => to.unlink(header, name, caller.reply()),
        Operation::Rmdir { name } => to.rmdir(header, name, caller.reply()),
        Operation::Rename(request) => to.rename(header, request, caller.reply()),
        Operation::Link(request) => to.link(header, request, caller.reply()),
        Operation::Open(request) => to.open(header, request, caller.reply()),
        Operation::Create(request) => to.create(header, request, caller.reply()),
        Operation::Tmpfile(request) => to.tmpfile(header, request, caller.reply()),
        Operation::Read(request) => to.read(header, request, caller.reply()),
        Operation::Write(request) => to.write(header, request, caller.reply()),
        Operation::Flush(request) => to.flush(header, request, caller.reply()),
        Operation::Release(request) => to.release(header, request, caller.reply()),
        Operation::Fsync(request) => to.fsync(header, request, caller.reply()),
        Operation::Opendir { flags } => to.opendir(header, flags, caller.reply()),
        Operation::Readdir(request) => {
            to.readdir(header, request, Listing::of_names(request.size), caller.reply());
        }
        Operation::ReaddirPlus(request) => {
            to.readdir(header, request, Listing::of_entries(request.size), caller.reply());
        }
        Operation::Releasedir { file } => to.releasedir(header, file, caller.reply()),
        Operation::Fsyncdir(request) => to.fsyncdir(header, request, caller.reply()),
        Operation::Statfs => to.statfs(header, caller.reply()),
        Operation::Setxattr(request) => to.setxattr(header, request, caller.reply()),
        Operation::Getxattr { name, size } => to.getxattr(header, name, size, caller.reply()),
        Operation::Listxattr { size } => to.listxattr(header, size, caller.reply()),
        Operation::Removexattr { name } => to.removexattr(header, name, caller.reply()),
        Operation::Access { mask } => to.access(header, mask, caller.reply()),
        Operation::Getlk(request) => to.getlk(header, request, caller.reply()),
        Operation::Setlk(request) => to.setlk(header, request, caller.reply()),
        Operation::Interrupt { unique } => {
            let interrupt = Interrupt { number: header.unique, request: unique };
            return interrupts.received(interrupt, |request| to.interrupt(request));
        }
        Operation::Fallocate(request) => to.fallocate(header, request, caller.reply()),
        Operation::Lseek(request) => to.lseek(header, request, caller.reply()),
        Operation::CopyFileRange(request) => to.copy_file_range(header, request, caller.reply()),
        Operation::Statx => to.statx(header, caller.reply()),
        Operation::Other(_) => caller.reply::<()>().error(Errno::NOSYS),
    }
    interrupts.called(header.unique, |request| to.interrupt(request));
}

/// The waiting caller of a request, and the destination of the reply.
struct Caller<'a> {
    header: &'a Header,
    to: &'a ReplyTo,
    span: &'a RequestSpan,
}

impl Caller<'_> {
    fn reply<T: Encode + ?Sized>(&self) -> Reply<T> {
        self.to.begin(self.header.unique);
        let unique = self.header.unique;
        let to = Some(self.to.clone());
        let span = self.span.clone();
        Reply { unique, to, is_claimed: false, span, answer: PhantomData }
    }
}

#[cfg(test)]
mod tests;
