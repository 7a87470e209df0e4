//! A small server in memory, strict about hints: a file of one name is found only by the handle
//! that says where it is now.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::Bound;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_wire::{
    Attr, Backing, Buffer, Bulk, Code, Context, Cookie, DataPath, DirEntry, Done, Entry, Error,
    FileKind, Handle, InodeId, Name, NameHash, OpenFlags, OpenId, RenameFlags, Reply, Request,
    Service, SetAttr, SetTime, Time, VolumeStats, WriteFlags, XattrFlags,
};
use rustix::process::{getegid, geteuid};

type Answer = Result<Reply, Error>;
type Key = (u64, Vec<u8>);

pub(crate) struct Memory {
    hash: fn(&[u8]) -> u64,
    state: Mutex<State>,
    /// While set, fsyncs stay unanswered.
    pub(crate) stalls: AtomicBool,
    stalled: Mutex<Vec<Done>>,
    /// While set, writes are held and not carried out.
    pub(crate) holds_writes: AtomicBool,
    /// While set, new directories are held and not made.
    pub(crate) holds_dirs: AtomicBool,
    held: Mutex<Vec<HeldRequest>>,
    pub(crate) requests: AtomicU64,
    /// Reads and writes among the requests.
    pub(crate) transfers: AtomicU64,
    /// Listings among the requests.
    pub(crate) lists: AtomicU64,
}

struct State {
    nodes: HashMap<u64, Node>,
    opens: HashMap<u64, Open>,
    last: u64,
    hands_out: HandsOut,
}

struct HeldRequest {
    context: Context,
    request: Request,
    bytes: Vec<u8>,
    done: Done,
}

/// The descriptors that opens with passthrough get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandsOut {
    /// No descriptor.
    Nothing,
    /// No descriptor, and the kernel keeps no pages.
    NoPages,
    /// The descriptor of the file with the bytes.
    Files,
    /// A descriptor that the kernel refuses.
    Devices,
}

struct Open {
    ino: u64,
    flags: OpenFlags,
    by_descriptor: bool,
}

#[derive(Clone)]
struct Node {
    attr: Attr,
    parent: u64,
    /// Place of the row of a file with one name.
    place: Option<(u64, u64)>,
    names: BTreeMap<Key, u64>,
    bytes: Vec<u8>,
    /// The file with the bytes, once a descriptor was handed out.
    content: Option<Content>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Memory {
    pub(crate) fn new(hash: fn(&[u8]) -> u64) -> Self {
        let hands_out = HandsOut::Nothing;
        let nodes = HashMap::new();
        let opens = HashMap::new();
        let mut state = State { nodes, opens, last: 1, hands_out };
        let root = node(1, FileKind::Directory, 0o755, &ourselves());
        state.nodes.insert(1, root);
        Self {
            hash,
            state: Mutex::new(state),
            stalls: AtomicBool::new(false),
            stalled: Mutex::new(Vec::new()),
            holds_writes: AtomicBool::new(false),
            holds_dirs: AtomicBool::new(false),
            held: Mutex::new(Vec::new()),
            requests: AtomicU64::new(0),
            transfers: AtomicU64::new(0),
            lists: AtomicU64::new(0),
        }
    }

    /// Sets which descriptors opens get from now on.
    pub(crate) fn hand_out(&self, what: HandsOut) {
        self.state.lock().hands_out = what;
    }

    /// Returns the number of opens with passthrough.
    pub(crate) fn opens_by_descriptor(&self) -> usize {
        self.state.lock().opens.values().filter(|open| open.by_descriptor).count()
    }

    /// Creates a file in the root, unseen by the kernel.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        let name = Name::new(name.as_bytes()).unwrap();
        let made = node(0, FileKind::Regular, 0o644, &ourselves());
        let mut state = self.state.lock();
        let entry = state.make(self.hash, Handle::ROOT, &name, made).unwrap();
        state.nodes.get_mut(&entry.handle.ino.raw()).unwrap().bytes = bytes.to_vec();
    }

