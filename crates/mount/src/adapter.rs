//! The adapter between the kernel and `Files`: each request becomes one call, its result the reply.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use pelago_client::{Files, NewNode};
use pelago_fuse::ids::{FileId, NodeId};
use pelago_fuse::listing::Listing;
use pelago_fuse::operation::{
    self, CopyFileRange, Create, Fallocate, FileLock, Flush, Fsync, Getlk, Link, Lseek, Mkdir,
    Mknod, Open, Read, Readdir, Release, Rename, Setlk, Setxattr, Symlink, Write,
};
use pelago_fuse::reply::{self, Attributes, Offset, Statfs, Statx};
use pelago_fuse::{Errno, Filesystem, Header, Reply};
use pelago_wire::{Attr, Code, Context, Error, Handle, OpenId, RequestId, SeekFrom, SetAttr};

use crate::begin_again::HeldLookup;
use crate::caller::Caller;
use crate::create::Creating;
use crate::find::HiddenName;
use crate::open::{CreateReply, OpenReply, Opening};
use crate::options::Atime;
use crate::readdir::{Reading, Sink};
use crate::rename::Renaming;
use crate::replies::{bytes, done};
use crate::retries::{LOOKUPS, Why};
use crate::state::{Preferences, State};
use crate::unlinked::Unlinked;
use crate::{attr, close, flags, range_ops, read, set_lock, write};

/// `Files` as a FUSE file system.
pub(crate) struct Adapter(Arc<State>);

impl Adapter {
    /// Returns an adapter over `files`.
    pub(crate) fn new(files: Files, preferences: Preferences) -> Self {
        Self(Arc::new(State::new(files, preferences)))
    }

    /// Returns the shared state, to which mounting adds what is known only then.
    pub(crate) const fn state(&self) -> &Arc<State> {
        &self.0
    }

    /// Replies to a LOOKUP of `.` or `..`: the kernel has got a file handle (NFS) of an inode that
    /// it has forgotten.
    fn lookup_by_ino(&self, header: &Header, name: &OsStr, reply: Reply<reply::Entry>) {
        let files = &self.0.files;
        let node = attr::ino(header.node);
        let sample = self.0.sample(node);
        let state = Arc::clone(&self.0);
        let answer = match name.as_bytes() {
            b"." => files.find(&self.0.context(header), node),
            b".." => files.parent(&self.0.context(header), Handle::own(node)),
            _ => return reply.error(Errno::INVAL),
        };
        answer.then(move |found| state.reply_entry(&sample, None, found, reply));
    }

    /// Reads attributes, and calls `then` with them once no cached page of the file is stale.
    fn attributes(
        &self,
        header: &Header,
        then: impl FnOnce(&State, Result<Attr, Error>) + Send + 'static,
    ) {
        let state = Arc::clone(&self.0);
        let node = attr::ino(header.node);
        let handle = state.handle(header.node);
        let question = state.ask_dir(node);
        let thread = header.pid;
        self.0.files.get_attr(&self.0.context(header), handle).then(move |result| {
            state.learn_dir(question, &result);
            let mut result = state.or_unlinked(node, result, |unlinked, ino| unlinked.attr(ino));
            state.looked(thread, &result);
            state.compare_pages(&mut result);
            if state.stale_pages.is_empty() {
                return then(&state, result);
            }
            let replies = Arc::clone(&state);
            state.stale_pages.when_clean(node, move || then(&replies, result));
        });
    }

    fn wanted(&self, mode: i32, kill_privileges: bool) -> pelago_wire::OpenFlags {
        let wanted = flags::open(mode, kill_privileges);
        let passthrough = self.0.passthrough.is_on();
        let no_atime = wanted.no_atime || self.0.preferences.atime == Atime::Never;
        let strict_atime = self.0.preferences.atime == Atime::Always;
        pelago_wire::OpenFlags { no_atime, strict_atime, passthrough, ..wanted }
    }
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Adapter")
    }
}

const fn open_id(file: FileId) -> OpenId {
    OpenId(file.0)
}

/// Unwraps a result, or replies with its error and returns.
macro_rules! take {
    ($result:expr, $reply:ident) => {
        match $result {
            Ok(value) => value,
            Err(error) => return $reply.error(error),
        }
    };
}

