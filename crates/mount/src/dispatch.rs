//! Dispatch of requests: those about hidden files go to `find`, all others to the adapter.
//!
//! The number of a node says which it is. Hidden files cannot be changed: the kernel refuses most
//! changes by their modes, and the rest is refused here. No refusal is `ENOSYS`: Linux remembers it
//! for the connection, and would never send that request for any other file again.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use pelago_fuse::ids::{FileId, NodeId};
use pelago_fuse::listing::Listing;
use pelago_fuse::operation::{
    CopyFileRange, Create, Fallocate, FileLock, Flush, Fsync, Getlk, Link, Lseek, Mkdir, Mknod,
    Open, Read, Readdir, Release, Rename, SetAttr, Setlk, Setxattr, Symlink, Write,
};
use pelago_fuse::reply::{
    Attributes, Created, Entry, Offset, Opened, Statfs, Statx, Written, Xattr,
};
use pelago_fuse::{Errno, Filesystem, Header, Reply};

use crate::adapter::Adapter;
use crate::attr;
use crate::find::Find;

/// The file system that the kernel gets.
#[derive(Debug)]
pub(crate) struct Dispatch(pub(crate) Adapter);

impl Dispatch {
    fn find(&self) -> &Arc<Find> {
        &self.0.state().find
    }
}

const fn is_hidden(node: NodeId) -> bool {
    attr::ino(node).is_of_mount()
}

/// Passes requests about nodes of a volume on, and refuses the others with an errno.
macro_rules! refuse_hidden {
    ($($method:ident($($argument:ident: $type:ty),*) -> $reply:ty, $errno:ident;)+) => {
        $(fn $method(&self, header: &Header, $($argument: $type,)* reply: Reply<$reply>) {
            if is_hidden(header.node) {
                return reply.error(Errno::$errno);
            }
            self.0.$method(header, $($argument,)* reply);
        })+
    };
}

impl Filesystem for Dispatch {
    fn lookup(&self, header: &Header, name: &OsStr, reply: Reply<Entry>) {
        if is_hidden(header.node) {
            return self.find().lookup(header, name, reply);
        }
        self.0.lookup(header, name, reply);
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        if is_hidden(node) {
            return self.find().forget(node, lookups);
        }
        self.0.forget(node, lookups);
    }

    fn get_attr(&self, header: &Header, file: Option<FileId>, reply: Reply<Attributes>) {
        if is_hidden(header.node) {
            return self.find().get_attr(header, reply);
        }
        self.0.get_attr(header, file, reply);
    }

    fn statx(&self, header: &Header, reply: Reply<Statx>) {
        if is_hidden(header.node) {
            return self.find().statx(header, reply);
        }
        self.0.statx(header, reply);
    }

    fn readlink(&self, header: &Header, reply: Reply<[u8]>) {
        if is_hidden(header.node) {
            return self.find().readlink(header, reply);
        }
        self.0.readlink(header, reply);
    }

    fn rename(&self, header: &Header, request: Rename<'_>, reply: Reply<()>) {
        if is_hidden(header.node) || is_hidden(request.to_dir) {
            return reply.error(Errno::ROFS);
        }
        self.0.rename(header, request, reply);
    }

    fn link(&self, header: &Header, request: Link<'_>, reply: Reply<Entry>) {
        if is_hidden(header.node) || is_hidden(request.node) {
            return reply.error(Errno::ROFS);
        }
        self.0.link(header, request, reply);
    }

    fn open(&self, header: &Header, request: Open, reply: Reply<Opened>) {
        if is_hidden(header.node) {
            return self.find().open(header, reply);
        }
        self.0.open(header, request, reply);
    }

    fn read(&self, header: &Header, request: Read, reply: Reply<[u8]>) {
        if is_hidden(header.node) {
            return self.find().read(request, reply);
        }
        self.0.read(header, request, reply);
    }