    /// Returns the inode number of a file in the root.
    pub(crate) fn ino(&self, name: &str) -> u64 {
        let name = Name::new(name.as_bytes()).unwrap();
        self.state.lock().ino_at(Handle::ROOT, &key(self.hash, &name)).unwrap()
    }

    /// Returns the attributes that an inode has now.
    pub(crate) fn attr_of(&self, ino: u64) -> Option<Attr> {
        self.state.lock().nodes.get(&ino).map(Node::attr)
    }

    /// Adds bytes to the end of a file in the root, as another client does.
    pub(crate) fn append(&self, name: &str, bytes: &[u8]) {
        let name = Name::new(name.as_bytes()).unwrap();
        let mut state = self.state.lock();
        let ino = state.ino_at(Handle::ROOT, &key(self.hash, &name)).unwrap();
        let node = state.nodes.get_mut(&ino).unwrap();
        node.write(node.attr().size as usize, bytes);
        node.touch();
    }

    /// Replaces the bytes of a file in the root, as another client does that sets their time back.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) {
        let name = Name::new(name.as_bytes()).unwrap();
        let mut state = self.state.lock();
        let ino = state.ino_at(Handle::ROOT, &key(self.hash, &name)).unwrap();
        let node = state.nodes.get_mut(&ino).unwrap();
        node.bytes = bytes.to_vec();
        node.attr.ctime = node.attr.ctime.next();
    }

    /// Creates a file in the root, as another client does that sets the root's time back.
    pub(crate) fn put_unseen(&self, name: &str) {
        let before = self.state.lock().nodes[&1].attr.mtime;
        self.put(name, b"");
        self.state.lock().nodes.get_mut(&1).unwrap().attr.mtime = before;
    }

    /// Returns how many fsyncs wait.
    pub(crate) fn waiting(&self) -> usize {
        self.stalled.lock().len()
    }

    /// Replies to all fsyncs that wait.
    pub(crate) fn go_on(&self) {
        self.stalls.store(false, Ordering::SeqCst);
        for done in self.stalled.lock().drain(..) {
            done(Ok(Reply::Done));
        }
    }

    /// Returns how many requests are held.
    pub(crate) fn held_requests(&self) -> usize {
        self.held.lock().len()
    }

    /// Carries out the held requests.
    pub(crate) fn let_requests_go(&self) {
        self.holds_writes.store(false, Ordering::SeqCst);
        self.holds_dirs.store(false, Ordering::SeqCst);
        let held = std::mem::take(&mut *self.held.lock());
        for HeldRequest { context, request, bytes, done } in held {
            let answer = self.state.lock().answer(self.hash, &context, request, &bytes);
            done(answer);
        }
    }

    /// Returns the number of open files.
    pub(crate) fn opens(&self) -> usize {
        self.state.lock().opens.len()
    }
}

impl Service for Memory {
    fn ask(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if matches!(request, Request::Read { .. } | Request::Write { .. }) {
            self.transfers.fetch_add(1, Ordering::Relaxed);
        }
        if matches!(request, Request::List { .. }) {
            self.lists.fetch_add(1, Ordering::Relaxed);
        }
        if matches!(request, Request::Fsync { .. }) && self.stalls.load(Ordering::SeqCst) {
            self.stalled.lock().push(later());
            return None;
        }
        let is_held = match request {
            Request::Write { .. } => self.holds_writes.load(Ordering::SeqCst),
            Request::MakeDir { .. } => self.holds_dirs.load(Ordering::SeqCst),
            _ => false,
        };
        if is_held {
            let context = *context;
            let bytes = bulk.bytes().to_vec();
            self.held.lock().push(HeldRequest { context, request, bytes, done: later() });
            return None;
        }
        Some(self.state.lock().answer(self.hash, context, request, bulk.bytes()))
    }
}