impl Filesystem for Adapter {
    fn lookup(&self, header: &Header, name: &OsStr, reply: Reply<reply::Entry>) {
        let at = match self.0.at(header.node, name) {
            Ok(at) => at,
            Err(Errno::INVAL) => return self.lookup_by_ino(header, name, reply),
            Err(error) => return reply.error(error),
        };
        let sample = self.0.sample_name(&at);
        let hidden = HiddenName::of(&at).map(|hidden| (hidden, header.uid));
        let state = Arc::clone(&self.0);
        let thread = header.pid;
        let context = self.0.context(header);
        state.end_old_retries();
        if state.retries.why(thread) == Some(Why::Gone) {
            let user = header.uid;
            let rounds = LOOKUPS;
            return HeldLookup { state, context, thread, user, at, sample, reply, rounds }.start();
        }
        let name = self.0.lifetimes.leased_name(&at);
        self.0.files.lookup(&context, at).then(move |found| match found {
            Err(error) if error.code == Code::NotFound => {
                state.retries.name_is_missing(thread);
                state.reply_absent(&sample, name.as_deref(), hidden, reply);
            }
            Ok(found) => state.reply_found(thread, &sample, name.as_deref(), found, reply),
            Err(error) => reply.error(attr::error(error)),
        });
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        if self.0.inodes.forget(attr::ino(node), lookups) {
            self.0.streams.dir_cache.inode_forgotten();
        }
        self.0.backings.forget(attr::ino(node));
        self.0.open_ids.forget(attr::ino(node));
        self.0.forget_pages(attr::ino(node));
        self.0.forget_unlinked(attr::ino(node));
        self.0.end_old_retries();
    }

    fn get_attr(&self, header: &Header, _file: Option<FileId>, reply: Reply<Attributes>) {
        let sample = self.0.sample(attr::ino(header.node));
        if let Some(known) = self.0.known_attr(header) {
            return self.0.reply_attr(&sample, Ok(known), reply);
        }
        self.attributes(header, move |state, result| state.reply_attr(&sample, result, reply));
    }

    fn statx(&self, header: &Header, reply: Reply<Statx>) {
        let sample = self.0.sample(attr::ino(header.node));
        if let Some(known) = self.0.known_attr(header) {
            return self.0.reply_statx(&sample, Ok(known), reply);
        }
        self.attributes(header, move |state, result| state.reply_statx(&sample, result, reply));
    }

    fn set_attr(&self, header: &Header, request: operation::SetAttr, reply: Reply<Attributes>) {
        let set = attr::changes(&request);
        // `chown` clears setuid and setgid bits even if it changes neither owner nor group. The
        // kernel also sends an empty change before a write by a process that may not keep them.
        let chown = set.uid.is_some() || set.gid.is_some() || set.is_empty();
        let set = SetAttr { kill_privileges: request.kill_privileges || chown, ..set };
        let state = Arc::clone(&self.0);
        let caller = Caller::of(header);
        let node = attr::ino(header.node);
        let context = state.context(header);
        let sample = state.sample(node);
        let handle = state.handle(header.node);
        let open = request.file.map(open_id);
        let thread = header.pid;
        self.0.open_ids.sets_attr(node, &set);
        self.0.entry_attrs.changes(node);
        let go = move |kill_setgid| {
            let set = SetAttr { kill_setgid, ..set };
            let answer = state.files.set_attr(&context, handle, open, set);
            answer.then(move |result| {
                state.changed([node]);
                let result = state.or_unlinked(node, result, |unlinked: &Unlinked, ino| {
                    unlinked.change(ino, &set)
                });
                state.used(thread, &result);
                state.reply_changed(&sample, result, reply);
            });
        };
        let truncated = request.size.is_some() && request.kill_privileges;
        if truncated || chown {
            caller.kills_setgid(&self.0, handle, go);
        } else {
            self.0.when_stores_are_written(node, &set, move || go(false));
        }
    }

    fn readlink(&self, header: &Header, reply: Reply<[u8]>) {
        let node = attr::ino(header.node);
        let handle = self.0.handle(header.node);
        let state = Arc::clone(&self.0);
        let thread = header.pid;
        let answer = self.0.files.read_link(&self.0.context(header), handle);
        answer.then(move |result| {
            let result = state.or_unlinked(node, result, |unlinked, ino| unlinked.target(ino));
            let result = state.or_held(thread, node, result);
            state.used(thread, &result);
            bytes(result, reply);
        });
    }

    fn mknod(&self, header: &Header, request: Mknod<'_>, reply: Reply<reply::Entry>) {
        let at = take!(self.0.at(header.node, request.name), reply);
        let kind = take!(flags::kind(request.mode).map_err(|code| attr::error(code.into())), reply);
        let mode = flags::new_mode(request.mode, request.umask);
        let node = NewNode { kind, mode, rdev: request.rdev };
        let made = self.0.making(&at, reply);
        self.0.files.make_node(&self.0.context(header), at, node).then(made);
    }

    fn mkdir(&self, header: &Header, request: Mkdir<'_>, reply: Reply<reply::Entry>) {
        let at = take!(self.0.at(header.node, request.name), reply);
        let mode = flags::new_mode(request.mode, request.umask);
        let made = self.0.making(&at, reply);
        self.0.files.make_dir(&self.0.context(header), at, mode).then(made);
    }

