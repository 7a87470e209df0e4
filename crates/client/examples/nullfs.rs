//! A file system that does nothing: the floor that benchmarks compare with.
//!
//! It is mounted in the same way, with the same agreements with the kernel, and answers the same
//! requests, with names and sizes in one table in memory and no bytes at all: files read as zeros.
//!
//! Usage: `nullfs POINT`. Prints `mounted` when it is ready; ends when it is unmounted, or with
//! SIGTERM or SIGINT.

use std::collections::{BTreeMap, HashMap};
use std::env;
use std::ffi::OsStr;
use std::io;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use pelago_client::fuse::{TTL, negotiate};
use pelago_client::mount::{MountOptions, serve};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

fn main() -> ExitCode {
    let Some(point) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: nullfs POINT");
        return ExitCode::from(2);
    };
    let options = MountOptions {
        mount_point: point,
        fs_name: "null".to_owned(),
        read_only: false,
        no_atime: false,
        passthrough: false,
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nullfs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &MountOptions) -> Result<(), Box<dyn std::error::Error>> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let mount = Arc::new(serve(Null::new(), options)?);
    println!("mounted");
    let signalled = Arc::clone(&mount);
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if signals.forever().next().is_some()
            && signalled.unmount().or_else(|_busy| signalled.detach()).is_err()
        {
            eprintln!("nullfs: {} cannot be unmounted", signalled.point().display());
        }
    })?;
    mount.wait()?;
    Ok(())
}

/// The offset of a name in a listing is its number plus this; the dots have the two below.
const FIRST_OFFSET: u64 = 3;

struct Null(Mutex<Tree>);

struct Tree {
    nodes: HashMap<u64, Node>,
    last: u64,
}

struct Node {
    attr: FileAttr,
    parent: u64,
    names: HashMap<Vec<u8>, u64>,
    /// The order of listings.
    order: BTreeMap<u64, Vec<u8>>,
}

impl Null {
    fn new() -> Self {
        let root = Node::new(1, 1, FileType::Directory, 0o755, 0);
        Self(Mutex::new(Tree { nodes: HashMap::from([(1, root)]), last: 1 }))
    }
}

impl Node {
    fn new(ino: u64, parent: u64, kind: FileType, mode: u32, uid: u32) -> Self {
        let attr = FileAttr {
            ino: INodeNo(ino),
            size: 0,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm: (mode & 0o7777) as u16,
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            uid,
            gid: uid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        Self { attr, parent, names: HashMap::new(), order: BTreeMap::new() }
    }

    fn put(&mut self, name: &[u8], ino: u64) {
        self.names.insert(name.to_vec(), ino);
        self.order.insert(ino, name.to_vec());
    }

    fn take(&mut self, name: &[u8]) -> Option<u64> {
        let ino = self.names.remove(name)?;
        self.order.remove(&ino);
        Some(ino)
    }
}

impl Tree {
    fn make(&mut self, at: (INodeNo, &OsStr), kind: FileType, mode: u32) -> Option<FileAttr> {
        let (parent, name) = (at.0.0, at.1.as_bytes());
        let dir = self.nodes.get_mut(&parent)?;
        if dir.names.contains_key(name) {
            return None;
        }
        self.last += 1;
        dir.put(name, self.last);
        let node = Node::new(self.last, parent, kind, mode, dir.attr.uid);
        let attr = node.attr;
        self.nodes.insert(self.last, node);
        Some(attr)
    }

    fn take(&mut self, dir: INodeNo, name: &OsStr) -> Option<u64> {
        self.nodes.get_mut(&dir.0)?.take(name.as_bytes())
    }

    fn attr(&self, node: INodeNo) -> Option<FileAttr> {
        self.nodes.get(&node.0).map(|node| node.attr)
    }

    /// Entries behind an offset with the offset behind each.
    fn list(
        &self,
        dir: INodeNo,
        offset: u64,
        mut add: impl FnMut(&FileAttr, u64, &[u8]) -> bool,
    ) -> Option<()> {
        let node = self.nodes.get(&dir.0)?;
        for (place, name, ino) in [(0, &b"."[..], dir.0), (1, b"..", node.parent)] {
            if offset <= place && add(&self.attr(INodeNo(ino))?, place + 1, name) {
                return Some(());
            }
        }
        let last = offset.saturating_sub(FIRST_OFFSET);
        for (ino, name) in node.order.range((Bound::Excluded(last), Bound::Unbounded)) {
            if add(&self.attr(INodeNo(*ino))?, ino + FIRST_OFFSET, name) {
                break;
            }
        }
        Some(())
    }
}

fn flags(write: bool) -> FopenFlags {
    if write {
        FopenFlags::FOPEN_KEEP_CACHE
    } else {
        FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH
    }
}

fn entry(made: Option<FileAttr>, otherwise: Errno, reply: ReplyEntry) {
    match made {
        Some(attr) => reply.entry(&TTL, &attr, Generation(0)),
        None => reply.error(otherwise),
    }
}

fn removed(removed: Option<u64>, reply: ReplyEmpty) {
    match removed {
        Some(_) => reply.ok(),
        None => reply.error(Errno::ENOENT),
    }
}

impl Filesystem for Null {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        negotiate(config);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let tree = self.0.lock();
        let dir = tree.nodes.get(&parent.0);
        let ino = dir.and_then(|dir| dir.names.get(name.as_bytes()));
        match ino.and_then(|ino| tree.attr(INodeNo(*ino))) {
            Some(attr) => reply.entry(&TTL, &attr, Generation(0)),
            None => {
                let none = Node::new(0, 0, FileType::RegularFile, 0, 0).attr;
                reply.entry_with_ttls(&Duration::ZERO, &TTL, &none, Generation(0));
            }
        }
    }