/// An unnamed file, and a descriptor of it for the kernel.
#[derive(Clone)]
struct Content {
    file: Arc<File>,
    backing: Backing,
}

impl Content {
    fn new() -> Self {
        let file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let again = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        Self { file: Arc::new(file), backing: Backing::new(again.into()) }
    }
}

/// The context of the user that runs the test, who may do everything in the mount.
fn ourselves() -> Context {
    Context::direct(geteuid().as_raw(), getegid().as_raw())
}

fn node(ino: u64, kind: FileKind, mode: u16, context: &Context) -> Node {
    let now = Time { seconds: 1_000_000_000, nanos: 5 };
    let attr = Attr {
        mode,
        links: if kind == FileKind::Directory { 2 } else { 1 },
        uid: context.uid,
        gid: context.gid,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        ..Attr::empty(InodeId::from_raw(ino), kind)
    };
    Node {
        attr,
        parent: ino,
        place: None,
        names: BTreeMap::new(),
        bytes: Vec::new(),
        content: None,
        xattrs: BTreeMap::new(),
    }
}

impl Node {
    fn attr(&self) -> Attr {
        let Some(content) = &self.content else {
            let size = self.bytes.len() as u64;
            return Attr { size, blocks: size.div_ceil(512), ..self.attr };
        };
        let meta = content.file.metadata().unwrap();
        let time = |seconds, nanos| Time { seconds, nanos: u32::try_from(nanos).unwrap() };
        Attr {
            size: meta.size(),
            blocks: meta.blocks(),
            mtime: time(meta.mtime(), meta.mtime_nsec()),
            ctime: self.attr.ctime.max(time(meta.ctime(), meta.ctime_nsec())),
            volatile: true,
            has_xattrs: false,
            ..self.attr
        }
    }

    /// Truncates or extends the file.
    fn resize(&mut self, size: u64) {
        match &self.content {
            Some(content) => content.file.set_len(size).unwrap(),
            None => self.bytes.resize(size as usize, 0),
        }
    }

    /// Returns a descriptor of the file with the bytes, after creating it if necessary.
    fn backing(&mut self) -> Backing {
        if self.content.is_none() {
            let content = Content::new();
            content.file.write_all_at(&self.bytes, 0).unwrap();
            self.content = Some(content);
        }
        self.content.as_ref().unwrap().backing.clone()
    }

    fn read(&self, offset: u64, size: usize) -> Vec<u8> {
        let Some(content) = &self.content else {
            let start = self.bytes.len().min(offset as usize);
            let end = self.bytes.len().min(start + size);
            return self.bytes[start..end].to_vec();
        };
        let mut bytes = vec![0; size];
        let mut filled = 0;
        while filled < size {
            let read = content.file.read_at(&mut bytes[filled..], offset + filled as u64).unwrap();
            if read == 0 {
                break;
            }
            filled += read;
        }
        bytes.truncate(filled);
        bytes
    }

    fn write(&mut self, start: usize, bytes: &[u8]) {
        match &self.content {
            Some(content) => content.file.write_all_at(bytes, start as u64).unwrap(),
            None => {
                let end = start + bytes.len();
                self.bytes.resize(self.bytes.len().max(end), 0);
                self.bytes[start..end].copy_from_slice(bytes);
            }
        }
    }

    fn handle(&self) -> Handle {
        let ino = self.attr.ino;
        match self.place {
            Some((dir, hash)) => Handle::at(ino, InodeId::from_raw(dir), NameHash(hash)),
            None => Handle::own(ino),
        }
    }

    fn touch(&mut self) {
        self.attr.mtime = self.attr.mtime.next();
        self.attr.ctime = self.attr.ctime.next();
    }
}