    fn unlink(&self, header: &Header, name: &OsStr, reply: Reply<()>) {
        let at = take!(self.0.at(header.node, name), reply);
        let removed = self.0.removing(&at, reply);
        self.0.files.unlink(&self.0.context(header), at).then(removed);
    }

    fn rmdir(&self, header: &Header, name: &OsStr, reply: Reply<()>) {
        let at = take!(self.0.at(header.node, name), reply);
        let removed = self.0.removing(&at, reply);
        self.0.files.remove_dir(&self.0.context(header), at).then(removed);
    }

    fn symlink(&self, header: &Header, request: Symlink<'_>, reply: Reply<reply::Entry>) {
        let at = take!(self.0.at(header.node, request.name), reply);
        let target = request.target.as_bytes().to_vec();
        let made = self.0.making(&at, reply);
        self.0.files.symlink(&self.0.context(header), at, target).then(made);
    }

    fn rename(&self, header: &Header, request: Rename<'_>, reply: Reply<()>) {
        let from = take!(self.0.at(header.node, request.name), reply);
        let to = take!(self.0.at(request.to_dir, request.to_name), reply);
        let how = flags::rename(request.flags).map_err(|code| attr::error(code.into()));
        let how = take!(how, reply);
        let state = Arc::clone(&self.0);
        let context = state.context(header);
        state.ends_retry(header.pid);
        Renaming { state, context, from, to, how, reply }.start();
    }

    fn link(&self, header: &Header, request: Link<'_>, reply: Reply<reply::Entry>) {
        let at = take!(self.0.at(header.node, request.name), reply);
        let handle = self.0.handle(request.node);
        self.0.entry_attrs.changes(handle.ino);
        let made = self.0.making(&at, reply);
        let state = Arc::clone(&self.0);
        let thread = header.pid;
        self.0.files.link(&self.0.context(header), handle, at).then(move |result| {
            state.used(thread, &result);
            made(result);
        });
    }

    fn open(&self, header: &Header, request: Open, reply: Reply<reply::Opened>) {
        let wanted = self.wanted(request.flags, request.kill_privileges);
        let context = self.0.context(header);
        let program_flags = request.flags;
        let handle = self.0.handle(header.node);
        let state = Arc::clone(&self.0);
        let thread = header.pid;
        let reply = OpenReply { reply, thread };
        let sample = state.sample(attr::ino(header.node));
        let opening = Opening { state, context, wanted, program_flags, sample, reply };
        let answer = self.0.files.open(&context, handle, wanted);
        answer.then(move |opened| opening.opened(handle, opened));
    }

    fn create(&self, header: &Header, request: Create<'_>, reply: Reply<reply::Created>) {
        let at = take!(self.0.at(header.node, request.name), reply);
        let wanted = self.wanted(request.flags, request.kill_privileges);
        let mode = flags::new_mode(request.mode, request.umask);
        let context = self.0.context(header);
        let program_flags = request.flags;
        let state = Arc::clone(&self.0);
        let thread = header.pid;
        let name = self.0.lifetimes.leased_name(&at);
        let sample = state.sample_name(&at);
        let reply = CreateReply { reply, thread, name, made: None };
        let opening = Opening { state, context, wanted, program_flags, sample, reply };
        let is_exclusive = flags::is_exclusive(request.flags);
        Creating { opening, at, mode, is_exclusive, round: 0 }.start();
    }

    fn tmpfile(&self, header: &Header, request: Create<'_>, reply: Reply<reply::Created>) {
        let wanted = self.wanted(request.flags, false);
        let mode = flags::new_mode(request.mode, request.umask);
        let context = self.0.context(header);
        let program_flags = request.flags;
        let state = Arc::clone(&self.0);
        let thread = header.pid;
        let reply = CreateReply { reply, thread, name: None, made: None };
        let sample = state.sample(attr::ino(header.node));
        let opening = Opening { state, context, wanted, program_flags, sample, reply };
        let dir = self.0.handle(header.node);
        let answer = self.0.files.create_unnamed(&context, dir, mode, wanted);
        answer.then(move |created| match created {
            Ok(created) => {
                opening.state.unlinked.add_looked_at(created.entry.attr);
                opening.created(None, created);
            }
            Err(error) => opening.reply.reply.error(attr::error(error)),
        });
    }

    fn read(&self, header: &Header, request: Read, reply: Reply<[u8]>) {
        read::read(&self.0, header, request, reply);
    }

    fn write(&self, header: &Header, request: Write<'_>, reply: Reply<reply::Written>) {
        write::write(&self.0, header, &request, reply);
    }

    fn flush(&self, header: &Header, request: Flush, reply: Reply<()>) {
        close::flush(&self.0, header, request, reply);
    }

    fn release(&self, header: &Header, request: Release, reply: Reply<()>) {
        close::release(&self.0, header, request, reply);
    }

