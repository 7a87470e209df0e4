//! A small file system in memory with faults on demand: to a lookup of a name that begins with
//! `held-` the test replies, `lost-` gets no reply, `panic-` panics, and the call of `hangs-` does
//! not return before the test says so.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_fuse::attr::{Attr, FileType, Timestamp};
use pelago_fuse::device::Backing;
use pelago_fuse::ids::{FileId, NodeId};
use pelago_fuse::listing::{Dirent, Listing};
use pelago_fuse::operation::{
    CopyFileRange, Create, Fallocate, FileLock, Flush, Fsync, Getlk, Link, Lseek, Mkdir, Open,
    Read, Readdir, Release, Rename, SetAttr, SetTime, Setlk, Setxattr, Symlink, Write,
};
use pelago_fuse::protocol::{FOPEN_KEEP_CACHE, FOPEN_PASSTHROUGH};
use pelago_fuse::reply::{
    Attributes, Created, Entry, Offset, Opened, Reply, Statfs, Written, Xattr,
};
use pelago_fuse::request::Header;
use pelago_fuse::{Errno, Filesystem};

use crate::held::Held;
use crate::lock_table::LockTable;

pub(crate) const TTL: Duration = Duration::from_secs(3600);
pub(crate) const NAME_BYTES: u32 = 255;
const DOTS: u64 = 2;
const SEEK_DATA: i32 = 3;

pub(crate) struct Tree {
    state: Mutex<State>,
    pub(crate) held: Held,
    pub(crate) locks: LockTable,
    pub(crate) seen: Seen,
    /// While set, a read returns a byte more than requested.
    pub(crate) overlong: AtomicBool,
    /// If set, every open uses this file as its backing.
    pub(crate) below: Mutex<Option<File>>,
}

/// Counts of requests.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) lookups: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) xattrs: AtomicU64,
    pub(crate) forgotten: AtomicU64,
    pub(crate) ends: AtomicU64,
}

struct State {
    nodes: HashMap<u64, Node>,
    backings: HashMap<u64, Backing>,
    last: u64,
}

struct Node {
    attr: Attr,
    data: Vec<u8>,
    names: BTreeMap<Vec<u8>, u64>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let mut state = State { nodes: HashMap::new(), backings: HashMap::new(), last: 0 };
        let _root = state.add(FileType::Directory, 0o755);
        Self {
            state: Mutex::new(state),
            held: Held::default(),
            locks: LockTable::default(),
            seen: Seen::default(),
            overlong: AtomicBool::new(false),
            below: Mutex::new(None),
        }
    }

    /// Creates or changes a file without a request.
    pub(crate) fn put(&self, name: &str, data: &[u8]) -> NodeId {
        let mut state = self.state.lock();
        let found = state.nodes[&NodeId::ROOT.0].names.get(name.as_bytes()).copied();
        let node = found.unwrap_or_else(|| {
            let node = state.add(FileType::Regular, 0o644);
            let root = state.nodes.get_mut(&NodeId::ROOT.0).expect("the root stays");
            root.names.insert(name.into(), node);
            node
        });
        let file = state.nodes.get_mut(&node).expect("names lead to nodes");
        file.resize(data.len());
        file.data.copy_from_slice(data);
        NodeId(node)
    }

    fn with<T>(&self, header: &Header, act: impl FnOnce(&mut Node) -> T) -> Result<T, Errno> {
        self.state.lock().nodes.get_mut(&header.node.0).map(act).ok_or(Errno::STALE)
    }
}

impl State {
    fn add(&mut self, file_type: FileType, mode: u32) -> u64 {
        self.last += 1;
        let attr = Attr {
            ino: self.last,
            size: 0,
            blocks: 0,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            file_type,
            mode: (mode & 0o7777) as u16,
            links: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            block_bytes: 4096,
        };
        let node = Node { attr, data: Vec::new(), names: BTreeMap::new(), xattrs: BTreeMap::new() };
        self.nodes.insert(self.last, node);
        self.last
    }

    fn find(&self, dir: NodeId, name: &OsStr) -> Result<u64, Errno> {
        let dir = self.nodes.get(&dir.0).ok_or(Errno::STALE)?;
        dir.names.get(name.as_bytes()).copied().ok_or(Errno::NOENT)
    }

    fn name(&mut self, dir: NodeId, name: &OsStr, node: u64) -> Result<(), Errno> {
        let dir = self.nodes.get_mut(&dir.0).ok_or(Errno::STALE)?;
        dir.names.insert(name.as_bytes().to_vec(), node);
        Ok(())
    }

    fn unname(&mut self, dir: NodeId, name: &OsStr) -> Result<(), Errno> {
        let node = self.find(dir, name)?;
        if !self.nodes[&node].names.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.nodes.get_mut(&dir.0).ok_or(Errno::STALE)?.names.remove(name.as_bytes());
        self.nodes.get_mut(&node).ok_or(Errno::STALE)?.attr.links -= 1;
        Ok(())
    }