impl State {
    fn find(&mut self, handle: Handle) -> Result<&mut Node, Error> {
        let node = self.nodes.get_mut(&handle.ino.raw()).ok_or(Code::Stale)?;
        if node.place.is_some() && node.handle() != handle {
            return Err(Code::Stale.into());
        }
        Ok(node)
    }

    fn entry(&self, ino: u64) -> Result<Entry, Error> {
        let node = self.nodes.get(&ino).ok_or(Code::Stale)?;
        Ok(Entry { handle: node.handle(), attr: node.attr() })
    }

    fn ino_at(&mut self, dir: Handle, key: &Key) -> Result<u64, Error> {
        self.find(dir)?.names.get(key).copied().ok_or(Error::new(Code::NotFound))
    }

    fn opened(&mut self, open: OpenId) -> Result<&mut Node, Error> {
        let ino = self.opens.get(&open.0).ok_or(Code::BadOpen)?.ino;
        Ok(self.nodes.get_mut(&ino).ok_or(Code::Stale)?)
    }

    fn make(
        &mut self,
        hash: fn(&[u8]) -> u64,
        dir: Handle,
        name: &Name,
        mut made: Node,
    ) -> Result<Entry, Error> {
        let key = key(hash, name);
        let ino = self.last + 1;
        let parent = self.find(dir)?;
        if parent.names.contains_key(&key) {
            return Err(Code::Exists.into());
        }
        parent.names.insert(key.clone(), ino);
        parent.touch();
        self.last = ino;
        made.attr.ino = InodeId::from_raw(ino);
        made.parent = dir.ino.raw();
        if made.attr.kind != FileKind::Directory {
            made.place = Some((dir.ino.raw(), key.0));
        }
        self.nodes.insert(ino, made);
        self.entry(ino)
    }

    /// Chooses the data path: all opens of a file at one time have the same.
    fn open(&mut self, ino: u64, flags: OpenFlags, open: OpenId) -> DataPath {
        let mut others = self.opens.values().filter(|open| open.ino == ino);
        let by_descriptor = match others.next() {
            Some(other) => other.by_descriptor,
            None => {
                let descriptors = matches!(self.hands_out, HandsOut::Files | HandsOut::Devices);
                flags.passthrough && descriptors
            }
        };
        self.opens.insert(open.0, Open { ino, flags, by_descriptor });
        match self.hands_out {
            HandsOut::NoPages => DataPath::Direct,
            _ if !by_descriptor => DataPath::Cached,
            HandsOut::Devices => {
                DataPath::Passthrough(Backing::new(File::open("/dev/null").unwrap().into()))
            }
            _ => DataPath::Passthrough(self.nodes.get_mut(&ino).unwrap().backing()),
        }
    }

    /// Removes a name; the file stays while it is open or has other names.
    fn drop_name(&mut self, ino: u64) -> Attr {
        let open = self.opens.values().any(|open| open.ino == ino);
        let node = self.nodes.get_mut(&ino).unwrap();
        node.attr.links = match node.attr.kind {
            FileKind::Directory => 0,
            _ => node.attr.links - 1,
        };
        node.attr.ctime = node.attr.ctime.next();
        let attr = node.attr;
        if attr.links == 0 {
            node.place = None;
            if !open {
                self.nodes.remove(&ino);
            }
        }
        attr
    }