    fn getlk(&self, header: &Header, request: Getlk, reply: Reply<FileLock>) {
        set_lock::get(&self.0, self.0.context(header), request, reply);
    }

    fn setlk(&self, header: &Header, request: Setlk, reply: Reply<()>) {
        set_lock::set(&self.0, header, request, reply);
    }

    fn interrupt(&self, unique: u64) -> bool {
        set_lock::interrupt(&self.0, unique)
    }

    fn fsync(&self, header: &Header, request: Fsync, reply: Reply<()>) {
        let Fsync { file, data_only } = request;
        let answer = self.0.files.fsync(&self.0.context(header), open_id(file), data_only);
        answer.then(move |result| done(result, reply));
    }

    fn opendir(&self, header: &Header, _flags: i32, reply: Reply<reply::Opened>) {
        self.0.open_dir(header, reply);
    }

    fn readdir(&self, header: &Header, request: Readdir, listing: Listing, reply: Reply<Listing>) {
        let state = &self.0;
        let sink = Sink { listing, reply };
        let Some(stream) = state.streams.get(request.file) else {
            return sink.error(Code::BadOpen.into());
        };
        let reading = Reading {
            state: Arc::clone(state),
            stream,
            context: self.0.context(header),
            dir: state.handle(header.node),
            sink,
            sample: state.sample(attr::ino(header.node)),
        };
        reading.start(request.offset);
    }

    fn releasedir(&self, header: &Header, file: FileId, reply: Reply<()>) {
        self.0.close_dir(header, file);
        reply.ok(&());
    }

    fn fsyncdir(&self, header: &Header, request: Fsync, reply: Reply<()>) {
        let state = Arc::clone(&self.0);
        let node = attr::ino(header.node);
        let stream = state.streams.get(request.file);
        let since = stream.as_ref().map(|stream| stream.losses());
        let answer =
            self.0.files.fsync_dir(&self.0.context(header), self.0.handle(header.node), since);
        answer.then(move |result| {
            if let (Some(stream), Err(_)) = (&stream, &result) {
                stream.told(state.files.losses());
            }
            let none = |unlinked: &Unlinked, ino| unlinked.attr(ino).map(|_| ());
            done(state.or_unlinked(node, result, none), reply);
        });
    }

    fn statfs(&self, header: &Header, reply: Reply<Statfs>) {
        self.0.files.stat_fs(&self.0.context(header)).then(move |result| match result {
            Ok(stats) => reply.ok(&attr::statfs(&stats)),
            Err(error) => reply.error(attr::error(error)),
        });
    }

    fn setxattr(&self, header: &Header, request: Setxattr<'_>, reply: Reply<()>) {
        self.0.set_xattr(header, &request, reply);
    }

    fn getxattr(&self, header: &Header, name: &OsStr, size: u32, reply: Reply<reply::Xattr>) {
        self.0.get_xattr(header, name, size, reply);
    }

    fn listxattr(&self, header: &Header, size: u32, reply: Reply<reply::Xattr>) {
        self.0.list_xattrs(header, size, reply);
    }

    fn removexattr(&self, header: &Header, name: &OsStr, reply: Reply<()>) {
        self.0.remove_xattr(header, name, reply);
    }

    fn fallocate(&self, header: &Header, request: Fallocate, reply: Reply<()>) {
        range_ops::allocate(&self.0, header, request, reply);
    }

    fn lseek(&self, header: &Header, request: Lseek, reply: Reply<Offset>) {
        let Lseek { file, offset, whence } = request;
        let whence = take!(flags::whence(whence).map_err(|code| attr::error(code.into())), reply);
        // A negative offset, which the kernel sends as an unsigned number.
        if i64::try_from(offset).is_err() {
            return reply.error(Errno::NXIO);
        }
        let from = SeekFrom { offset, whence };
        let answer = self.0.files.seek(&self.0.context(header), open_id(file), from);
        answer.then(move |result| match result {
            Ok(offset) => reply.ok(&Offset(offset)),
            // The kernel then stops asking and treats the file as data up to its end.
            Err(error) if error.code == Code::NotSupported => reply.error(Errno::NOSYS),
            Err(error) => reply.error(attr::error(error)),
        });
    }

    fn copy_file_range(
        &self,
        header: &Header,
        request: CopyFileRange,
        reply: Reply<reply::Written>,
    ) {
        range_ops::copy(&self.0, header, request, reply);
    }

    fn given_up(&self, unique: u64) {
        if !self.interrupt(unique) {
            let context = Context::direct(0, 0);
            self.0.files.forsake(&Context { request: RequestId(unique), ..context });
        }
    }

    fn silence(&self) -> Option<Duration> {
        self.0.files.silence()
    }

    fn end(&self) {
        close::release_all(&self.0);
    }
}
