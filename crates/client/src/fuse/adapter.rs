//! Each request of the kernel as a call of `Files`.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, INodeNo, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use pelago_wire::{Code, Context, Error, OpenId, SeekFrom, SetAttr, limits};

use super::caller::Caller;
use super::gone::Gone;
use super::init::{TTL, negotiate, negotiate_passthrough};
use super::listing::{Reading, Sink};
use super::opening::{AtCreate, AtOpen, Opening};
use super::opens::Way;
use super::passthrough::NoPassthrough;
use super::rename::Renaming;
use super::state::{GENERATION, State, Wishes};
use super::{attr, flags};
use crate::files::{ByteRange, Files, NewNode, Spot, Written, Xattr};

/// Whoever sets it may not be let keep the setgid bit.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// `Files` as `fuser` wants to see them.
pub struct Adapter(Arc<State>);

impl Adapter {
    /// An adapter over these files.
    #[must_use]
    pub fn new(files: Arc<dyn Files>, wishes: Wishes) -> Self {
        Self(Arc::new(State::new(files, wishes)))
    }

    /// What requests share; whoever mounts it adds what is known only then.
    pub(crate) fn state(&self) -> &Arc<State> {
        &self.0
    }

    fn wanted(&self, request: &Request, mode: i32) -> pelago_wire::OpenFlags {
        let wanted = flags::open(mode, Caller::of(request).is_privileged());
        let passthrough = self.0.passthrough.is_on();
        let no_atime = wanted.no_atime || self.0.wishes.no_atime;
        pelago_wire::OpenFlags { no_atime, passthrough, ..wanted }
    }

    fn read_dir(&self, request: &Request, dir: INodeNo, at: (FileHandle, u64), sink: Sink) {
        let state = &self.0;
        let (handle, offset) = at;
        let Some(stream) = state.streams.get(handle) else {
            return sink.error(Code::BadOpen.into());
        };
        let reading = Reading {
            state: Arc::clone(state),
            stream,
            context: context(request),
            dir: state.handle(dir),
            sink,
            asked: state.writers.moment(),
        };
        reading.start(offset);
    }
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Adapter")
    }
}

fn context(request: &Request) -> Context {
    Caller::of(request).context()
}

fn done(result: Result<(), Error>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(attr::error(error)),
    }
}

fn written(result: Result<Written, Error>, reply: ReplyWrite) {
    match result {
        Ok(written) => reply.written(u32::try_from(written.bytes).unwrap_or(u32::MAX)),
        Err(error) => reply.error(attr::error(error)),
    }
}

fn bytes(result: Result<Vec<u8>, Error>, reply: ReplyData) {
    match result {
        Ok(bytes) => reply.data(&bytes),
        Err(error) => reply.error(attr::error(error)),
    }
}

/// The value of an extended attribute, or its size where that is all that was asked.
fn sized(result: Result<Vec<u8>, Error>, size: u32, reply: ReplyXattr) {
    match result {
        Ok(bytes) => match u32::try_from(bytes.len()) {
            Ok(length) if size == 0 => reply.size(length),
            Ok(length) if length <= size => reply.data(&bytes),
            _ => reply.error(Errno::ERANGE),
        },
        Err(error) => reply.error(attr::error(error)),
    }
}

/// Takes the value of a result, or replies with its error and leaves.
macro_rules! take {
    ($result:expr, $reply:ident) => {
        match $result {
            Ok(value) => value,
            Err(error) => return $reply.error(error),
        }
    };
}