    fn answer(
        &mut self,
        hash: fn(&[u8]) -> u64,
        context: &Context,
        request: Request,
        bulk: &[u8],
    ) -> Answer {
        match request {
            Request::Lookup { dir, name } => {
                let ino = self.ino_at(dir, &key(hash, &name))?;
                Ok(Reply::Entry(self.entry(ino)?))
            }
            Request::Parent { dir } => {
                let parent = self.find(dir)?.parent;
                Ok(Reply::Entry(self.entry(parent)?))
            }
            Request::GetAttr { node } => Ok(Reply::Attr(self.find(node)?.attr())),
            Request::SetAttr { node, set, .. } => {
                let node = self.find(node)?;
                change(node, &set);
                Ok(Reply::Attr(node.attr()))
            }
            Request::Create { dir, name, mode, flags, open } => {
                let made = node(0, FileKind::Regular, mode.masked(), context);
                let entry = self.make(hash, dir, &name, made)?;
                let path = self.open(entry.handle.ino.raw(), flags, open);
                Ok(Reply::Created { entry, path })
            }
            Request::MakeDir { dir, name, mode } => {
                let made = node(0, FileKind::Directory, mode.masked(), context);
                Ok(Reply::Entry(self.make(hash, dir, &name, made)?))
            }
            Request::MakeNode { dir, name, kind, mode, rdev } => {
                let mut made = node(0, kind, mode.masked(), context);
                made.attr.rdev = rdev;
                Ok(Reply::Entry(self.make(hash, dir, &name, made)?))
            }
            Request::Symlink { dir, name, target } => {
                let mut made = node(0, FileKind::Symlink, 0o777, context);
                made.bytes = target;
                Ok(Reply::Entry(self.make(hash, dir, &name, made)?))
            }
            Request::ReadLink { node } => Ok(Reply::Bytes(self.find(node)?.bytes.clone())),
            Request::Link { node, dir, name } => self.link(hash, node, dir, &name),
            Request::Unlink { dir, name } | Request::RemoveDir { dir, name } => {
                self.remove(dir, &key(hash, &name))
            }
            Request::Rename { from_dir, from, to_dir, to, flags } => {
                let from = key(hash, &from);
                let to = key(hash, &to);
                self.rename(from_dir, from, to_dir, to, flags)
            }
            Request::List { dir, after, behind, entries, attributes } => {
                self.list(hash, dir, after, behind.as_ref(), entries as usize, attributes)
            }
            other => self.answer_about_content(other, bulk),
        }
    }

    fn answer_about_content(&mut self, request: Request, bulk: &[u8]) -> Answer {
        match request {
            Request::Open { node, flags, open } => {
                let node = self.find(node)?;
                if flags.truncate {
                    node.resize(0);
                    node.touch();
                }
                let ino = node.attr.ino.raw();
                let path = self.open(ino, flags, open);
                Ok(Reply::Opened { attr: self.nodes[&ino].attr(), path })
            }
            Request::Flush { open, .. } => {
                let writes = self.opens.get(&open.0).is_some_and(|open| open.flags.write);
                assert!(writes, "only an open for writing is flushed");
                // The commit changes ctime again, unseen by the kernel.
                let node = self.opened(open)?;
                node.attr.ctime = node.attr.ctime.next();
                Ok(Reply::Done)
            }
            Request::Fsync { .. } | Request::FsyncDir { .. } => Ok(Reply::Done),
            Request::Release { open } => {
                let ino = self.opens.remove(&open.0).ok_or(Code::BadOpen)?.ino;
                let open = self.opens.values().any(|open| open.ino == ino);
                if !open && self.nodes.get(&ino).is_some_and(|node| node.attr.links == 0) {
                    self.nodes.remove(&ino);
                }
                Ok(Reply::Done)
            }
            Request::Read { open, offset, size } => {
                Ok(Reply::Data(Buffer::new(self.opened(open)?.read(offset, size as usize))))
            }
            Request::Write { open, offset, flags: WriteFlags { append, .. } } => {
                let node = self.opened(open)?;
                let start = if append { node.attr().size } else { offset };
                node.write(start as usize, bulk);
                node.touch();
                Ok(Reply::Written { bytes: bulk.len() as u64, size: node.attr().size })
            }
            Request::StatFs => Ok(Reply::Volume(VolumeStats {
                block_bytes: 4096,
                blocks: 1000,
                free: 500,
                available: 400,
                files: 300,
                free_files: 200,
            })),
            other => self.answer_about_xattrs(other),
        }
    }