    fn entry(&self, node: u64) -> Result<Entry, Errno> {
        let attr = self.nodes.get(&node).ok_or(Errno::STALE)?.attr;
        Ok(Entry { node: NodeId(node), generation: 0, entry_ttl: TTL, attr_ttl: TTL, attr })
    }

    fn make(
        &mut self,
        dir: NodeId,
        name: &OsStr,
        file_type: FileType,
        mode: u32,
    ) -> Result<Entry, Errno> {
        if self.find(dir, name).is_ok() {
            return Err(Errno::EXIST);
        }
        let node = self.add(file_type, mode);
        self.name(dir, name, node)?;
        self.entry(node)
    }
}

impl Node {
    fn resize(&mut self, bytes: usize) {
        self.data.resize(bytes, 0);
        self.attr.size = bytes as u64;
        self.attr.blocks = self.attr.size.div_ceil(512);
    }

    fn read(&self, offset: u64, size: usize) -> &[u8] {
        let start = usize::try_from(offset).map_or(self.data.len(), |at| at.min(self.data.len()));
        &self.data[start..self.data.len().min(start.saturating_add(size))]
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Written {
        let start = usize::try_from(offset).expect("files of tests are small");
        if self.data.len() < start + data.len() {
            self.resize(start + data.len());
        }
        self.data[start..start + data.len()].copy_from_slice(data);
        Written(u32::try_from(data.len()).expect("a request is small"))
    }
}

/// Replies with a result.
trait Answer<T: ?Sized> {
    fn with<E: std::borrow::Borrow<T>>(self, done: Result<E, Errno>);
}

impl<T: pelago_fuse::Encode + ?Sized> Answer<T> for Reply<T> {
    fn with<E: std::borrow::Borrow<T>>(self, done: Result<E, Errno>) {
        match done {
            Ok(answer) => self.ok(answer.borrow()),
            Err(errno) => self.error(errno),
        }
    }
}

fn opened(node: NodeId, flags: u32) -> Opened {
    Opened { file: FileId(node.0), flags, backing: None }
}

fn sized(value: &[u8], size: u32) -> Result<Xattr, Errno> {
    let bytes = u32::try_from(value.len()).expect("values of tests are small");
    match size {
        0 => Ok(Xattr::Size(bytes)),
        size if size < bytes => Err(Errno::RANGE),
        _ => Ok(Xattr::Value(value.to_vec())),
    }
}

impl Filesystem for Tree {
    fn lookup(&self, header: &Header, name: &OsStr, reply: Reply<Entry>) {
        self.seen.lookups.fetch_add(1, Ordering::Relaxed);
        let name_bytes = name.as_bytes();
        if name_bytes.starts_with(b"held-") {
            return self.held.hold(header.unique, reply);
        }
        if name_bytes.starts_with(b"hangs-") {
            self.held.hang();
        }
        if name_bytes.starts_with(b"lost-") {
            return drop(reply);
        }
        if name_bytes.starts_with(b"panic-") {
            // This panic prints nothing.
            resume_unwind(Box::new("requested by the test"));
        }
        let state = self.state.lock();
        reply.with(state.find(header.node, name).and_then(|node| state.entry(node)));
    }

    fn forget(&self, _node: NodeId, lookups: u64) {
        self.seen.forgotten.fetch_add(lookups, Ordering::Relaxed);
    }

    fn get_attr(&self, header: &Header, _file: Option<FileId>, reply: Reply<Attributes>) {
        reply.with(self.with(header, |node| Attributes { ttl: TTL, attr: node.attr }));
    }

    fn set_attr(&self, header: &Header, request: SetAttr, reply: Reply<Attributes>) {
        let time = |set: Option<SetTime>, old| match set {
            Some(SetTime::To(time)) => time,
            Some(SetTime::Now) => Timestamp { seconds: 1, nanos: 1 },
            None => old,
        };
        reply.with(self.with(header, |node| {
            if let Some(size) = request.size {
                node.resize(usize::try_from(size).expect("files of tests are small"));
            }
            let attr = &mut node.attr;
            attr.mode = request.mode.map_or(attr.mode, |mode| (mode & 0o7777) as u16);
            attr.uid = request.uid.unwrap_or(attr.uid);
            attr.gid = request.gid.unwrap_or(attr.gid);
            attr.atime = time(request.atime, attr.atime);
            attr.mtime = time(request.mtime, attr.mtime);
            Attributes { ttl: TTL, attr: node.attr }
        }));
    }

    fn readlink(&self, header: &Header, reply: Reply<[u8]>) {
        reply.with(self.with(header, |node| node.data.clone()));
    }

