//! [`Files`] over a [`Service`].

use std::fmt;
use std::sync::Arc;

use pelago_wire::{
    AllocateMode, Attr, Buffer, Bulk, Code, Context, Cookie, Done, Entry, Error, Handle, InodeId,
    Name, NewMode, OpenFlags, OpenId, RenameFlags, Reply, Request, SeekFrom, Service, SetAttr,
    VolumeStats, XattrFlags,
};

use crate::files::{
    At, ByteRange, Created, FilePos, Files, Listing, NewNode, Opened, Removed, Renamed, Written,
    Xattr,
};
use crate::pending::Pending;

/// The files of one server, reached by direct calls or over the transport of its [`Service`].
#[derive(Clone)]
pub struct ServiceFiles {
    service: Arc<dyn Service>,
}

impl ServiceFiles {
    /// Returns the files of `service`.
    #[must_use]
    pub fn new(service: Arc<dyn Service>) -> Self {
        Self { service }
    }

    fn ask<T: Send + 'static>(
        &self,
        context: &Context,
        request: Request,
        pick: fn(Reply) -> Option<T>,
    ) -> Pending<T> {
        self.ask_with(context, request, Bulk::None, pick)
    }

    /// Sends a request and converts its reply with `pick`. A reply that `pick` refuses is a mistake
    /// of the server and becomes [`Code::Bug`].
    fn ask_with<T: Send + 'static>(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        pick: fn(Reply) -> Option<T>,
    ) -> Pending<T> {
        let picked = move |result: Result<Reply, Error>| {
            result.and_then(|reply| pick(reply).ok_or(Error::new(Code::Bug)))
        };
        let mut kept = None;
        let mut later = || -> Done {
            let (completer, answer) = Pending::later();
            kept = Some(answer);
            Box::new(move |result| completer.complete(picked(result)))
        };
        let now = self.service.ask(context, request, bulk, &mut later);
        match (now, kept) {
            (None, Some(answer)) => answer.settle(),
            (now, _) => Pending::ready(picked(now.unwrap_or(Err(Code::Bug.into())))),
        }
    }
}

impl fmt::Debug for ServiceFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServiceFiles")
    }
}

impl Files for ServiceFiles {
    fn lookup(&self, context: &Context, at: At) -> Pending<Entry> {
        let At { dir, name } = at;
        self.ask(context, Request::Lookup { dir, name }, entry)
    }

    fn parent(&self, context: &Context, dir: Handle) -> Pending<Entry> {
        self.ask(context, Request::Parent { dir }, entry)
    }

    fn find(&self, context: &Context, ino: InodeId) -> Pending<Entry> {
        self.ask(context, Request::Find { ino }, entry)
    }

    fn get_attr(&self, context: &Context, node: Handle) -> Pending<Attr> {
        self.ask(context, Request::GetAttr { node }, attr)
    }

    fn set_attr(
        &self,
        context: &Context,
        node: Handle,
        open: Option<OpenId>,
        set: SetAttr,
    ) -> Pending<Attr> {
        self.ask(context, Request::SetAttr { node, open, set }, attr)
    }

    fn create(
        &self,
        context: &Context,
        at: At,
        mode: NewMode,
        flags: OpenFlags,
    ) -> Pending<Created> {
        let At { dir, name } = at;
        self.ask(context, Request::Create { dir, name, mode, flags }, created)
    }

    fn create_unnamed(
        &self,
        context: &Context,
        dir: Handle,
        mode: NewMode,
        flags: OpenFlags,
    ) -> Pending<Created> {
        self.ask(context, Request::CreateUnnamed { dir, mode, flags }, created)
    }

    fn make_dir(&self, context: &Context, at: At, mode: NewMode) -> Pending<Entry> {
        let At { dir, name } = at;
        self.ask(context, Request::MakeDir { dir, name, mode }, entry)
    }

    fn make_node(&self, context: &Context, at: At, node: NewNode) -> Pending<Entry> {
        let At { dir, name } = at;
        let NewNode { kind, mode, rdev } = node;
        self.ask(context, Request::MakeNode { dir, name, kind, mode, rdev }, entry)
    }

    fn symlink(&self, context: &Context, at: At, target: Vec<u8>) -> Pending<Entry> {
        let At { dir, name } = at;
        self.ask(context, Request::Symlink { dir, name, target }, entry)
    }

    fn read_link(&self, context: &Context, node: Handle) -> Pending<Vec<u8>> {
        self.ask(context, Request::ReadLink { node }, bytes)
    }

    fn link(&self, context: &Context, node: Handle, at: At) -> Pending<Entry> {
        let At { dir, name } = at;
        self.ask(context, Request::Link { node, dir, name }, entry)
    }

    fn unlink(&self, context: &Context, at: At) -> Pending<Removed> {
        let At { dir, name } = at;
        self.ask(context, Request::Unlink { dir, name }, removed)
    }

    fn remove_dir(&self, context: &Context, at: At) -> Pending<Removed> {
        let At { dir, name } = at;
        self.ask(context, Request::RemoveDir { dir, name }, removed)
    }

