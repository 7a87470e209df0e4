//! Carries out the kernel's requests on the model.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, FileType as Mode};
use rustix::io::Errno;

use crate::clock::now;
use crate::control::{Control, State};
use crate::model::{About, BLOCK_BYTES, Kind, ROOT};
use crate::operation::{CallArgs, Operation, Range};

/// How long the kernel may cache names, which change only through the kernel.
const NAME_TTL: Duration = Duration::from_secs(3600);
/// How long the kernel may cache attributes: not at all, because blocks change with writes.
const ATTR_TTL: Duration = Duration::ZERO;
const GENERATION: Generation = Generation(1);
const PERMISSIONS: u32 = 0o7777;

/// A name in a directory, with inode and type.
type Listed = (u64, FileType, Vec<u8>);

/// The model as a file system of `fuser`.
pub(crate) struct Driver {
    control: Control,
    /// The entries of each open directory at the time of the open, so that offsets stay valid.
    listings: Mutex<BTreeMap<u64, Vec<Listed>>>,
    next: AtomicU64,
}

impl Driver {
    pub(crate) fn new(control: Control) -> Self {
        Self { control, listings: Mutex::default(), next: AtomicU64::new(1) }
    }

    /// Runs `work` with the number of bytes to carry out, unless the power is off or the call must
    /// fail.
    fn change<T>(
        &self,
        attempt: CallArgs<'_>,
        work: impl FnOnce(&mut State, usize) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut state = self.control.lock();
        let bytes = state.admit(attempt)?;
        work(&mut state, bytes)
    }

    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        kind: Kind,
        mode: u32,
    ) -> Result<FileAttr, Errno> {
        let operation = if kind == Kind::Folder { Operation::MakeDir } else { Operation::Create };
        let time = now();
        let about = About {
            mode,
            uid: request.uid(),
            gid: request.gid(),
            atime: time,
            mtime: time,
            ctime: time,
        };
        self.change(named(operation, request, parent, name), |state, _| {
            let ino = state.model.make(parent.0, name.as_bytes(), kind, about)?;
            attr(state, ino)
        })
    }
}

