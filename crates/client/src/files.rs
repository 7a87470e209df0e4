//! The file system as programs use it: one method for each request of a program.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pelago_wire::{
    AllocateMode, Attr, Buffer, Bulk, Code, Context, Cookie, Done, Entry, Error, FileLock, Handle,
    InodeId, Level, LockOwner, Name, NewMode, OpenFlags, OpenId, RenameFlags, Reply, Request,
    Search, SearchPage, SeekFrom, Service, SetAttr, TagPage, Tags, VolumeStats, WriteFlags,
    XattrFlags,
};

use crate::pending::Pending;
use crate::values::{
    At, ByteRange, Created, CreatedWithCredential, FilePos, Listing, NewNode, Opened, Removed,
    Renamed, Written, Xattr,
};

/// The files of one server, reached by direct calls or over the transport of its [`Service`].
///
/// Each method is the request of [`pelago_wire::Request`] with its name, whose documentation says
/// what the fields mean and which errors to expect.
///
/// A method returns soon. If an operation must wait for a disk or for other clients, another thread
/// completes it later, and bytes that were borrowed for the call are copied.
#[derive(Clone)]
pub struct Files {
    service: Arc<dyn Service>,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Files")
    }
}

impl Files {
    /// Returns the files of `service`.
    #[must_use]
    pub fn new(service: Arc<dyn Service>) -> Self {
        Self { service }
    }

    /// Returns the file that a name refers to.
    pub fn lookup(&self, context: &Context, at: At) -> Pending<Entry> {
        let At { dir, name } = at;
        self.ask(context, Request::Lookup { dir, name }, entry)
    }

    /// Returns the parent of a directory; that of the root is the root.
    pub fn parent(&self, context: &Context, dir: Handle) -> Pending<Entry> {
        self.ask(context, Request::Parent { dir }, entry)
    }

    /// Returns the file with this inode id; that may scan all names.
    pub fn find(&self, context: &Context, ino: InodeId) -> Pending<Entry> {
        self.ask(context, Request::Find { ino }, entry)
    }

    /// Returns a page of the files in a directory and below it that a query finds.
    pub fn search(&self, context: &Context, dir: Handle, search: Search) -> Pending<SearchPage> {
        self.ask(context, Request::Search { dir, search }, found)
    }

    /// Returns keys of tags, or values of one key, that files in a directory and below it have.
    pub fn tags(&self, context: &Context, dir: Handle, tags: Tags) -> Pending<TagPage> {
        self.ask(context, Request::Tags { dir, tags }, tagged)
    }

    /// Returns attributes.
    pub fn get_attr(&self, context: &Context, node: Handle) -> Pending<Attr> {
        self.ask(context, Request::GetAttr { node }, attr)
    }

    /// Changes attributes; `open` is the open through which the program did it, if any.
    pub fn set_attr(
        &self,
        context: &Context,
        node: Handle,
        open: Option<OpenId>,
        set: SetAttr,
    ) -> Pending<Attr> {
        self.ask(context, Request::SetAttr { node, open, set }, attr)
    }

    /// Creates a regular file and opens it.
    pub fn create(
        &self,
        context: &Context,
        at: At,
        mode: NewMode,
        flags: OpenFlags,
    ) -> Pending<Created> {
        let At { dir, name } = at;
        self.open_new(context, |open| Request::Create { dir, name, mode, flags, open })
    }

    /// As [`Files::create`], with a credential for the file: the texts of a chain by which this
    /// guest has all rights to it, from that of a root on.
    pub fn create_with_credential(
        &self,
        context: &Context,
        at: At,
        mode: NewMode,
        flags: OpenFlags,
    ) -> Pending<CreatedWithCredential> {
        let (completer, pending) = Pending::later();
        let files = self.clone();
        let context = *context;
        self.create(&context, at, mode, flags).then(move |created| match created {
            Err(error) => completer.complete(Err(error)),
            Ok(created) => {
                let issued = files.issue(&context, created.entry.handle);
                issued.then(move |credential| {
                    completer.complete(Ok(CreatedWithCredential { created, credential }));
                });
            }
        });
        pending.settle()
    }

