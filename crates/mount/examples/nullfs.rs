//! The null file system: the floor with which benchmarks compare.
//!
//! It is mounted as a volume is, with the same result of the negotiation, and replies to the same
//! requests. Names and sizes are in one table in memory; bytes are discarded, so that files and
//! extended attributes read as zeros.
//!
//! Usage: `nullfs POINT`. Prints `mounted` when it is ready; ends when it is unmounted, or with
//! SIGTERM or SIGINT.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::{env, thread};

use parking_lot::Mutex;
use pelago_fuse::ids::{FileId, NodeId};
use pelago_fuse::listing::{Dirent, Listing};
use pelago_fuse::operation::{
    Create, Fallocate, Flush, Fsync, Link, Mkdir, Mknod, Open, Read, Readdir, Release, Rename,
    SetAttr, Setxattr, Symlink, Write,
};
use pelago_fuse::protocol::{FOPEN_CACHE_DIR, FOPEN_KEEP_CACHE};
use pelago_fuse::reply::{Attributes, Created, Entry, Opened, Statfs, Written, Xattr};
use pelago_fuse::request::Header;
use pelago_fuse::{Attr, Errno, FileType, Filesystem, Reply, Timestamp};
use pelago_mount::{Atime, IoUring, Keeps, MountOptions, TTL, Trusts, serve};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let Some(point) = arguments.next().map(PathBuf::from) else {
        eprintln!("usage: nullfs POINT [io-uring]");
        return ExitCode::from(2);
    };
    let io_uring = if arguments.next().is_some() { IoUring::Always } else { IoUring::Never };
    let options = MountOptions {
        mount_point: point,
        fs_name: "null".to_owned(),
        read_only: false,
        atime: Atime::default(),
        trusts: Trusts::default(),
        passthrough: false,
        inode_table_bytes: 0,
        io_uring,
        keeps: Keeps::default(),
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
    let mount = Arc::new(serve(Arc::new(Null::new()), options)?);
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

/// The offset of a name in a listing is its number plus this; the dots have the two offsets below.
const FIRST_OFFSET: u64 = 3;

struct Null(Mutex<Tree>);

struct Tree {
    nodes: HashMap<u64, Node>,
    /// The last number that an inode or a name has got.
    last: u64,
}

struct Node {
    attr: Attr,
    parent: u64,
    /// The number of each name in `order`.
    names: HashMap<Vec<u8>, u64>,
    /// The order of listings, with the inode of each name.
    order: BTreeMap<u64, (Vec<u8>, u64)>,
    target: Vec<u8>,
    /// Size of each extended attribute in bytes.
    xattrs: BTreeMap<Vec<u8>, usize>,
}

impl Null {
    fn new() -> Self {
        let root = Node::new(1, 1, FileType::Directory, 0o755, 0);
        Self(Mutex::new(Tree { nodes: HashMap::from([(1, root)]), last: 1 }))
    }
}

impl Node {
    fn new(ino: u64, parent: u64, file_type: FileType, mode: u32, uid: u32) -> Self {
        let attr = Attr {
            ino,
            size: 0,
            blocks: 0,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            file_type,
            mode: (mode & 0o7777) as u16,
            links: if file_type == FileType::Directory { 2 } else { 1 },
            uid,
            gid: uid,
            rdev: 0,
            block_bytes: 4096,
        };
        Self {
            attr,
            parent,
            names: HashMap::new(),
            order: BTreeMap::new(),
            target: Vec::new(),
            xattrs: BTreeMap::new(),
        }
    }

    fn find(&self, name: &OsStr) -> Option<u64> {
        let number = self.names.get(name.as_bytes())?;
        self.order.get(number).map(|(_, ino)| *ino)
    }

    fn put(&mut self, name: &[u8], number: u64, ino: u64) {
        self.names.insert(name.to_vec(), number);
        self.order.insert(number, (name.to_vec(), ino));
    }

    fn take(&mut self, name: &[u8]) -> Option<u64> {
        let number = self.names.remove(name)?;
        self.order.remove(&number).map(|(_, ino)| ino)
    }
}

impl Tree {
    fn make(
        &mut self,
        parent: NodeId,
        name: &OsStr,
        file_type: FileType,
        mode: u32,
    ) -> Option<Attr> {
        let name = name.as_bytes();
        let dir = self.nodes.get_mut(&parent.0)?;
        if dir.names.contains_key(name) {
            return None;
        }
        self.last += 1;
        dir.put(name, self.last, self.last);
        let node = Node::new(self.last, parent.0, file_type, mode, dir.attr.uid);
        let attr = node.attr;
        self.nodes.insert(self.last, node);
        Some(attr)
    }

    fn link(&mut self, node: NodeId, dir: NodeId, name: &OsStr) -> Option<Attr> {
        self.last += 1;
        self.nodes.get_mut(&dir.0)?.put(name.as_bytes(), self.last, node.0);
        let attr = &mut self.nodes.get_mut(&node.0)?.attr;
        attr.links += 1;
        Some(*attr)
    }

    fn take(&mut self, dir: NodeId, name: &OsStr) -> Option<u64> {
        self.nodes.get_mut(&dir.0)?.take(name.as_bytes())
    }

    /// Removes a name, and the inode with its last name.
    fn remove(&mut self, dir: NodeId, name: &OsStr) -> Option<u64> {
        let ino = self.take(dir, name)?;
        let attr = &mut self.nodes.get_mut(&ino)?.attr;
        attr.links -= 1;
        if attr.links == 0 || attr.file_type == FileType::Directory {
            self.nodes.remove(&ino);
        }
        Some(ino)
    }

    fn attr(&self, node: NodeId) -> Option<Attr> {
        self.nodes.get(&node.0).map(|node| node.attr)
    }

    /// Calls `add` with the entries after an offset, each with the offset after it.
    fn list(
        &self,
        dir: NodeId,
        offset: u64,
        mut add: impl FnMut(Attr, u64, &[u8]) -> bool,
    ) -> Option<()> {
        let node = self.nodes.get(&dir.0)?;
        for (place, name, ino) in [(0, &b"."[..], dir.0), (1, b"..", node.parent)] {
            if offset <= place && !add(self.attr(NodeId(ino))?, place + 1, name) {
                return Some(());
            }
        }
        let last = offset.saturating_sub(FIRST_OFFSET);
        for (number, (name, ino)) in node.order.range((Bound::Excluded(last), Bound::Unbounded)) {
            if !add(self.attr(NodeId(*ino))?, number + FIRST_OFFSET, name) {
                break;
            }
        }
        Some(())
    }
}

fn opened() -> Opened {
    Opened { file: FileId(0), flags: FOPEN_KEEP_CACHE, backing: None }
}

fn entry_of(attr: Attr) -> Entry {
    Entry { node: NodeId(attr.ino), generation: 0, entry_ttl: TTL, attr_ttl: TTL, attr }
}

fn made(made: Option<Attr>, reply: Reply<Entry>) {
    match made {
        Some(attr) => reply.ok(&entry_of(attr)),
        None => reply.error(Errno::EXIST),
    }
}

fn removed(removed: Option<u64>, reply: Reply<()>) {
    match removed {
        Some(_) => reply.ok(&()),
        None => reply.error(Errno::NOENT),
    }
}

impl Filesystem for Null {
    fn lookup(&self, header: &Header, name: &OsStr, reply: Reply<Entry>) {
        let tree = self.0.lock();
        let ino = tree.nodes.get(&header.node.0).and_then(|dir| dir.find(name));
        match ino.and_then(|ino| tree.attr(NodeId(ino))) {
            Some(attr) => reply.ok(&entry_of(attr)),
            None => {
                let none = Node::new(0, 0, FileType::Regular, 0, 0).attr;
                reply.ok(&Entry { attr_ttl: Duration::ZERO, ..entry_of(none) });
            }
        }
    }

    fn get_attr(&self, header: &Header, _file: Option<FileId>, reply: Reply<Attributes>) {
        match self.0.lock().attr(header.node) {
            Some(attr) => reply.ok(&Attributes { ttl: TTL, attr }),
            None => reply.error(Errno::STALE),
        }
    }

    fn set_attr(&self, header: &Header, request: SetAttr, reply: Reply<Attributes>) {
        match self.0.lock().nodes.get_mut(&header.node.0) {
            Some(Node { attr, .. }) => {
                attr.mode = request.mode.map_or(attr.mode, |mode| (mode & 0o7777) as u16);
                attr.uid = request.uid.unwrap_or(attr.uid);
                attr.gid = request.gid.unwrap_or(attr.gid);
                attr.size = request.size.unwrap_or(attr.size);
                reply.ok(&Attributes { ttl: TTL, attr: *attr });
            }
            None => reply.error(Errno::STALE),
        }
    }

    fn readlink(&self, header: &Header, reply: Reply<[u8]>) {
        match self.0.lock().nodes.get(&header.node.0) {
            Some(node) => reply.ok(&node.target),
            None => reply.error(Errno::STALE),
        }
    }

    fn symlink(&self, header: &Header, request: Symlink<'_>, reply: Reply<Entry>) {
        let mut tree = self.0.lock();
        let attr = tree.make(header.node, request.name, FileType::Symlink, 0o777);
        if let Some(node) = attr.and_then(|attr| tree.nodes.get_mut(&attr.ino)) {
            node.target = request.target.as_bytes().to_vec();
            node.attr.size = node.target.len() as u64;
        }
        made(attr, reply);
    }

    fn mknod(&self, header: &Header, request: Mknod<'_>, reply: Reply<Entry>) {
        let mode = request.mode & !request.umask;
        made(self.0.lock().make(header.node, request.name, FileType::Regular, mode), reply);
    }

    fn mkdir(&self, header: &Header, request: Mkdir<'_>, reply: Reply<Entry>) {
        let mode = request.mode & !request.umask;
        made(self.0.lock().make(header.node, request.name, FileType::Directory, mode), reply);
    }

    fn unlink(&self, header: &Header, name: &OsStr, reply: Reply<()>) {
        removed(self.0.lock().remove(header.node, name), reply);
    }

    fn rmdir(&self, header: &Header, name: &OsStr, reply: Reply<()>) {
        let mut tree = self.0.lock();
        let ino = tree.nodes.get(&header.node.0).and_then(|dir| dir.find(name));
        let full = |ino| tree.nodes.get(&ino).is_some_and(|node| !node.names.is_empty());
        if ino.is_some_and(full) {
            return reply.error(Errno::NOTEMPTY);
        }
        removed(tree.remove(header.node, name), reply);
    }

    fn rename(&self, header: &Header, request: Rename<'_>, reply: Reply<()>) {
        let mut tree = self.0.lock();
        let moved = tree.take(header.node, request.name);
        if let Some(ino) = moved {
            tree.remove(request.to_dir, request.to_name);
            tree.last += 1;
            let number = tree.last;
            if let Some(dir) = tree.nodes.get_mut(&request.to_dir.0) {
                dir.put(request.to_name.as_bytes(), number, ino);
            }
        }
        removed(moved, reply);
    }

    fn link(&self, header: &Header, request: Link<'_>, reply: Reply<Entry>) {
        made(self.0.lock().link(request.node, header.node, request.name), reply);
    }

    fn open(&self, _header: &Header, _request: Open, reply: Reply<Opened>) {
        reply.ok(&opened());
    }

    fn create(&self, header: &Header, request: Create<'_>, reply: Reply<Created>) {
        let mode = request.mode & !request.umask;
        let made = self.0.lock().make(header.node, request.name, FileType::Regular, mode);
        match made {
            Some(attr) => reply.ok(&Created { entry: entry_of(attr), opened: opened() }),
            None => reply.error(Errno::EXIST),
        }
    }

    fn read(&self, header: &Header, request: Read, reply: Reply<[u8]>) {
        let end = self.0.lock().attr(header.node).map_or(0, |attr| attr.size);
        let length = end.saturating_sub(request.offset).min(u64::from(request.size));
        reply.ok(&vec![0; usize::try_from(length).unwrap_or(0)]);
    }

    fn write(&self, header: &Header, request: Write<'_>, reply: Reply<Written>) {
        let length = u32::try_from(request.data.len()).unwrap_or(0);
        if let Some(node) = self.0.lock().nodes.get_mut(&header.node.0) {
            node.attr.size = node.attr.size.max(request.offset + u64::from(length));
        }
        reply.ok(&Written(length));
    }

    fn flush(&self, _header: &Header, _request: Flush, reply: Reply<()>) {
        reply.ok(&());
    }

    fn release(&self, _header: &Header, _request: Release, reply: Reply<()>) {
        reply.ok(&());
    }

    fn fsync(&self, _header: &Header, _request: Fsync, reply: Reply<()>) {
        reply.ok(&());
    }

    fn opendir(&self, _header: &Header, _flags: i32, reply: Reply<Opened>) {
        let flags = FOPEN_CACHE_DIR | FOPEN_KEEP_CACHE;
        reply.ok(&Opened { file: FileId(0), flags, backing: None });
    }

    fn readdir(
        &self,
        header: &Header,
        request: Readdir,
        mut listing: Listing,
        reply: Reply<Listing>,
    ) {
        let listed = self.0.lock().list(header.node, request.offset, |attr, offset, name| {
            let Attr { ino, file_type, .. } = attr;
            listing.add(Dirent { ino, offset, file_type, name }, Some(&entry_of(attr)))
        });
        match listed {
            Some(()) => reply.ok(&listing),
            None => reply.error(Errno::STALE),
        }
    }

    fn releasedir(&self, _header: &Header, _file: FileId, reply: Reply<()>) {
        reply.ok(&());
    }

    fn statfs(&self, _header: &Header, reply: Reply<Statfs>) {
        reply.ok(&Statfs {
            blocks: 1 << 30,
            free: 1 << 30,
            available: 1 << 30,
            files: 1 << 30,
            free_files: 1 << 30,
            block_bytes: 4096,
            name_bytes: 255,
        });
    }

    fn setxattr(&self, header: &Header, request: Setxattr<'_>, reply: Reply<()>) {
        match self.0.lock().nodes.get_mut(&header.node.0) {
            Some(node) => {
                node.xattrs.insert(request.name.as_bytes().to_vec(), request.value.len());
                reply.ok(&());
            }
            None => reply.error(Errno::STALE),
        }
    }

    fn getxattr(&self, header: &Header, name: &OsStr, size: u32, reply: Reply<Xattr>) {
        let tree = self.0.lock();
        let node = tree.nodes.get(&header.node.0);
        match node.and_then(|node| node.xattrs.get(name.as_bytes())) {
            Some(length) => xattr(vec![0; *length], size, reply),
            None => reply.error(Errno::NODATA),
        }
    }

    fn listxattr(&self, header: &Header, size: u32, reply: Reply<Xattr>) {
        match self.0.lock().nodes.get(&header.node.0) {
            Some(node) => {
                let names = node.xattrs.keys().flat_map(|name| [&name[..], &b"\0"[..]]);
                xattr(names.flatten().copied().collect(), size, reply);
            }
            None => reply.error(Errno::STALE),
        }
    }

    fn removexattr(&self, header: &Header, name: &OsStr, reply: Reply<()>) {
        let mut tree = self.0.lock();
        let node = tree.nodes.get_mut(&header.node.0);
        match node.and_then(|node| node.xattrs.remove(name.as_bytes())) {
            Some(_) => reply.ok(&()),
            None => reply.error(Errno::NODATA),
        }
    }

    fn fallocate(&self, header: &Header, request: Fallocate, reply: Reply<()>) {
        match self.0.lock().nodes.get_mut(&header.node.0) {
            Some(node) if request.mode == 0 => {
                node.attr.size = node.attr.size.max(request.offset.saturating_add(request.length));
                reply.ok(&());
            }
            Some(_) => reply.error(Errno::OPNOTSUPP),
            None => reply.error(Errno::STALE),
        }
    }
}

fn xattr(bytes: Vec<u8>, size: u32, reply: Reply<Xattr>) {
    match u32::try_from(bytes.len()) {
        Ok(length) if size == 0 => reply.ok(&Xattr::Size(length)),
        Ok(length) if length <= size => reply.ok(&Xattr::Value(bytes)),
        Ok(_) => reply.error(Errno::RANGE),
        Err(_) => reply.error(Errno::TOOBIG),
    }
}