impl Filesystem for Driver {
    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.change(named(Operation::Look, request, parent, name), |state, _| {
            let ino = state.model.lookup(parent.0, name.as_bytes())?;
            attr(state, ino)
        });
        entry(found, reply);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let mut state = self.control.lock();
        // The root responds without power, too, so that a dead mount can be found and unmounted.
        let met = match ino.0 {
            ROOT => Ok(0),
            _ => state.admit(attempt(Operation::Measure, request, ino)),
        };
        match met.and_then(|_| attr(&state, ino.0)) {
            Ok(attr) => reply.attr(&ATTR_TTL, &attr),
            Err(error) => reply.error(error_of(error)),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let time = now();
        let resized = match size {
            Some(size) => self.change(attempt(Operation::Resize, request, ino), |state, _| {
                state.model.resize(ino.0, size, time)
            }),
            None => Ok(()),
        };
        let mut state = self.control.lock();
        // A truncation sets a time, too, in the same call.
        let met = |state: &mut State| match size {
            Some(_) => state.is_on(),
            None => state.admit(attempt(Operation::Change, request, ino)).map(drop),
        };
        let done = resized.and_then(|()| met(&mut state)).and_then(|()| {
            state.model.set_about(ino.0, |about| {
                about.mode =
                    mode.map_or(about.mode, |mode| about.mode & !PERMISSIONS | mode & PERMISSIONS);
                about.uid = uid.unwrap_or(about.uid);
                about.gid = gid.unwrap_or(about.gid);
                about.atime = atime.map_or(about.atime, |to| time_of(to, time));
                about.mtime = mtime.map_or(about.mtime, |to| time_of(to, time));
                about.ctime = time;
            })?;
            attr(&state, ino.0)
        });
        match done {
            Ok(attr) => reply.attr(&ATTR_TTL, &attr),
            Err(error) => reply.error(error_of(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let is_file = Mode::from_raw_mode(mode) == Mode::RegularFile;
        let kind = if is_file { Kind::File } else { Kind::Other };
        entry(self.make(request, parent, name, kind, mode), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let mode = mode & PERMISSIONS | 0o040_000;
        entry(self.make(request, parent, name, Kind::Folder, mode), reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.change(named(Operation::Remove, request, parent, name), |state, _| {
            state.model.remove(parent.0, name.as_bytes(), false, now())
        });
        done(removed, reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.change(named(Operation::Remove, request, parent, name), |state, _| {
            state.model.remove(parent.0, name.as_bytes(), true, now())
        });
        done(removed, reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let to_name = newname.as_bytes();
        let renamed = self.change(named(Operation::Rename, request, parent, name), |state, _| {
            if !(flags - RenameFlags::RENAME_NOREPLACE).is_empty() {
                return Err(Errno::INVAL);
            }
            if !flags.is_empty() && state.model.lookup(newparent.0, to_name).is_ok() {
                return Err(Errno::EXIST);
            }
            state.model.rename(parent.0, name.as_bytes(), newparent.0, to_name, now())
        });
        done(renamed, reply);
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let linked =
            self.change(named(Operation::Rename, request, newparent, newname), |state, _| {
                state.model.link(ino.0, newparent.0, newname.as_bytes(), now())?;
                attr(state, ino.0)
            });
        entry(linked, reply);
    }

    fn open(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let opened = self.change(attempt(Operation::Open, request, ino), |state, _| {
            Ok((state.open(ino.0)?, flags(state)))
        });
        match opened {
            Ok((handle, flags)) => reply.opened(FileHandle(handle), flags),
            Err(error) => reply.error(error_of(error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let mode = mode & PERMISSIONS | 0o100_000;
        let made = self.make(request, parent, name, Kind::File, mode);
        let opened = made.and_then(|attr| {
            let mut state = self.control.lock();
            let handle = FileHandle(state.open(attr.ino.0)?);
            Ok((attr, handle, flags(&state)))
        });
        match opened {
            Ok((attr, handle, flags)) => {
                reply.created(&NAME_TTL, &attr, GENERATION, handle, flags);
            }
            Err(error) => reply.error(error_of(error)),
        }
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let range = Range { at: offset, bytes: size as usize };
        let attempt = CallArgs { range, ..attempt(Operation::Read, request, ino) };
        let read =
            self.change(attempt, |state, bytes| state.model.read(ino.0, offset, bytes as u64));
        match read {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error_of(error)),
        }
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let range = Range { at: offset, bytes: data.len() };
        let attempt = CallArgs { range, ..attempt(Operation::Write, request, ino) };
        let written = self.change(attempt, |state, bytes| {
            state.model.write(ino.0, offset, &data[..bytes], now())?;
            Ok(bytes)
        });
        match written {
            Ok(bytes) => reply.written(u32::try_from(bytes).unwrap_or(u32::MAX)),
            Err(error) => reply.error(error_of(error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        done(self.control.lock().close(ino.0, fh.0), reply);
    }

    fn fsync(&self, request: &Request, ino: INodeNo, fh: FileHandle, _: bool, reply: ReplyEmpty) {
        let mut state = self.control.lock();
        let synced = match state.admit(attempt(Operation::Sync, request, ino)) {
            Ok(_) => state.sync(ino.0, fh.0),
            Err(error) => state.fail_to_sync(ino.0, fh.0, error),
        };
        drop(state);
        done(synced, reply);
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let mut state = self.control.lock();
        let met = state.admit(attempt(Operation::List, request, ino));
        let listed = met.and_then(|_| state.model.list(ino.0)).map(|names| {
            let typed = names.into_iter().map(|(ino, name)| {
                let kind = attr(&state, ino).map_or(FileType::RegularFile, |attr| attr.kind);
                (ino, kind, name)
            });
            typed.collect()
        });
        drop(state);
        match listed {
            Ok(listed) => {
                let handle = self.next.fetch_add(1, Ordering::Relaxed);
                self.listings.lock().insert(handle, listed);
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(error) => reply.error(error_of(error)),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listings = self.listings.lock();
        let names = listings.get(&fh.0).into_iter().flatten().enumerate();
        for (at, (ino, kind, name)) in names.skip(offset as usize) {
            if reply.add(INodeNo(*ino), at as u64 + 1, *kind, OsStr::from_bytes(name)) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.listings.lock().remove(&fh.0);
        reply.ok();
    }

    fn fsyncdir(&self, request: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let attempt = attempt(Operation::SyncNames, request, ino);
        let synced = self.change(attempt, |state, _| state.model.sync_names(ino.0));
        done(synced, reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let (used, all) = self.control.lock().model.space();
        let free = all.saturating_sub(used);
        let bytes = u32::try_from(BLOCK_BYTES).unwrap_or(4096);
        reply.statfs(all, free, free, 1 << 20, 1 << 19, bytes, 255, bytes);
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let range = offset..offset.saturating_add(length);
        let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let keep_size = flags.contains(FallocateFlags::KEEP_SIZE);
        let reserved = self.change(attempt(Operation::Reserve, request, ino), |state, _| {
            let model = &mut state.model;
            if flags.contains(FallocateFlags::PUNCH_HOLE) {
                model.zero(ino.0, range, now())
            } else if flags.contains(FallocateFlags::ZERO_RANGE) {
                model.zero(ino.0, range.clone(), now())?;
                model.reserve(ino.0, range, keep_size, now())
            } else if (flags - FallocateFlags::KEEP_SIZE).is_empty() {
                model.reserve(ino.0, range, keep_size, now())
            } else {
                Err(Errno::OPNOTSUPP)
            }
        });
        done(reserved, reply);
    }
}

/// A call about a file or folder.
fn attempt(operation: Operation, request: &Request, ino: INodeNo) -> CallArgs<'static> {
    CallArgs { operation, ino: ino.0, name: None, thread: request.pid(), range: Range::default() }
}

/// A call about a name in a folder.
fn named<'a>(operation: Operation, by: &Request, dir: INodeNo, name: &'a OsStr) -> CallArgs<'a> {
    CallArgs { name: Some(name.as_bytes()), ..attempt(operation, by, dir) }
}

fn flags(state: &State) -> FopenFlags {
    if state.is_direct() { FopenFlags::FOPEN_DIRECT_IO } else { FopenFlags::empty() }
}

fn attr(state: &State, ino: u64) -> Result<FileAttr, Errno> {
    let node = state.model.node(ino)?;
    let About { mode, uid, gid, atime, mtime, ctime } = node.about;
    let kind = match Mode::from_raw_mode(mode) {
        _ if node.is_folder() => FileType::Directory,
        Mode::Socket => FileType::Socket,
        Mode::Fifo => FileType::NamedPipe,
        _ => FileType::RegularFile,
    };
    Ok(FileAttr {
        ino: INodeNo(ino),
        size: node.size(),
        blocks: node.blocks() * (BLOCK_BYTES / 512),
        atime,
        mtime,
        ctime,
        crtime: ctime,
        kind,
        perm: (mode & PERMISSIONS) as u16,
        nlink: node.links,
        uid,
        gid,
        rdev: 0,
        blksize: BLOCK_BYTES as u32,
        flags: 0,
    })
}

fn entry(found: Result<FileAttr, Errno>, reply: ReplyEntry) {
    match found {
        Ok(attr) => reply.entry(&NAME_TTL, &attr, GENERATION),
        Err(error) => reply.error(error_of(error)),
    }
}

fn done(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error_of(error)),
    }
}

fn error_of(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}

fn time_of(time: TimeOrNow, now: SystemTime) -> SystemTime {
    match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => now,
    }
}