    fn answer_about_xattrs(&mut self, request: Request) -> Answer {
        match request {
            Request::GetXattr { node, name } => {
                let value = self.find(node)?.xattrs.get(&name).cloned();
                Ok(Reply::Bytes(value.ok_or(Code::NoXattr)?))
            }
            Request::ListXattr { node } => {
                let mut names = Vec::new();
                for name in self.find(node)?.xattrs.keys() {
                    names.extend_from_slice(name);
                    names.push(0);
                }
                Ok(Reply::Bytes(names))
            }
            Request::SetXattr { node, name, value, flags, .. } => {
                let xattrs = &mut self.find(node)?.xattrs;
                match (flags, xattrs.contains_key(&name)) {
                    (XattrFlags::Create, true) => return Err(Code::Exists.into()),
                    (XattrFlags::Replace, false) => return Err(Code::NoXattr.into()),
                    _ => {}
                }
                xattrs.insert(name, value);
                Ok(Reply::Done)
            }
            Request::RemoveXattr { node, name } => {
                self.find(node)?.xattrs.remove(&name).ok_or(Code::NoXattr)?;
                Ok(Reply::Done)
            }
            _ => Err(Code::NotSupported.into()),
        }
    }

    fn link(&mut self, hash: fn(&[u8]) -> u64, from: Handle, dir: Handle, name: &Name) -> Answer {
        let key = key(hash, name);
        if self.find(dir)?.names.contains_key(&key) {
            return Err(Code::Exists.into());
        }
        let node = self.find(from)?;
        node.attr.links += 1;
        node.place = None;
        let ino = from.ino.raw();
        let parent = self.find(dir)?;
        parent.names.insert(key, ino);
        parent.touch();
        Ok(Reply::Entry(self.entry(ino)?))
    }

    fn remove(&mut self, dir: Handle, key: &Key) -> Answer {
        let ino = self.ino_at(dir, key)?;
        if self.nodes.get(&ino).is_some_and(|node| !node.names.is_empty()) {
            return Err(Code::NotEmpty.into());
        }
        let parent = self.find(dir)?;
        parent.names.remove(key);
        parent.touch();
        Ok(Reply::Removed(self.drop_name(ino)))
    }

    fn rename(
        &mut self,
        from_dir: Handle,
        from: Key,
        to_dir: Handle,
        to: Key,
        flags: RenameFlags,
    ) -> Answer {
        let ino = self.ino_at(from_dir, &from)?;
        let old = self.find(to_dir)?.names.get(&to).copied();
        let replaced = match (flags, old) {
            (RenameFlags::NoReplace, Some(_)) => return Err(Code::Exists.into()),
            (RenameFlags::Exchange, None) => return Err(Code::NotFound.into()),
            (RenameFlags::Exchange, Some(other)) => {
                self.settle(other, from_dir, &from);
                Some(self.entry(other)?)
            }
            (_, Some(old)) => {
                self.find(from_dir)?.names.remove(&from);
                let attr = self.drop_name(old);
                Some(Entry { handle: Handle::own(attr.ino), attr })
            }
            (_, None) => {
                self.find(from_dir)?.names.remove(&from);
                None
            }
        };
        self.settle(ino, to_dir, &to);
        Ok(Reply::Renamed { moved: self.entry(ino)?.handle, replaced })
    }

    /// Adds a name to a node.
    fn settle(&mut self, ino: u64, dir: Handle, key: &Key) {
        let dir = dir.ino.raw();
        let node = self.nodes.get_mut(&ino).unwrap();
        if node.place.is_some() {
            node.place = Some((dir, key.0));
        }
        node.parent = dir;
        let parent = self.nodes.get_mut(&dir).unwrap();
        parent.names.insert(key.clone(), ino);
        parent.touch();
    }