    fn getattr(
        &self,
        _request: &Request,
        node: INodeNo,
        _open: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        match self.0.lock().attr(node) {
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ESTALE),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _open: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.0.lock().nodes.get_mut(&node.0) {
            Some(Node { attr, .. }) => {
                attr.perm = mode.map_or(attr.perm, |mode| (mode & 0o7777) as u16);
                attr.uid = uid.unwrap_or(attr.uid);
                attr.gid = gid.unwrap_or(attr.gid);
                attr.size = size.unwrap_or(attr.size);
                reply.attr(&TTL, attr);
            }
            None => reply.error(Errno::ESTALE),
        }
    }

    fn mknod(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        let made = self.0.lock().make((parent, name), FileType::RegularFile, mode & !umask);
        entry(made, Errno::EEXIST, reply);
    }

    fn mkdir(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.0.lock().make((parent, name), FileType::Directory, mode & !umask);
        entry(made, Errno::EEXIST, reply);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut tree = self.0.lock();
        let ino = tree.take(parent, name);
        if let Some(ino) = ino {
            tree.nodes.remove(&ino);
        }
        removed(ino, reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut tree = self.0.lock();
        let dir = tree.nodes.get(&parent.0);
        let ino = dir.and_then(|dir| dir.names.get(name.as_bytes())).copied();
        let full = |ino| tree.nodes.get(&ino).is_some_and(|node| !node.names.is_empty());
        if ino.is_some_and(full) {
            return reply.error(Errno::ENOTEMPTY);
        }
        let ino = tree.take(parent, name);
        if let Some(ino) = ino {
            tree.nodes.remove(&ino);
        }
        removed(ino, reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        to_parent: INodeNo,
        to_name: &OsStr,
        _how: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut tree = self.0.lock();
        let moved = tree.take(parent, name);
        if let Some(ino) = moved {
            if let Some(old) = tree.take(to_parent, to_name) {
                tree.nodes.remove(&old);
            }
            if let Some(dir) = tree.nodes.get_mut(&to_parent.0) {
                dir.put(to_name.as_bytes(), ino);
            }
        }
        removed(moved, reply);
    }

    fn open(&self, _request: &Request, _node: INodeNo, mode: OpenFlags, reply: ReplyOpen) {
        let write = mode.acc_mode() != fuser::OpenAccMode::O_RDONLY;
        reply.opened(FileHandle(0), flags(write));
    }

    fn create(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.0.lock().make((parent, name), FileType::RegularFile, mode & !umask);
        match made {
            Some(attr) => {
                reply.created(&TTL, &attr, Generation(0), FileHandle(0), flags(true));
            }
            None => reply.error(Errno::EEXIST),
        }
    }

    fn read(
        &self,
        _request: &Request,
        node: INodeNo,
        _open: FileHandle,
        offset: u64,
        size: u32,
        _mode: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let end = self.0.lock().attr(node).map_or(0, |attr| attr.size);
        let length = end.saturating_sub(offset).min(u64::from(size));
        reply.data(&vec![0; usize::try_from(length).unwrap_or(0)]);
    }

    fn write(
        &self,
        _request: &Request,
        node: INodeNo,
        _open: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _mode: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let length = u32::try_from(data.len()).unwrap_or(0);
        if let Some(node) = self.0.lock().nodes.get_mut(&node.0) {
            node.attr.size = node.attr.size.max(offset + u64::from(length));
        }
        reply.written(length);
    }

    fn flush(
        &self,
        _request: &Request,
        _node: INodeNo,
        _open: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _node: INodeNo,
        _open: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn opendir(&self, _request: &Request, _node: INodeNo, _mode: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE;
        reply.opened(FileHandle(0), flags);
    }

    fn readdir(
        &self,
        _request: &Request,
        node: INodeNo,
        _stream: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.0.lock().list(node, offset, |attr, behind, name| {
            reply.add(attr.ino, behind, attr.kind, OsStr::from_bytes(name))
        });
        match listed {
            Some(()) => reply.ok(),
            None => reply.error(Errno::ESTALE),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        node: INodeNo,
        _stream: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.0.lock().list(node, offset, |attr, behind, name| {
            reply.add(attr.ino, behind, OsStr::from_bytes(name), &TTL, attr, Generation(0))
        });
        match listed {
            Some(()) => reply.ok(),
            None => reply.error(Errno::ESTALE),
        }
    }

    fn statfs(&self, _request: &Request, _node: INodeNo, reply: ReplyStatfs) {
        reply.statfs(1 << 30, 1 << 30, 1 << 30, 1 << 30, 1 << 30, 4096, 255, 4096);
    }

    fn getxattr(
        &self,
        _request: &Request,
        _node: INodeNo,
        _name: &OsStr,
        _size: u32,
        reply: ReplyXattr,
    ) {
        reply.error(Errno::ENODATA);
    }
}