    fn rename(&self, context: &Context, from: At, to: At, flags: RenameFlags) -> Pending<Renamed> {
        let request = Request::Rename {
            from_dir: from.dir,
            from: from.name,
            to_dir: to.dir,
            to: to.name,
            flags,
        };
        self.ask(context, request, |reply| match reply {
            Reply::Renamed { moved, replaced } => Some(Renamed { moved, replaced }),
            _ => None,
        })
    }

    fn open(&self, context: &Context, node: Handle, flags: OpenFlags) -> Pending<Opened> {
        self.ask(context, Request::Open { node, flags }, |reply| match reply {
            Reply::Opened { open, attr, path } => Some(Opened { open, attr, path }),
            _ => None,
        })
    }

    fn flush(&self, context: &Context, open: OpenId) -> Pending<()> {
        self.ask(context, Request::Flush { open }, done)
    }

    fn release(&self, context: &Context, open: OpenId) -> Pending<()> {
        self.ask(context, Request::Release { open }, done)
    }

    fn fsync(&self, context: &Context, open: OpenId, data_only: bool) -> Pending<()> {
        self.ask(context, Request::Fsync { open, data_only }, done)
    }

    fn fsync_dir(&self, context: &Context, dir: Handle, since: Option<u64>) -> Pending<()> {
        self.ask(context, Request::FsyncDir { dir, since }, done)
    }

    fn losses(&self) -> u64 {
        self.service.losses()
    }

    fn read(&self, context: &Context, open: OpenId, offset: u64, size: u32) -> Pending<Buffer> {
        self.ask(context, Request::Read { open, offset, size }, |reply| match reply {
            Reply::Data(buffer) => Some(buffer),
            _ => None,
        })
    }

    fn write(
        &self,
        context: &Context,
        to: FilePos,
        bytes: &[u8],
        kill_privileges: bool,
    ) -> Pending<Written> {
        let request = Request::Write { open: to.open, offset: to.offset, kill_privileges };
        self.ask_with(context, request, Bulk::Borrowed(bytes), written)
    }

    fn list(
        &self,
        context: &Context,
        dir: Handle,
        after: Cookie,
        behind: Option<Name>,
        entries: u32,
        attributes: bool,
    ) -> Pending<Listing> {
        let request = Request::List { dir, after, behind, entries, attributes };
        self.ask(context, request, |reply| match reply {
            Reply::Listed { entries, end } => Some(Listing { entries, end }),
            _ => None,
        })
    }

    fn get_xattr(&self, context: &Context, node: Handle, name: Vec<u8>) -> Pending<Vec<u8>> {
        self.ask(context, Request::GetXattr { node, name }, bytes)
    }

    fn list_xattr(&self, context: &Context, node: Handle) -> Pending<Vec<u8>> {
        self.ask(context, Request::ListXattr { node }, bytes)
    }

    fn set_xattr(
        &self,
        context: &Context,
        node: Handle,
        xattr: Xattr,
        flags: XattrFlags,
    ) -> Pending<()> {
        let Xattr { name, value, kill_setgid } = xattr;
        self.ask(context, Request::SetXattr { node, name, value, flags, kill_setgid }, done)
    }

    fn remove_xattr(&self, context: &Context, node: Handle, name: Vec<u8>) -> Pending<()> {
        self.ask(context, Request::RemoveXattr { node, name }, done)
    }

    fn stat_fs(&self, context: &Context) -> Pending<VolumeStats> {
        self.ask(context, Request::StatFs, |reply| match reply {
            Reply::Volume(stats) => Some(stats),
            _ => None,
        })
    }

    fn allocate(
        &self,
        context: &Context,
        open: OpenId,
        range: ByteRange,
        mode: AllocateMode,
    ) -> Pending<()> {
        let ByteRange { offset, length } = range;
        self.ask(context, Request::Allocate { open, offset, length, mode }, done)
    }

    fn seek(&self, context: &Context, open: OpenId, from: SeekFrom) -> Pending<u64> {
        self.ask(context, Request::Seek { open, from }, |reply| match reply {
            Reply::Offset(offset) => Some(offset),
            _ => None,
        })
    }

    fn copy_range(
        &self,
        context: &Context,
        from: FilePos,
        to: FilePos,
        length: u64,
    ) -> Pending<Written> {
        let request = Request::CopyRange {
            from: from.open,
            from_offset: from.offset,
            to: to.open,
            to_offset: to.offset,
            length,
        };
        self.ask(context, request, written)
    }
}

fn entry(reply: Reply) -> Option<Entry> {
    match reply {
        Reply::Entry(entry) => Some(entry),
        _ => None,
    }
}

fn created(reply: Reply) -> Option<Created> {
    match reply {
        Reply::Created { entry, open, path } => Some(Created { entry, open, path }),
        _ => None,
    }
}

fn attr(reply: Reply) -> Option<Attr> {
    match reply {
        Reply::Attr(attr) => Some(attr),
        _ => None,
    }
}

fn bytes(reply: Reply) -> Option<Vec<u8>> {
    match reply {
        Reply::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

fn removed(reply: Reply) -> Option<Removed> {
    match reply {
        Reply::Removed(attr) => Some(Removed { attr }),
        _ => None,
    }
}

fn written(reply: Reply) -> Option<Written> {
    match reply {
        Reply::Written { bytes, size } => Some(Written { bytes, size }),
        _ => None,
    }
}

fn done(reply: Reply) -> Option<()> {
    matches!(reply, Reply::Done).then_some(())
}