impl Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        negotiate(config);
        if self.0.wishes.passthrough && !negotiate_passthrough(config) {
            self.0.passthrough.refuse(NoPassthrough::NotInKernel);
        }
        Ok(())
    }

    fn destroy(&mut self) {
        for open in self.0.opens.take() {
            let context = Context::direct(0, 0);
            if let Err(error) = self.0.files.release(&context, open).wait() {
                tracing::warn!(%error, "a file that was open when the mount ended");
            }
        }
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let place = take!(self.0.place(parent, name), reply);
        let asked = self.0.writers.moment();
        let state = Arc::clone(&self.0);
        self.0.files.lookup(&context(request), place).then(move |found| match found {
            Err(error) if error.code == Code::NotFound => {
                reply.entry_with_ttls(&Duration::ZERO, &TTL, &attr::bare(0), GENERATION);
            }
            found => state.reply_entry(asked, found, reply),
        });
    }

    fn forget(&self, _request: &Request, node: INodeNo, count: u64) {
        if self.0.inodes.forget(attr::ino(node), count) {
            self.0.streams.listed.forgot();
        }
        self.0.backings.forget(attr::ino(node));
        self.0.let_go(self.0.gone.forget(attr::ino(node)));
    }

    fn getattr(
        &self,
        request: &Request,
        node: INodeNo,
        _open: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let asked = self.0.writers.moment();
        let state = Arc::clone(&self.0);
        let handle = state.handle(node);
        self.0.files.get_attr(&context(request), handle).then(move |result| {
            let result = state.or_gone(attr::ino(node), result, |gone, ino| gone.attr(ino));
            let file = take!(result.map_err(attr::error), reply);
            reply.attr(&state.writers.ttl(&file, asked), &attr::attr(&file));
        });
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        open: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let caller = Caller::of(request);
        let set = SetAttr {
            mode: mode.map(flags::permissions),
            uid,
            gid,
            size,
            atime: atime.map(attr::set_time),
            mtime: mtime.map(attr::set_time),
            ctime: ctime.map(attr::time),
            kill_privileges: size.is_some() && !caller.is_privileged(),
            kill_setgid: false,
        };
        // `chown` takes setuid and setgid bits away even where it names neither owner nor group; no
        // other call asks for nothing.
        let chown = uid.is_some() || gid.is_some() || set.is_empty();
        let set = SetAttr { kill_privileges: set.kill_privileges || chown, ..set };
        let asked = self.0.writers.moment();
        let state = Arc::clone(&self.0);
        let handle = state.handle(node);
        let open = open.map(|open| OpenId(open.0));
        let go = move |kill_setgid| {
            let set = SetAttr { kill_setgid, ..set };
            let answer = state.files.set_attr(&caller.context(), handle, open, set);
            answer.then(move |result| {
                let change = |gone: &Gone, ino| gone.change(ino, &set);
                let result = state.or_gone(attr::ino(node), result, change);
                let file = take!(result.map_err(attr::error), reply);
                reply.attr(&state.writers.ttl(&file, asked), &attr::attr(&file));
            });
        };
        if set.kill_privileges { caller.kills_setgid(&self.0, node, go) } else { go(false) }
    }

    fn readlink(&self, request: &Request, node: INodeNo, reply: ReplyData) {
        let handle = self.0.handle(node);
        let state = Arc::clone(&self.0);
        let answer = self.0.files.read_link(&context(request), handle);
        answer.then(move |result| {
            let result = state.or_gone(attr::ino(node), result, |gone, ino| gone.target(ino));
            bytes(result, reply);
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let place = take!(self.0.place(parent, name), reply);
        let kind = take!(flags::kind(mode).map_err(|code| attr::error(code.into())), reply);
        let node = NewNode { kind, mode: flags::new_mode(mode, umask), rdev };
        let asked = self.0.writers.moment();
        let state = Arc::clone(&self.0);
        let answer = self.0.files.make_node(&context(request), place, node);
        answer.then(move |made| state.reply_entry(asked, made, reply));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let place = take!(self.0.place(parent, name), reply);
        let mode = flags::new_mode(mode, umask);
        let asked = self.0.writers.moment();
        let state = Arc::clone(&self.0);
        let answer = self.0.files.make_dir(&context(request), place, mode);
        answer.then(move |made| state.reply_entry(asked, made, reply));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let place = take!(self.0.place(parent, name), reply);
        let state = Arc::clone(&self.0);
        let answer = self.0.files.unlink(&context(request), place);
        answer
            .then(move |removed| done(removed.map(|removed| state.gone.add(removed.attr)), reply));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let place = take!(self.0.place(parent, name), reply);
        let state = Arc::clone(&self.0);
        let answer = self.0.files.remove_dir(&context(request), place);
        answer
            .then(move |removed| done(removed.map(|removed| state.gone.add(removed.attr)), reply));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let place = take!(self.0.place(parent, name), reply);
        let target = target.as_os_str().as_bytes().to_vec();
        let asked = self.0.writers.moment();
        let state = Arc::clone(&self.0);
        let answer = self.0.files.symlink(&context(request), place, target);
        answer.then(move |made| state.reply_entry(asked, made, reply));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        to_parent: INodeNo,
        to_name: &OsStr,
        how: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let from = take!(self.0.place(parent, name), reply);
        let to = take!(self.0.place(to_parent, to_name), reply);
        let how = take!(flags::rename(how).map_err(|code| attr::error(code.into())), reply);
        let (state, context) = (Arc::clone(&self.0), context(request));
        Renaming { state, context, from, to, how, reply }.start();
    }

    fn link(
        &self,
        request: &Request,
        node: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let place = take!(self.0.place(parent, name), reply);
        let asked = self.0.writers.moment();
        let state = Arc::clone(&self.0);
        let answer = self.0.files.link(&context(request), state.handle(node), place);
        answer.then(move |made| state.reply_entry(asked, made, reply));
    }

    fn open(&self, request: &Request, node: INodeNo, mode: OpenFlags, reply: ReplyOpen) {
        let wanted = self.wanted(request, mode.0);
        let context = context(request);
        let handle = self.0.handle(node);
        let opening = Opening { state: Arc::clone(&self.0), context, wanted, door: AtOpen(reply) };
        let answer = self.0.files.open(&context, handle, wanted);
        answer.then(move |opened| opening.opened(handle, opened));
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        open_mode: i32,
        reply: ReplyCreate,
    ) {
        let place = take!(self.0.place(parent, name), reply);
        let wanted = self.wanted(request, open_mode);
        let mode = flags::new_mode(mode, umask);
        let context = context(request);
        let door = AtCreate(reply);
        let opening = Opening { state: Arc::clone(&self.0), context, wanted, door };
        let answer = self.0.files.create(&context, place.clone(), mode, wanted);
        answer.then(move |created| match created {
            Ok(created) => opening.created(created),
            Err(error) if error.code == Code::Exists && !flags::is_exclusive(open_mode) => {
                opening.open_existing(place);
            }
            Err(error) => opening.door.0.error(attr::error(error)),
        });
    }

    fn read(
        &self,
        request: &Request,
        _node: INodeNo,
        open: FileHandle,
        offset: u64,
        size: u32,
        _mode: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let answer = self.0.files.read(&context(request), OpenId(open.0), offset, size);
        answer.then(move |result| match result {
            Ok(buffer) => reply.data(buffer.as_bytes()),
            Err(error) => reply.error(attr::error(error)),
        });
    }

    fn write(
        &self,
        request: &Request,
        _node: INodeNo,
        open: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _mode: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let kill = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let to = Spot { open: OpenId(open.0), offset };
        let answer = self.0.files.write(&context(request), to, data, kill);
        answer.then(move |result| written(result, reply));
    }

    fn flush(
        &self,
        request: &Request,
        _node: INodeNo,
        open: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let answer = self.0.files.flush(&context(request), OpenId(open.0));
        answer.then(move |result| done(result, reply));
    }

    fn release(
        &self,
        request: &Request,
        node: INodeNo,
        open: FileHandle,
        mode: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let write = flags::open(mode.0, true).write;
        let state = Arc::clone(&self.0);
        // The kernel has let go of its descriptor before it sent this, and ours goes before the
        // server looks whether anybody has the file.
        if state.opens.remove(OpenId(open.0)) == Some(Way::Passthrough) {
            state.backings.give_back(attr::ino(node));
        }
        let answer = self.0.files.release(&context(request), OpenId(open.0));
        answer.then(move |result| {
            if write {
                state.writers.remove(attr::ino(node));
            }
            done(result, reply);
        });
    }

    fn fsync(
        &self,
        request: &Request,
        _node: INodeNo,
        open: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let answer = self.0.files.fsync(&context(request), OpenId(open.0), data_only);
        answer.then(move |result| done(result, reply));
    }

    fn opendir(&self, _request: &Request, node: INodeNo, _mode: OpenFlags, reply: ReplyOpen) {
        let (handle, flags) = self.0.streams.open(attr::ino(node));
        reply.opened(handle, flags);
    }

    fn readdir(
        &self,
        request: &Request,
        node: INodeNo,
        stream: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.read_dir(request, node, (stream, offset), Sink::Names(reply));
    }

    fn readdirplus(
        &self,
        request: &Request,
        node: INodeNo,
        stream: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.read_dir(request, node, (stream, offset), Sink::Entries(reply));
    }

    fn releasedir(
        &self,
        _request: &Request,
        _node: INodeNo,
        stream: FileHandle,
        _mode: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.0.streams.close(stream);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        request: &Request,
        node: INodeNo,
        _stream: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        let state = Arc::clone(&self.0);
        let answer = self.0.files.fsync_dir(&context(request), self.0.handle(node));
        answer.then(move |result| {
            let none = |gone: &Gone, ino| gone.attr(ino).map(|_| ());
            done(state.or_gone(attr::ino(node), result, none), reply);
        });
    }

    fn statfs(&self, request: &Request, _node: INodeNo, reply: ReplyStatfs) {
        let name_bytes = u32::try_from(limits::NAME_BYTES).unwrap_or(u32::MAX);
        self.0.files.stat_fs(&context(request)).then(move |result| {
            let stats = take!(result.map_err(attr::error), reply);
            reply.statfs(
                stats.blocks,
                stats.free,
                stats.available,
                stats.files,
                stats.free_files,
                stats.block_bytes,
                name_bytes,
                stats.block_bytes,
            );
        });
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        how: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let how = take!(flags::xattr(how).map_err(|code| attr::error(code.into())), reply);
        let (name, value) = (name.as_bytes().to_vec(), value.to_vec());
        let (state, caller) = (Arc::clone(&self.0), Caller::of(request));
        let is_access_list = name == ACCESS_LIST;
        let go = move |kill_setgid| {
            let xattr = Xattr { name, value, kill_setgid };
            let answer = state.files.set_xattr(&caller.context(), state.handle(node), xattr, how);
            answer.then(move |result| {
                done(result.map_err(|error| state.lost(node, error, Code::NotFound)), reply);
            });
        };
        if is_access_list { caller.kills_setgid(&self.0, node, go) } else { go(false) }
    }

    fn getxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let name = name.as_bytes().to_vec();
        let answer = self.0.files.get_xattr(&context(request), self.0.handle(node), name);
        let state = Arc::clone(&self.0);
        answer.then(move |result| {
            let result = result.map_err(|error| state.lost(node, error, Code::NoXattr));
            sized(result, size, reply);
        });
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let state = Arc::clone(&self.0);
        let answer = self.0.files.list_xattr(&context(request), self.0.handle(node));
        answer.then(move |result| {
            let none = |gone: &Gone, ino| gone.attr(ino).map(|_| Vec::new());
            sized(state.or_gone(attr::ino(node), result, none), size, reply);
        });
    }

    fn removexattr(&self, request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        let answer = self.0.files.remove_xattr(&context(request), self.0.handle(node), name);
        let state = Arc::clone(&self.0);
        answer.then(move |result| {
            done(result.map_err(|error| state.lost(node, error, Code::NoXattr)), reply);
        });
    }

    fn fallocate(
        &self,
        request: &Request,
        _node: INodeNo,
        open: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = take!(flags::allocate(mode).map_err(|code| attr::error(code.into())), reply);
        let range = ByteRange { offset, length };
        let answer = self.0.files.allocate(&context(request), OpenId(open.0), range, mode);
        answer.then(move |result| done(result, reply));
    }

    fn lseek(
        &self,
        request: &Request,
        _node: INodeNo,
        open: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let whence = take!(flags::whence(whence).map_err(|code| attr::error(code.into())), reply);
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let from = SeekFrom { offset, whence };
        let answer = self.0.files.seek(&context(request), OpenId(open.0), from);
        answer.then(move |result| match result {
            Ok(offset) => match i64::try_from(offset) {
                Ok(offset) => reply.offset(offset),
                Err(_) => reply.error(Errno::EOVERFLOW),
            },
            // The kernel then stops asking and answers itself: data all the way to the end.
            Err(error) if error.code == Code::NotSupported => reply.error(Errno::ENOSYS),
            Err(error) => reply.error(attr::error(error)),
        });
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _from: INodeNo,
        from_open: FileHandle,
        from_offset: u64,
        _to: INodeNo,
        to_open: FileHandle,
        to_offset: u64,
        length: u64,
        how: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        if !how.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let from = Spot { open: OpenId(from_open.0), offset: from_offset };
        let to = Spot { open: OpenId(to_open.0), offset: to_offset };
        // The reply has 32 bits for the count.
        let length = length.min(u64::from(u32::MAX));
        let answer = self.0.files.copy_range(&context(request), from, to, length);
        answer.then(move |result| written(result, reply));
    }
}