    /// Returns the texts of a chain by which this guest has all rights to a file or directory that
    /// it has made in this session, from that of a root on.
    pub fn issue(&self, context: &Context, node: Handle) -> Pending<Vec<Vec<u8>>> {
        self.ask(context, Request::Issue { node }, issued)
    }

    /// Creates an unnamed regular file that inherits from `dir`, and opens it.
    pub fn create_unnamed(
        &self,
        context: &Context,
        dir: Handle,
        mode: NewMode,
        flags: OpenFlags,
    ) -> Pending<Created> {
        self.open_new(context, |open| Request::CreateUnnamed { dir, mode, flags, open })
    }

    /// Makes a directory.
    pub fn make_dir(&self, context: &Context, at: At, mode: NewMode) -> Pending<Entry> {
        let At { dir, name } = at;
        self.ask(context, Request::MakeDir { dir, name, mode }, entry)
    }

    /// Makes a file of any kind except directory and symbolic link, without opening it.
    pub fn make_node(&self, context: &Context, at: At, node: NewNode) -> Pending<Entry> {
        let At { dir, name } = at;
        let NewNode { kind, mode, rdev } = node;
        self.ask(context, Request::MakeNode { dir, name, kind, mode, rdev }, entry)
    }

    /// Makes a symbolic link to `target`: 1 to 4095 bytes without NUL.
    pub fn symlink(&self, context: &Context, at: At, target: Vec<u8>) -> Pending<Entry> {
        let At { dir, name } = at;
        self.ask(context, Request::Symlink { dir, name, target }, entry)
    }

    /// Returns the target of a symbolic link.
    pub fn read_link(&self, context: &Context, node: Handle) -> Pending<Vec<u8>> {
        self.ask(context, Request::ReadLink { node }, bytes)
    }

    /// Adds a name to a file.
    pub fn link(&self, context: &Context, node: Handle, at: At) -> Pending<Entry> {
        let At { dir, name } = at;
        self.ask(context, Request::Link { node, dir, name }, entry)
    }

    /// Removes a name of a file that is not a directory.
    pub fn unlink(&self, context: &Context, at: At) -> Pending<Removed> {
        let At { dir, name } = at;
        self.ask(context, Request::Unlink { dir, name }, removed)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, context: &Context, at: At) -> Pending<Removed> {
        let At { dir, name } = at;
        self.ask(context, Request::RemoveDir { dir, name }, removed)
    }