    fn symlink(&self, header: &Header, request: Symlink<'_>, reply: Reply<Entry>) {
        let mut state = self.state.lock();
        let made = state.make(header.node, request.name, FileType::Symlink, 0o777);
        if let Some(node) = made.ok().and_then(|made| state.nodes.get_mut(&made.node.0)) {
            node.write(0, request.target.as_bytes());
        }
        reply.with(made);
    }

    fn mkdir(&self, header: &Header, request: Mkdir<'_>, reply: Reply<Entry>) {
        reply.with(self.state.lock().make(
            header.node,
            request.name,
            FileType::Directory,
            request.mode,
        ));
    }

    fn unlink(&self, header: &Header, name: &OsStr, reply: Reply<()>) {
        reply.with(self.state.lock().unname(header.node, name));
    }

    fn rmdir(&self, header: &Header, name: &OsStr, reply: Reply<()>) {
        reply.with(self.state.lock().unname(header.node, name));
    }

    fn rename(&self, header: &Header, request: Rename<'_>, reply: Reply<()>) {
        if request.flags != 0 {
            return reply.error(Errno::INVAL);
        }
        let mut state = self.state.lock();
        reply.with(state.find(header.node, request.name).and_then(|node| {
            let dir = state.nodes.get_mut(&header.node.0).ok_or(Errno::STALE)?;
            dir.names.remove(request.name.as_bytes());
            state.name(request.to_dir, request.to_name, node)
        }));
    }

    fn link(&self, header: &Header, request: Link<'_>, reply: Reply<Entry>) {
        let mut state = self.state.lock();
        reply.with(state.name(header.node, request.name, request.node.0).and_then(|()| {
            state.nodes.get_mut(&request.node.0).ok_or(Errno::STALE)?.attr.links += 1;
            state.entry(request.node.0)
        }));
    }

