//! The kernel's requests, carried to the model.

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
use crate::control::{Control, Operation, State};
use crate::model::{About, BLOCK_BYTES, Kind, ROOT};

/// Names change through the kernel alone, which knows of it.
const NAME_TTL: Duration = Duration::from_secs(3600);
/// Attributes are asked for each time: blocks change with what is written.
const ATTR_TTL: Duration = Duration::ZERO;
const GENERATION: Generation = Generation(1);
const PERMISSIONS: u32 = 0o7777;

/// A name in a folder: where it leads, and to what.
type Listed = (u64, FileType, Vec<u8>);

/// The model as `fuser` wants to see it.
pub(crate) struct Driver {
    control: Control,
    /// What an open folder listed when it was opened: positions stay good.
    listings: Mutex<BTreeMap<u64, Vec<Listed>>>,
    next: AtomicU64,
}

impl Driver {
    pub(crate) fn new(control: Control) -> Self {
        Self { control, listings: Mutex::default(), next: AtomicU64::new(1) }
    }

    /// Runs `work` where power is on and `operation` on `ino` is not to fail.
    fn change<T>(
        &self,
        operation: Operation,
        ino: INodeNo,
        work: impl FnOnce(&mut State) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut state = self.control.lock();
        state.meet(operation, ino.0)?;
        work(&mut state)
    }

    fn make(
        &self,
        request: &Request,
        at: (INodeNo, &OsStr),
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
        self.change(operation, at.0, |state| {
            let ino = state.model.make(at.0.0, at.1.as_bytes(), kind, about)?;
            attr(state, ino)
        })
    }
}

impl Filesystem for Driver {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let state = self.control.lock();
        let found = state
            .is_on()
            .and_then(|()| state.model.lookup(parent.0, name.as_bytes()))
            .and_then(|ino| attr(&state, ino));
        entry(found, reply);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let state = self.control.lock();
        // The root answers without power too, so that a dead mount can be found and unmounted.
        let is_on = if ino.0 == ROOT { Ok(()) } else { state.is_on() };
        match is_on.and_then(|()| attr(&state, ino.0)) {
            Ok(attr) => reply.attr(&ATTR_TTL, &attr),
            Err(error) => reply.error(error_of(error)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
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
            Some(size) => {
                self.change(Operation::Resize, ino, |state| state.model.resize(ino.0, size, time))
            }
            None => Ok(()),
        };
        let mut state = self.control.lock();
        let done = resized.and_then(|()| state.is_on()).and_then(|()| {
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
        entry(self.make(request, (parent, name), kind, mode), reply);
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
        entry(self.make(request, (parent, name), Kind::Folder, mode), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.change(Operation::Remove, parent, |state| {
            state.model.remove(parent.0, name.as_bytes(), false, now())
        });
        done(removed, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.change(Operation::Remove, parent, |state| {
            state.model.remove(parent.0, name.as_bytes(), true, now())
        });
        done(removed, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((parent.0, name.as_bytes()), (newparent.0, newname.as_bytes()));
        let renamed = self.change(Operation::Rename, parent, |state| {
            if !(flags - RenameFlags::RENAME_NOREPLACE).is_empty() {
                return Err(Errno::INVAL);
            }
            if !flags.is_empty() && state.model.lookup(to.0, to.1).is_ok() {
                return Err(Errno::EXIST);
            }
            state.model.rename(from, to, now())
        });
        done(renamed, reply);
    }

    fn link(
        &self,
        _: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let linked = self.change(Operation::Rename, newparent, |state| {
            state.model.link(ino.0, newparent.0, newname.as_bytes(), now())?;
            attr(state, ino.0)
        });
        entry(linked, reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let mut state = self.control.lock();
        match state.is_on().and_then(|()| state.model.open(ino.0)) {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::empty()),
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
        let made = self.make(request, (parent, name), Kind::File, mode);
        let opened = made.and_then(|attr| {
            self.control.lock().model.open(attr.ino.0)?;
            Ok(attr)
        });
        match opened {
            Ok(attr) => {
                reply.created(&NAME_TTL, &attr, GENERATION, FileHandle(0), FopenFlags::empty())
            }
            Err(error) => reply.error(error_of(error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read =
            self.change(Operation::Read, ino, |state| state.model.read(ino.0, offset, size.into()));
        match read {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error_of(error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self
            .change(Operation::Write, ino, |state| state.model.write(ino.0, offset, data, now()));
        match written {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
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
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        done(self.control.lock().model.close(ino.0), reply);
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let mut state = self.control.lock();
        let synced = match state.meet(Operation::Sync, ino.0) {
            Ok(()) => state.model.sync(ino.0),
            Err(error) => state.model.fail_to_sync(ino.0).and(Err(error)),
        };
        drop(state);
        done(synced, reply);
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let state = self.control.lock();
        let listed = state.is_on().and_then(|()| state.model.list(ino.0)).map(|names| {
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

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let synced = self.change(Operation::SyncNames, ino, |state| state.model.sync_names(ino.0));
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
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let range = (offset, offset.saturating_add(length));
        let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let keep_size = flags.contains(FallocateFlags::KEEP_SIZE);
        let reserved = self.change(Operation::Reserve, ino, |state| {
            let model = &mut state.model;
            if flags.contains(FallocateFlags::PUNCH_HOLE) {
                model.zero(ino.0, range, now())
            } else if flags.contains(FallocateFlags::ZERO_RANGE) {
                model.zero(ino.0, range, now())?;
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