    fn write(&self, header: &Header, request: Write<'_>, reply: Reply<Written>) {
        if is_hidden(header.node) {
            return self.find().write(&request, reply);
        }
        self.0.write(header, request, reply);
    }

    fn flush(&self, header: &Header, request: Flush, reply: Reply<()>) {
        if is_hidden(header.node) {
            return reply.ok(&());
        }
        self.0.flush(header, request, reply);
    }

    fn release(&self, header: &Header, request: Release, reply: Reply<()>) {
        if is_hidden(header.node) {
            return self.find().release(request.file, reply);
        }
        self.0.release(header, request, reply);
    }

    fn opendir(&self, header: &Header, flags: i32, reply: Reply<Opened>) {
        if is_hidden(header.node) {
            // Each listing names its caller: nothing belongs to an open, and the kernel keeps none.
            return reply.ok(&Opened { file: FileId(0), flags: 0, backing: None });
        }
        self.0.opendir(header, flags, reply);
    }

    fn readdir(&self, header: &Header, request: Readdir, listing: Listing, reply: Reply<Listing>) {
        if is_hidden(header.node) {
            return self.find().readdir(header, request, listing, reply);
        }
        self.0.readdir(header, request, listing, reply);
    }

    fn releasedir(&self, header: &Header, file: FileId, reply: Reply<()>) {
        if is_hidden(header.node) {
            return reply.ok(&());
        }
        self.0.releasedir(header, file, reply);
    }

    fn statfs(&self, header: &Header, reply: Reply<Statfs>) {
        self.0.statfs(header, reply);
    }

    fn getxattr(&self, header: &Header, name: &OsStr, size: u32, reply: Reply<Xattr>) {
        if is_hidden(header.node) {
            return reply.error(Errno::NODATA);
        }
        self.0.getxattr(header, name, size, reply);
    }

    fn listxattr(&self, header: &Header, size: u32, reply: Reply<Xattr>) {
        if is_hidden(header.node) {
            return reply.ok(&if size == 0 { Xattr::Size(0) } else { Xattr::Value(Vec::new()) });
        }
        self.0.listxattr(header, size, reply);
    }

    fn copy_file_range(&self, header: &Header, request: CopyFileRange, reply: Reply<Written>) {
        let files = [request.from, request.to].map(|file| NodeId(file.0));
        if files.into_iter().any(is_hidden) {
            return reply.error(Errno::INVAL);
        }
        self.0.copy_file_range(header, request, reply);
    }

    refuse_hidden! {
        set_attr(request: SetAttr) -> Attributes, PERM;
        symlink(request: Symlink<'_>) -> Entry, ROFS;
        mknod(request: Mknod<'_>) -> Entry, ROFS;
        mkdir(request: Mkdir<'_>) -> Entry, ROFS;
        unlink(name: &OsStr) -> (), ROFS;
        rmdir(name: &OsStr) -> (), ROFS;
        create(request: Create<'_>) -> Created, ROFS;
        tmpfile(request: Create<'_>) -> Created, ROFS;
        fsync(request: Fsync) -> (), INVAL;
        fsyncdir(request: Fsync) -> (), INVAL;
        setxattr(request: Setxattr<'_>) -> (), OPNOTSUPP;
        removexattr(name: &OsStr) -> (), NODATA;
        fallocate(request: Fallocate) -> (), OPNOTSUPP;
        lseek(request: Lseek) -> Offset, SPIPE;
        getlk(request: Getlk) -> FileLock, NOLCK;
        setlk(request: Setlk) -> (), NOLCK;
    }

    fn interrupt(&self, unique: u64) -> bool {
        self.find().interrupt(unique) || self.0.interrupt(unique)
    }

    fn given_up(&self, unique: u64) {
        if !self.find().interrupt(unique) {
            self.0.given_up(unique);
        }
    }

    fn silence(&self) -> Option<Duration> {
        self.0.silence()
    }

    fn end(&self) {
        self.0.end();
    }
}