    /// Renames a file.
    pub fn rename(
        &self,
        context: &Context,
        from: At,
        to: At,
        flags: RenameFlags,
    ) -> Pending<Renamed> {
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

    /// Opens a regular file.
    pub fn open(&self, context: &Context, node: Handle, flags: OpenFlags) -> Pending<Opened> {
        let open = next_open();
        self.ask_with(context, Request::Open { node, flags, open }, Bulk::None, move |reply| {
            match reply {
                Reply::Opened { attr, path } => Some(Opened { open, attr, path }),
                _ => None,
            }
        })
    }

    /// Commits written bytes after a descriptor was closed, and ends the `fcntl` locks of `owner`,
    /// the process that closed it.
    pub fn flush(&self, context: &Context, open: OpenId, owner: Option<LockOwner>) -> Pending<()> {
        self.ask(context, Request::Flush { open, owner }, done)
    }

    /// Releases an open after its last descriptor was closed.
    pub fn release(&self, context: &Context, open: OpenId) -> Pending<()> {
        self.ask(context, Request::Release { open }, done)
    }

    /// Returns the first lock that keeps `owner` from setting a lock; `None` if it could be set.
    pub fn get_lock(
        &self,
        context: &Context,
        open: OpenId,
        owner: LockOwner,
        lock: FileLock,
    ) -> Pending<Option<FileLock>> {
        self.ask(context, Request::GetLock { open, owner, lock }, |reply| match reply {
            Reply::Lock(lock) => Some(lock),
            _ => None,
        })
    }

    /// Sets or removes a lock. With `wait` the result comes once the lock is free; then
    /// [`Files::cancel`] ends the wait, by the number of the request in `context`.
    pub fn set_lock(
        &self,
        context: &Context,
        open: OpenId,
        owner: LockOwner,
        lock: FileLock,
        wait: bool,
    ) -> Pending<()> {
        self.ask(context, Request::SetLock { open, owner, lock, wait }, done)
    }

    /// Asks the server to end the request with the session and the number of `context` soon. The
    /// request still gets its result: `Interrupted`, or the result of what it has done.
    pub fn cancel(&self, context: &Context) {
        self.service.cancel(context);
    }

    /// Reports that the caller of the request with the session and the number of `context` was
    /// killed. If the request was not begun, it may fail with `Interrupted`; else it goes on.
    pub fn forsake(&self, context: &Context) {
        self.service.forsake(context);
    }

    /// Reports that the kernel has forgotten a file that has lost its last name.
    pub fn forgotten(&self, removed: InodeId) {
        self.service.forgotten(removed);
    }

    /// Returns for how long the server has sent nothing, although it should have; `None` if it is
    /// in this process.
    #[must_use]
    pub fn silence(&self) -> Option<Duration> {
        self.service.silence()
    }

    /// Makes written bytes safe; `data_only` may leave out times (`fdatasync`).
    pub fn fsync(&self, context: &Context, open: OpenId, data_only: bool) -> Pending<()> {
        self.ask(context, Request::Fsync { open, data_only }, done)
    }

    /// Makes written bytes and attributes safe at a level, whatever the level of the file is: a
    /// program knows best which of its files must outlive the office. Fails with `NotSupported` if
    /// the volume has no mirror or relay for that level, or the bytes of the file are at another
    /// office than its home and the level is later than [`Level::Local`]. A mirror that is cut off
    /// counts as for [`Files::fsync`].
    pub fn fsync_at(&self, context: &Context, open: OpenId, level: Level) -> Pending<()> {
        self.ask(context, Request::FsyncAt { open, level }, done)
    }

    /// Makes the changes of a directory safe. Fails with `Io` if acknowledged changes were lost:
    /// once for each descriptor if `since` is the number of losses that were reported through it
    /// before ([`Files::losses`]), else once.
    pub fn fsync_dir(&self, context: &Context, dir: Handle, since: Option<u64>) -> Pending<()> {
        self.ask(context, Request::FsyncDir { dir, since }, done)
    }

    /// Returns how often acknowledged changes were lost before they were safe.
    pub fn losses(&self) -> u64 {
        self.service.losses()
    }

    /// Reads `size` bytes from `offset`; fewer only at the end of the file.
    pub fn read(&self, context: &Context, open: OpenId, offset: u64, size: u32) -> Pending<Buffer> {
        self.ask(context, Request::Read { open, offset, size }, data)
    }

    /// Reads as [`Files::read`] does, into `room` if the server can: then [`Buffer::room_bytes`] is
    /// set.
    pub fn read_into(
        &self,
        context: &Context,
        FilePos { open, offset }: FilePos,
        size: u32,
        room: &mut [u8],
    ) -> Pending<Buffer> {
        self.ask_with(context, Request::Read { open, offset, size }, Bulk::Room(room), data)
    }

    /// Writes bytes.
    pub fn write(
        &self,
        context: &Context,
        to: FilePos,
        bytes: &[u8],
        flags: WriteFlags,
    ) -> Pending<Written> {
        let FilePos { open, offset } = to;
        let request = Request::Write { open, offset, flags };
        self.ask_with(context, request, Bulk::Borrowed(bytes), written)
    }

    /// Lists up to `entries` names after the cookie `after`, with attributes if `attributes` is
    /// set. If `after` is a ranked cookie, the listing continues after the name `behind`, if that
    /// is given.
    pub fn list(
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

    /// Returns the value of an extended attribute; `name` has its prefix.
    pub fn get_xattr(&self, context: &Context, node: Handle, name: Vec<u8>) -> Pending<Vec<u8>> {
        self.ask(context, Request::GetXattr { node, name }, bytes)
    }

    /// Returns the names of all extended attributes, each followed by a NUL.
    pub fn list_xattr(&self, context: &Context, node: Handle) -> Pending<Vec<u8>> {
        self.ask(context, Request::ListXattr { node }, bytes)
    }

    /// Sets an extended attribute.
    pub fn set_xattr(
        &self,
        context: &Context,
        node: Handle,
        xattr: Xattr,
        flags: XattrFlags,
    ) -> Pending<()> {
        let Xattr { name, value, kill_setgid } = xattr;
        self.ask(context, Request::SetXattr { node, name, value, flags, kill_setgid }, done)
    }

    /// Removes an extended attribute; `name` has its prefix.
    pub fn remove_xattr(&self, context: &Context, node: Handle, name: Vec<u8>) -> Pending<()> {
        self.ask(context, Request::RemoveXattr { node, name }, done)
    }

    /// Returns space and counts of the volume.
    pub fn stat_fs(&self, context: &Context) -> Pending<VolumeStats> {
        self.ask(context, Request::StatFs, |reply| match reply {
            Reply::Volume(stats) => Some(stats),
            _ => None,
        })
    }

    /// Reserves or frees a range of an open file.
    pub fn allocate(
        &self,
        context: &Context,
        open: OpenId,
        range: ByteRange,
        mode: AllocateMode,
    ) -> Pending<()> {
        let ByteRange { offset, length } = range;
        self.ask(context, Request::Allocate { open, offset, length, mode }, done)
    }

    /// Returns the offset of the next data or hole.
    pub fn seek(&self, context: &Context, open: OpenId, from: SeekFrom) -> Pending<u64> {
        self.ask(context, Request::Seek { open, from }, |reply| match reply {
            Reply::Offset(offset) => Some(offset),
            _ => None,
        })
    }

    /// Copies up to `length` bytes within the server.
    pub fn copy_range(
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

    /// Creates a file and opens it under a new number.
    fn open_new(
        &self,
        context: &Context,
        request: impl FnOnce(OpenId) -> Request,
    ) -> Pending<Created> {
        let open = next_open();
        self.ask_with(context, request(open), Bulk::None, move |reply| match reply {
            Reply::Created { entry, path } => Some(Created { entry, open, path }),
            _ => None,
        })
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
        pick: impl Fn(Reply) -> Option<T> + Copy + Send + 'static,
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

/// Returns a number for an open. One counter serves the process: several [`Files`] may share a
/// session.
fn next_open() -> OpenId {
    static LAST: AtomicU64 = AtomicU64::new(0);
    OpenId(LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

fn data(reply: Reply) -> Option<Buffer> {
    match reply {
        Reply::Data(buffer) => Some(buffer),
        _ => None,
    }
}

fn entry(reply: Reply) -> Option<Entry> {
    match reply {
        Reply::Entry(entry) => Some(entry),
        _ => None,
    }
}

fn attr(reply: Reply) -> Option<Attr> {
    match reply {
        Reply::Attr(attr) => Some(attr),
        _ => None,
    }
}

fn found(reply: Reply) -> Option<SearchPage> {
    match reply {
        Reply::Found(page) => Some(page),
        _ => None,
    }
}

fn tagged(reply: Reply) -> Option<TagPage> {
    match reply {
        Reply::Tagged(page) => Some(page),
        _ => None,
    }
}

fn issued(reply: Reply) -> Option<Vec<Vec<u8>>> {
    match reply {
        Reply::Issued(chain) => Some(chain),
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

#[cfg(test)]
mod tests;