    fn open(&self, header: &Header, _request: Open, reply: Reply<Opened>) {
        let below = self.below.lock();
        let Some(file) = &*below else {
            return reply.ok(&opened(header.node, FOPEN_KEEP_CACHE));
        };
        match reply.open_backing(file.as_fd()) {
            Ok(backing) => {
                let number = Some(backing.id());
                self.state.lock().backings.insert(header.node.0, backing);
                let flags = FOPEN_PASSTHROUGH;
                reply.ok(&Opened { backing: number, ..opened(header.node, flags) });
            }
            Err(error) => reply.error(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }

    fn create(&self, header: &Header, request: Create<'_>, reply: Reply<Created>) {
        let made = self.state.lock().make(
            header.node,
            request.name,
            FileType::Regular,
            request.mode & !request.umask,
        );
        reply.with(made.map(|entry| Created { entry, opened: opened(entry.node, 0) }));
    }

    fn tmpfile(&self, _header: &Header, request: Create<'_>, reply: Reply<Created>) {
        let mut state = self.state.lock();
        let node = state.add(FileType::Regular, request.mode & !request.umask);
        if let Some(file) = state.nodes.get_mut(&node) {
            file.attr.links = 0;
        }
        reply.with(state.entry(node).map(|entry| Created { entry, opened: opened(entry.node, 0) }));
    }

    fn read(&self, header: &Header, request: Read, reply: Reply<[u8]>) {
        self.seen.reads.fetch_add(1, Ordering::Relaxed);
        if self.overlong.load(Ordering::Relaxed) {
            return reply.ok(&vec![0; request.size as usize + 1]);
        }
        reply.with(
            self.with(header, |node| node.read(request.offset, request.size as usize).to_vec()),
        );
    }

    fn write(&self, header: &Header, request: Write<'_>, reply: Reply<Written>) {
        self.seen.writes.fetch_add(1, Ordering::Relaxed);
        reply.with(self.with(header, |node| node.write(request.offset, request.data)));
    }

    fn flush(&self, header: &Header, request: Flush, reply: Reply<()>) {
        self.seen.flushes.fetch_add(1, Ordering::Relaxed);
        self.locks.flush(header.node, request);
        reply.ok(&());
    }

    fn getlk(&self, header: &Header, request: Getlk, reply: Reply<FileLock>) {
        reply.ok(&self.locks.get(header.node, request));
    }

    fn setlk(&self, header: &Header, request: Setlk, reply: Reply<()>) {
        self.locks.set(header.pid, header.unique, header.node, request, reply);
    }

    fn release(&self, header: &Header, request: Release, reply: Reply<()>) {
        self.locks.release(header.node, request);
        drop(self.state.lock().backings.remove(&header.node.0));
        reply.ok(&());
    }

    fn fsync(&self, _header: &Header, _request: Fsync, reply: Reply<()>) {
        self.seen.syncs.fetch_add(1, Ordering::Relaxed);
        self.held.sync(reply);
    }

    fn opendir(&self, header: &Header, _flags: i32, reply: Reply<Opened>) {
        reply.ok(&opened(header.node, 0));
    }

    /// Names that begin with `bare-` have no attributes.
    fn readdir(
        &self,
        header: &Header,
        request: Readdir,
        mut listing: Listing,
        reply: Reply<Listing>,
    ) {
        let state = self.state.lock();
        let Some(dir) = state.nodes.get(&header.node.0) else { return reply.error(Errno::STALE) };
        let mut names = vec![(0, &b"."[..]), (1, b"..")];
        names.extend(dir.names.iter().map(|(name, node)| (node + DOTS, &name[..])));
        names.sort_unstable();
        for (place, name) in names.into_iter().filter(|(place, _)| *place >= request.offset) {
            let node = place.checked_sub(DOTS).filter(|node| *node > 0);
            let entry = node.and_then(|node| state.entry(node).ok());
            let attr = entry.map_or(dir.attr, |entry| entry.attr);
            let ino = attr.ino;
            let file_type = attr.file_type;
            let entry = entry.filter(|_| !name.starts_with(b"bare-"));
            let listed = Dirent { ino, offset: place + 1, file_type, name };
            if !listing.add(listed, entry.as_ref()) {
                break;
            }
        }
        reply.ok(&listing);
    }

    fn releasedir(&self, _header: &Header, _file: FileId, reply: Reply<()>) {
        reply.ok(&());
    }

    fn statfs(&self, _header: &Header, reply: Reply<Statfs>) {
        reply.ok(&Statfs {
            blocks: 1000,
            free: 600,
            available: 500,
            files: 70,
            free_files: 60,
            block_bytes: 4096,
            name_bytes: NAME_BYTES,
        });
    }

    fn setxattr(&self, header: &Header, request: Setxattr<'_>, reply: Reply<()>) {
        let name = request.name.as_bytes().to_vec();
        let value = request.value.to_vec();
        reply.with(self.with(header, |node| {
            node.xattrs.insert(name, value);
        }));
    }

    fn getxattr(&self, header: &Header, name: &OsStr, size: u32, reply: Reply<Xattr>) {
        // The kernel itself asks for others, as before a write.
        if name.as_bytes().starts_with(b"user.") {
            self.seen.xattrs.fetch_add(1, Ordering::Relaxed);
        }
        let found = self.with(header, |node| node.xattrs.get(name.as_bytes()).cloned());
        let found = found.and_then(|value| value.ok_or(Errno::NODATA));
        reply.with(found.and_then(|value| sized(&value, size)));
    }

    fn listxattr(&self, header: &Header, size: u32, reply: Reply<Xattr>) {
        let names = self.with(header, |node| {
            let names = node.xattrs.keys().flat_map(|name| name.iter().chain(b"\0"));
            names.copied().collect::<Vec<u8>>()
        });
        reply.with(names.and_then(|names| sized(&names, size)));
    }

    fn removexattr(&self, header: &Header, name: &OsStr, reply: Reply<()>) {
        let removed = self.with(header, |node| node.xattrs.remove(name.as_bytes()));
        reply.with(removed.and_then(|value| value.map(drop).ok_or(Errno::NODATA)));
    }

    fn fallocate(&self, header: &Header, request: Fallocate, reply: Reply<()>) {
        let end =
            usize::try_from(request.offset + request.length).expect("files of tests are small");
        reply.with(self.with(header, |node| node.resize(end.max(node.data.len()))));
    }

    /// A run of zero bytes is a hole.
    fn lseek(&self, header: &Header, request: Lseek, reply: Reply<Offset>) {
        let found = self.with(header, |node| {
            let mut bytes = node.read(request.offset, usize::MAX).iter();
            let data = request.whence == SEEK_DATA;
            match bytes.position(|byte| (*byte != 0) == data) {
                Some(place) => Ok(Offset(request.offset + place as u64)),
                None if data => Err(Errno::NXIO),
                None => Ok(Offset(node.attr.size)),
            }
        });
        reply.with(found.and_then(|found| found));
    }

    fn copy_file_range(&self, header: &Header, request: CopyFileRange, reply: Reply<Written>) {
        let length = usize::try_from(request.length).expect("a length of a test is small");
        let bytes = self.with(header, |node| node.read(request.from_offset, length).to_vec());
        let to = Header { node: NodeId(request.to.0), ..*header };
        reply.with(
            bytes.and_then(|bytes| self.with(&to, |node| node.write(request.to_offset, &bytes))),
        );
    }

    fn interrupt(&self, unique: u64) -> bool {
        self.locks.interrupt(unique) || self.held.interrupt(unique)
    }

    fn end(&self) {
        self.seen.ends.fetch_add(1, Ordering::Relaxed);
    }
}