    fn list(
        &mut self,
        hash: fn(&[u8]) -> u64,
        dir: Handle,
        after: Cookie,
        behind: Option<&Name>,
        count: usize,
        attributes: bool,
    ) -> Answer {
        self.find(dir)?;
        let names = &self.nodes[&dir.ino.raw()].names;
        let within = |prefix: u64| {
            let end = NameHash::first_of(prefix + 1).0;
            names.range((NameHash::first_of(prefix).0, Vec::new())..(end, Vec::new()))
        };
        // The name to continue after, and its rank.
        let (from, mut rank) = match (after.rank(), after.first_hash_behind()) {
            (Some((_, rank)), _) if behind.is_some() => {
                let key = key(hash, behind.unwrap());
                (Bound::Excluded(key), rank)
            }
            (Some((first, rank)), _) => {
                let passed = within(first.prefix()).take(rank as usize);
                let last = passed.last().map_or((first.0, Vec::new()), |(key, _)| key.clone());
                (Bound::Excluded(last), rank)
            }
            (None, Some(first)) => {
                let before = within(first.prefix()).take_while(|((hash, _), _)| *hash < first.0);
                (Bound::Included((first.0, Vec::new())), before.count() as u64)
            }
            (None, None) => return Ok(Reply::Listed { entries: Vec::new(), end: true }),
        };
        let mut rows = names.range((from, Bound::Unbounded)).peekable();
        let mut prefix = after.rank().or_else(|| after.first_hash_behind().map(|first| (first, 0)));
        let mut entries: Vec<DirEntry> = Vec::new();
        while entries.len() < count
            && let Some(((hash, name), ino)) = rows.next()
        {
            let hash = NameHash(*hash);
            if prefix.is_none_or(|(first, _)| first.prefix() != hash.prefix()) {
                prefix = Some((hash, 0));
                rank = 0;
            }
            rank += 1;
            let next = rows.peek().map(|((hash, _), _)| Cookie::of(NameHash(*hash)));
            let is_shared = next == Some(Cookie::of(hash));
            let entry = self.entry(*ino)?;
            entries.push(DirEntry {
                name: Name::new(name).unwrap(),
                ino: entry.attr.ino,
                kind: entry.attr.kind,
                cookie: match is_shared {
                    true => Cookie::ranked(hash, rank).unwrap(),
                    false => Cookie::of(hash),
                },
                entry: attributes.then_some(entry),
            });
        }
        let end = rows.peek().is_none();
        Ok(Reply::Listed { entries, end })
    }
}

fn key(hash: fn(&[u8]) -> u64, name: &Name) -> Key {
    (hash(name.as_bytes()), name.as_bytes().to_vec())
}

fn change(node: &mut Node, set: &SetAttr) {
    let attr = &mut node.attr;
    attr.ctime = attr.ctime.next();
    if set.kill_privileges {
        attr.mode &= !0o4000;
    }
    attr.mode = set.mode.unwrap_or(attr.mode);
    attr.uid = set.uid.unwrap_or(attr.uid);
    attr.gid = set.gid.unwrap_or(attr.gid);
    if let Some(SetTime::To(time)) = set.atime {
        attr.atime = time;
    }
    if let Some(SetTime::To(time)) = set.mtime {
        attr.mtime = time;
        if let Some(content) = &node.content {
            content
                .file
                .set_modified(
                    std::time::UNIX_EPOCH + Duration::new(time.seconds as u64, time.nanos),
                )
                .unwrap();
        }
    }
    if let Some(size) = set.size {
        node.resize(size);
    }
}

/// A hash that spreads names.
pub(crate) fn spread(name: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    name.iter().fold(start, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    })
}

/// A hash that all names share.
pub(crate) fn same(_name: &[u8]) -> u64 {
    0x1234_5678_9abc_def0
}

/// A hash with one cookie for about three names each, and neighbouring cookies for others.
pub(crate) fn collide(name: &[u8]) -> u64 {
    let number: u64 = std::str::from_utf8(name).unwrap().parse().unwrap();
    (number / 3) << 2 | number & 1
}
