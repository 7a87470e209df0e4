//! Programs on `Files`: a naive file system in memory, written independently of the model, must
//! agree with it. Also the benchmark of `Files`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use pelago_bench::{DirectOptions, direct};
use pelago_client::{
    At, ByteRange, Created, FilePos, Files, Listing, NewNode, Opened, Removed, Renamed, Written,
    Xattr,
};
use pelago_wire::{
    AllocateMode, Attr, Buffer, Bulk, Code, Context, Cookie, DataPath, DirEntry, Done, Entry,
    Error, FileKind, Handle, InodeId, Name, NameHash, NewMode, OpenFlags, OpenId, RenameFlags,
    Reply, Request, SeekFrom, Service, SetAttr, SetTime, Time, VolumeStats, Whence, WriteFlags,
    XattrFlags,
};
use pelago_workload::compare::run_program;
use pelago_workload::target::FilesTarget;

#[test]
fn a_naive_file_system_agrees_with_the_model() {
    for seed in 0..100 {
        let files = Files::new(Arc::new(Naive::default()));
        let mut target = FilesTarget::new(files, Context::direct(0, 0), true);
        run_program(seed, 150, &mut target).unwrap_or_else(|divergence| panic!("{divergence}"));
    }
}

#[test]
fn a_file_system_that_forgets_renames_is_detected() {
    let broken = |seed| {
        let files = Files::new(Arc::new(Naive { forgets_renames: true, ..Naive::default() }));
        let mut target = FilesTarget::new(files, Context::direct(0, 0), true);
        run_program(seed, 400, &mut target).is_err()
    };
    assert!((0..10).all(broken));
}

#[test]
fn the_benchmark_creates_every_file_once() {
    let files = Files::new(Arc::new(Naive::default()));
    let dir = Name::new(b"bench").unwrap();
    let options = DirectOptions { dir: dir.clone(), callers: 3, count: 500 };
    let report = direct(&files, &options).unwrap();
    assert_eq!((report.count, report.windows.len()), (500, 1));
    let context = Context::direct(0, 0);
    let entry = files.lookup(&context, At::new(Handle::ROOT, dir)).wait().unwrap();
    assert_eq!(entry.attr.size, 500);
}

#[test]
fn the_benchmark_refuses_a_directory_that_exists() {
    let files = Files::new(Arc::new(Naive::default()));
    let options = DirectOptions { dir: Name::new(b"bench").unwrap(), callers: 1, count: 1 };
    direct(&files, &options).unwrap();
    assert!(direct(&files, &options).is_err());
}

/// A file system in maps, with one lock and a counter as its clock.
#[derive(Default)]
struct Naive {
    disk: Mutex<Disk>,
    forgets_renames: bool,
}

struct Disk {
    nodes: BTreeMap<u64, Node>,
    names: BTreeMap<(u64, Name), u64>,
    opens: BTreeMap<u64, (u64, OpenFlags)>,
    next: u64,
    clock: i64,
}

struct Node {
    attr: Attr,
    bytes: BTreeMap<u64, u8>,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    awaits_name: bool,
}

impl Default for Disk {
    fn default() -> Self {
        let mut disk = Self {
            nodes: BTreeMap::new(),
            names: BTreeMap::new(),
            opens: BTreeMap::new(),
            next: 1,
            clock: 2_000_000_000,
        };
        disk.new_node(FileKind::Directory, 0o755);
        disk
    }
}

impl Disk {
    fn now(&mut self) -> Time {
        self.clock += 1;
        Time { seconds: self.clock, nanos: 0 }
    }

    fn new_node(&mut self, kind: FileKind, mode: u16) -> u64 {
        let now = self.now();
        let ino = self.next;
        self.next += 1;
        let attr = Attr {
            mode,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            ..Attr::empty(InodeId::from_raw(ino), kind)
        };
        let bytes = BTreeMap::new();
        let target = Vec::new();
        let xattrs = BTreeMap::new();
        self.nodes.insert(ino, Node { attr, bytes, target, xattrs, awaits_name: false });
        ino
    }

    fn node(&mut self, ino: u64) -> Result<&mut Node, Error> {
        self.nodes.get_mut(&ino).ok_or_else(|| Code::Stale.into())
    }

    fn attr(&self, ino: u64) -> Result<Attr, Error> {
        let mut attr = self.nodes.get(&ino).ok_or(Error::new(Code::Stale))?.attr;
        let names = self.names.iter();
        if attr.kind == FileKind::Directory {
            let children: Vec<u64> =
                names.filter(|((dir, _), _)| *dir == ino).map(|(_, child)| *child).collect();
            attr.size = children.len() as u64;
            attr.links = 2 + children.iter().filter(|child| self.is_dir(**child)).count() as u32;
        } else {
            attr.links = names.filter(|(_, child)| **child == ino).count() as u32;
        }
        Ok(attr)
    }

    fn is_dir(&self, ino: u64) -> bool {
        self.nodes.get(&ino).is_some_and(|node| node.attr.kind == FileKind::Directory)
    }

    fn entry(&self, ino: u64) -> Result<Entry, Error> {
        let attr = self.attr(ino)?;
        Ok(Entry { handle: Handle::own(attr.ino), attr })
    }

    fn child(&self, at: &At) -> Result<u64, Error> {
        let key = (at.dir.ino.raw(), at.name.clone());
        self.names.get(&key).copied().ok_or_else(|| Code::NotFound.into())
    }

    fn changed(&mut self, ino: u64, bytes_too: bool) -> Result<(), Error> {
        let now = self.now();
        let attr = &mut self.node(ino)?.attr;
        attr.ctime = now;
        if bytes_too {
            attr.mtime = now;
        }
        Ok(())
    }

    fn put(&mut self, at: &At, ino: u64) -> Result<Entry, Error> {
        let dir = at.dir.ino.raw();
        self.names.insert((dir, at.name.clone()), ino);
        self.changed(dir, true)?;
        self.changed(ino, false)?;
        self.entry(ino)
    }

    fn make(&mut self, at: &At, kind: FileKind, mode: u16) -> Result<u64, Error> {
        if self.child(at).is_ok() {
            return Err(Code::Exists.into());
        }
        let ino = self.new_node(kind, mode);
        self.put(at, ino)?;
        Ok(ino)
    }

    fn take(&mut self, at: &At) -> Result<Removed, Error> {
        let ino = self.child(at)?;
        let dir = at.dir.ino.raw();
        self.names.remove(&(dir, at.name.clone()));
        self.changed(dir, true)?;
        self.changed(ino, false)?;
        let attr = self.attr(ino)?;
        self.sweep();
        Ok(Removed { attr })
    }

    /// Removes nodes that have no name and are not open.
    fn sweep(&mut self) {
        let names = &self.names;
        let opens = &self.opens;
        self.nodes.retain(|ino, _| {
            *ino == 1
                || names.values().any(|other| other == ino)
                || opens.values().any(|(other, _)| other == ino)
        });
    }

    fn parent(&self, dir: u64) -> u64 {
        let found = self.names.iter().find(|(_, ino)| **ino == dir);
        found.map_or(1, |((parent, _), _)| *parent)
    }

    fn is_within(&self, mut dir: u64, above: u64) -> bool {
        while dir != above && dir != 1 {
            dir = self.parent(dir);
        }
        dir == above
    }

    fn rename(&mut self, from: &At, to: &At, flags: RenameFlags) -> Result<(), Error> {
        let moved = self.child(from)?;
        let target = self.child(to).ok();
        let fail = |code: Code| Err(code.into());
        let replaces = flags.replaces() || flags == RenameFlags::Exchange;
        if !replaces && target.is_some() {
            return fail(Code::Exists);
        }
        let up =
            |disk: &Self, ino, dir: Handle| disk.is_dir(ino) && disk.is_within(dir.ino.raw(), ino);
        if up(self, moved, to.dir) {
            return fail(Code::WouldLoop);
        }
        if target == Some(moved) {
            return Ok(());
        }
        match (flags, target) {
            (RenameFlags::Exchange, None) => return fail(Code::NotFound),
            (RenameFlags::Exchange, Some(other)) => {
                if up(self, other, from.dir) {
                    return fail(Code::WouldLoop);
                }
                self.put(from, other)?;
                self.put(to, moved)?;
                return Ok(());
            }
            (_, Some(other)) => match (self.is_dir(moved), self.is_dir(other)) {
                (true, false) => return fail(Code::NotDirectory),
                (false, true) => return fail(Code::IsDirectory),
                _ if self.is_dir(other) && self.attr(other)?.size > 0 => {
                    return fail(Code::NotEmpty);
                }
                _ => self.changed(other, false)?,
            },
            (_, None) => {}
        }
        self.put(to, moved)?;
        self.take(from)?;
        if flags.leaves_a_whiteout() {
            self.make(from, FileKind::CharDevice, 0)?;
        }
        Ok(())
    }

    fn resize(&mut self, ino: u64, size: u64) -> Result<(), Error> {
        if self.is_dir(ino) {
            return Err(Code::IsDirectory.into());
        }
        let node = self.node(ino)?;
        node.bytes.split_off(&size);
        node.attr.size = size;
        self.changed(ino, true)
    }

    fn opened(&self, open: OpenId) -> Result<(u64, OpenFlags), Error> {
        self.opens.get(&open.0).copied().ok_or_else(|| Code::BadOpen.into())
    }

    fn open(&mut self, ino: u64, open: OpenId, flags: OpenFlags) -> Result<OpenId, Error> {
        if flags.truncate && self.attr(ino)?.size > 0 {
            self.resize(ino, 0)?;
        }
        self.opens.insert(open.0, (ino, flags));
        Ok(open)
    }
}

impl Service for Naive {
    fn ask(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        _: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        Some(self.carry_out(context, request, bulk.bytes()))
    }

    fn losses(&self) -> u64 {
        0
    }
}

impl Naive {
    fn carry_out(&self, context: &Context, request: Request, bytes: &[u8]) -> Result<Reply, Error> {
        let at = |dir, name| At { dir, name };
        let created = |Created { entry, path, .. }| Reply::Created { entry, path };
        let removed = |Removed { attr }| Reply::Removed(attr);
        Ok(match request {
            Request::Lookup { dir, name } => Reply::Entry(self.lookup(context, at(dir, name))?),
            Request::Parent { dir } => Reply::Entry(self.parent(context, dir)?),
            Request::Find { ino } => Reply::Entry(self.find(context, ino)?),
            Request::GetAttr { node } => Reply::Attr(self.get_attr(context, node)?),
            Request::SetAttr { node, open, set } => {
                Reply::Attr(self.set_attr(context, node, open, set)?)
            }
            Request::Create { dir, name, mode, flags, open } => {
                created(self.create(context, at(dir, name), mode, open, flags)?)
            }
            Request::CreateUnnamed { dir, mode, flags, open } => {
                created(self.create_unnamed(context, dir, mode, open, flags)?)
            }
            Request::MakeDir { dir, name, mode } => {
                Reply::Entry(self.make_dir(context, at(dir, name), mode)?)
            }
            Request::MakeNode { dir, name, kind, mode, rdev } => {
                let node = NewNode { kind, mode, rdev };
                Reply::Entry(self.make_node(context, at(dir, name), node)?)
            }
            Request::Symlink { dir, name, target } => {
                Reply::Entry(self.symlink(context, at(dir, name), target)?)
            }
            Request::ReadLink { node } => Reply::Bytes(self.read_link(context, node)?),
            Request::Link { node, dir, name } => {
                Reply::Entry(self.link(context, node, at(dir, name))?)
            }
            Request::Unlink { dir, name } => removed(self.unlink(context, at(dir, name))?),
            Request::RemoveDir { dir, name } => removed(self.remove_dir(context, at(dir, name))?),
            Request::Rename { from_dir, from, to_dir, to, flags } => {
                let renamed = self.rename(context, at(from_dir, from), at(to_dir, to), flags)?;
                Reply::Renamed { moved: renamed.moved, replaced: renamed.replaced }
            }
            other => return self.carry_out_on_open_files(context, other, bytes),
        })
    }

    fn carry_out_on_open_files(
        &self,
        context: &Context,
        request: Request,
        bytes: &[u8],
    ) -> Result<Reply, Error> {
        let pos = |open, offset| FilePos { open, offset };
        let written = |Written { bytes, size }| Reply::Written { bytes, size };
        Ok(match request {
            Request::Open { node, flags, open } => {
                let Opened { attr, path, .. } = self.open(context, node, open, flags)?;
                Reply::Opened { attr, path }
            }
            Request::Flush { open, .. } => done(self.flush(context, open)?),
            Request::Release { open } => done(self.release(context, open)?),
            Request::Fsync { open, data_only } => done(self.fsync(context, open, data_only)?),
            Request::FsyncDir { dir, since } => done(self.fsync_dir(context, dir, since)?),
            Request::Read { open, offset, size } => {
                Reply::Data(self.read(context, open, offset, size)?)
            }
            Request::Write { open, offset, flags: WriteFlags { append, .. } } => {
                written(self.write(context, pos(open, offset), bytes, append)?)
            }
            Request::List { dir, after, behind, entries, attributes } => {
                let Listing { entries, end } =
                    self.list(context, dir, after, behind, entries, attributes)?;
                Reply::Listed { entries, end }
            }
            Request::GetXattr { node, name } => Reply::Bytes(self.get_xattr(context, node, name)?),
            Request::ListXattr { node } => Reply::Bytes(self.list_xattr(context, node)?),
            Request::SetXattr { node, name, value, flags, kill_setgid } => {
                let xattr = Xattr { name, value, kill_setgid };
                done(self.set_xattr(context, node, xattr, flags)?)
            }
            Request::RemoveXattr { node, name } => done(self.remove_xattr(context, node, name)?),
            Request::StatFs => Reply::Volume(self.stat_fs(context)?),
            Request::Allocate { open, offset, length, mode } => {
                done(self.allocate(context, open, ByteRange { offset, length }, mode)?)
            }
            Request::Seek { open, from } => Reply::Offset(self.seek(context, open, from)?),
            Request::CopyRange { from, from_offset, to, to_offset, length } => written(
                self.copy_range(context, pos(from, from_offset), pos(to, to_offset), length)?,
            ),
            other => panic!("{other:?}"),
        })
    }
}

const fn done(_nothing: ()) -> Reply {
    Reply::Done
}

impl Naive {
    fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut MutexGuard<'_, Disk>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        work(&mut self.disk.lock().unwrap())
    }
}

impl Naive {
    fn lookup(&self, _: &Context, at: At) -> Result<Entry, Error> {
        self.with(|disk| disk.entry(disk.child(&at)?))
    }

    fn parent(&self, _: &Context, dir: Handle) -> Result<Entry, Error> {
        self.with(|disk| disk.entry(disk.parent(dir.ino.raw())))
    }

    fn find(&self, _: &Context, ino: InodeId) -> Result<Entry, Error> {
        self.with(|disk| disk.entry(ino.raw()))
    }

    fn get_attr(&self, _: &Context, node: Handle) -> Result<Attr, Error> {
        self.with(|disk| disk.attr(node.ino.raw()))
    }

    fn set_attr(
        &self,
        _: &Context,
        node: Handle,
        _: Option<OpenId>,
        set: SetAttr,
    ) -> Result<Attr, Error> {
        let ino = node.ino.raw();
        self.with(|disk| {
            if let Some(size) = set.size {
                disk.resize(ino, size)?;
            }
            disk.changed(ino, false)?;
            let now = disk.now();
            let attr = &mut disk.node(ino)?.attr;
            attr.mode = set.mode.unwrap_or(attr.mode);
            match set.mtime {
                Some(SetTime::Now) => attr.mtime = now,
                Some(SetTime::To(time)) => attr.mtime = time,
                None => {}
            }
            disk.attr(ino)
        })
    }

    fn create(
        &self,
        _: &Context,
        at: At,
        mode: NewMode,
        open: OpenId,
        flags: OpenFlags,
    ) -> Result<Created, Error> {
        self.with(|disk| {
            let ino = disk.make(&at, FileKind::Regular, mode.masked())?;
            let entry = disk.entry(ino)?;
            let open = disk.open(ino, open, flags)?;
            Ok(Created { entry, open, path: DataPath::Cached })
        })
    }

    fn create_unnamed(
        &self,
        _: &Context,
        dir: Handle,
        mode: NewMode,
        open: OpenId,
        flags: OpenFlags,
    ) -> Result<Created, Error> {
        self.with(|disk| {
            if !disk.is_dir(dir.ino.raw()) {
                return Err(Code::NotDirectory.into());
            }
            let ino = disk.new_node(FileKind::Regular, mode.masked());
            disk.node(ino)?.awaits_name = true;
            let entry = disk.entry(ino)?;
            let open = disk.open(ino, open, flags)?;
            Ok(Created { entry, open, path: DataPath::Cached })
        })
    }

    fn make_dir(&self, _: &Context, at: At, mode: NewMode) -> Result<Entry, Error> {
        self.with(|disk| {
            let ino = disk.make(&at, FileKind::Directory, mode.masked())?;
            disk.entry(ino)
        })
    }

    fn make_node(&self, _: &Context, at: At, node: NewNode) -> Result<Entry, Error> {
        self.with(|disk| {
            let ino = disk.make(&at, node.kind, node.mode.masked())?;
            disk.entry(ino)
        })
    }

    fn symlink(&self, _: &Context, at: At, target: Vec<u8>) -> Result<Entry, Error> {
        self.with(|disk| {
            let ino = disk.make(&at, FileKind::Symlink, 0o777)?;
            let node = disk.node(ino)?;
            node.attr.size = target.len() as u64;
            node.target = target;
            disk.entry(ino)
        })
    }

    fn read_link(&self, _: &Context, node: Handle) -> Result<Vec<u8>, Error> {
        self.with(|disk| match disk.node(node.ino.raw())? {
            node if node.attr.kind == FileKind::Symlink => Ok(node.target.clone()),
            _ => Err(Code::Invalid.into()),
        })
    }

    fn link(&self, _: &Context, node: Handle, at: At) -> Result<Entry, Error> {
        self.with(|disk| {
            if disk.is_dir(node.ino.raw()) {
                return Err(Code::NotPermitted.into());
            }
            if disk.child(&at).is_ok() {
                return Err(Code::Exists.into());
            }
            let ino = node.ino.raw();
            if disk.attr(ino)?.links == 0 && !disk.node(ino)?.awaits_name {
                return Err(Code::NotFound.into());
            }
            disk.node(ino)?.awaits_name = false;
            disk.put(&at, ino)
        })
    }

    fn unlink(&self, _: &Context, at: At) -> Result<Removed, Error> {
        self.with(|disk| match disk.is_dir(disk.child(&at)?) {
            true => Err(Code::IsDirectory.into()),
            false => disk.take(&at),
        })
    }

    fn remove_dir(&self, _: &Context, at: At) -> Result<Removed, Error> {
        self.with(|disk| {
            let attr = disk.attr(disk.child(&at)?)?;
            match (attr.kind, attr.size) {
                (FileKind::Directory, 0) => disk.take(&at),
                (FileKind::Directory, _) => Err(Code::NotEmpty.into()),
                _ => Err(Code::NotDirectory.into()),
            }
        })
    }

    fn rename(&self, _: &Context, from: At, to: At, flags: RenameFlags) -> Result<Renamed, Error> {
        self.with(|disk| {
            let moved = Handle::own(InodeId::from_raw(disk.child(&from)?));
            if !self.forgets_renames {
                disk.rename(&from, &to, flags)?;
            }
            Ok(Renamed { moved, replaced: None })
        })
    }

    fn open(
        &self,
        _: &Context,
        node: Handle,
        open: OpenId,
        flags: OpenFlags,
    ) -> Result<Opened, Error> {
        self.with(|disk| {
            let ino = node.ino.raw();
            if disk.is_dir(ino) {
                return Err(Code::IsDirectory.into());
            }
            let open = disk.open(ino, open, flags)?;
            let attr = disk.attr(ino)?;
            Ok(Opened { open, attr, path: DataPath::Cached })
        })
    }

    fn flush(&self, _: &Context, open: OpenId) -> Result<(), Error> {
        self.with(|disk| disk.opened(open).map(drop))
    }

    fn release(&self, _: &Context, open: OpenId) -> Result<(), Error> {
        self.with(|disk| {
            disk.opens.remove(&open.0).ok_or(Error::new(Code::BadOpen))?;
            disk.sweep();
            Ok(())
        })
    }

    fn fsync(&self, _: &Context, open: OpenId, _: bool) -> Result<(), Error> {
        self.with(|disk| disk.opened(open).map(drop))
    }

    fn fsync_dir(&self, _: &Context, dir: Handle, _: Option<u64>) -> Result<(), Error> {
        self.with(|disk| disk.attr(dir.ino.raw()).map(drop))
    }

    fn read(&self, _: &Context, open: OpenId, offset: u64, size: u32) -> Result<Buffer, Error> {
        self.with(|disk| {
            let (ino, flags) = disk.opened(open)?;
            if !flags.read {
                return Err(Code::BadOpen.into());
            }
            let node = disk.node(ino)?;
            let end = node.attr.size.min(offset + u64::from(size)).max(offset);
            let mut bytes = vec![0; (end - offset) as usize];
            for (at, byte) in node.bytes.range(offset..end) {
                bytes[(at - offset) as usize] = *byte;
            }
            Ok(Buffer::new(bytes))
        })
    }

    fn write(
        &self,
        _: &Context,
        to: FilePos,
        bytes: &[u8],
        append: bool,
    ) -> Result<Written, Error> {
        self.with(|disk| {
            let (ino, flags) = disk.opened(to.open)?;
            if !flags.write {
                return Err(Code::BadOpen.into());
            }
            let node = disk.node(ino)?;
            let offset = if append { node.attr.size } else { to.offset };
            node.bytes.extend((offset..).zip(bytes.iter().copied()));
            node.attr.size = node.attr.size.max(offset + bytes.len() as u64);
            let size = node.attr.size;
            disk.changed(ino, true)?;
            Ok(Written { bytes: bytes.len() as u64, size })
        })
    }

    fn list(
        &self,
        _: &Context,
        dir: Handle,
        after: Cookie,
        _behind: Option<Name>,
        entries: u32,
        attributes: bool,
    ) -> Result<Listing, Error> {
        self.with(|disk| {
            let hash = |name: &Name| {
                let fold =
                    |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0193);
                NameHash(name.as_bytes().iter().fold(7, fold) << 8)
            };
            let names = disk.names.iter().filter(|((parent, _), _)| *parent == dir.ino.raw());
            let mut all: Vec<_> = names
                .map(|((_, name), ino)| (Cookie::of(hash(name)), name.clone(), *ino))
                .collect();
            all.sort();
            all.retain(|(cookie, _, _)| *cookie > after);
            let last = all.get(entries.max(1) as usize - 1).map(|(cookie, _, _)| *cookie);
            let count = all.len();
            all.retain(|(cookie, _, _)| last.is_none_or(|last| *cookie <= last));
            let end = all.len() == count;
            let show = |(cookie, name, ino): (Cookie, Name, u64)| {
                let entry = disk.entry(ino)?;
                let ino = entry.attr.ino;
                let kind = entry.attr.kind;
                Ok(DirEntry { name, ino, kind, cookie, entry: attributes.then_some(entry) })
            };
            let entries = all.into_iter().map(show).collect::<Result<Vec<_>, Error>>()?;
            Ok(Listing { entries, end })
        })
    }

    fn get_xattr(&self, _: &Context, node: Handle, name: Vec<u8>) -> Result<Vec<u8>, Error> {
        self.with(|disk| {
            let value = disk.node(node.ino.raw())?.xattrs.get(&name).cloned();
            value.ok_or_else(|| Code::NoXattr.into())
        })
    }

    fn list_xattr(&self, _: &Context, node: Handle) -> Result<Vec<u8>, Error> {
        self.with(|disk| {
            let names = disk.node(node.ino.raw())?.xattrs.keys();
            Ok(names.flat_map(|name| [name.as_slice(), &[0]].concat()).collect())
        })
    }

    fn set_xattr(
        &self,
        _: &Context,
        node: Handle,
        xattr: Xattr,
        flags: XattrFlags,
    ) -> Result<(), Error> {
        self.with(|disk| {
            let xattrs = &mut disk.node(node.ino.raw())?.xattrs;
            match (flags, xattrs.contains_key(&xattr.name)) {
                (XattrFlags::Create, true) => return Err(Code::Exists.into()),
                (XattrFlags::Replace, false) => return Err(Code::NoXattr.into()),
                _ => xattrs.insert(xattr.name, xattr.value),
            };
            disk.changed(node.ino.raw(), false)
        })
    }

    fn remove_xattr(&self, _: &Context, node: Handle, name: Vec<u8>) -> Result<(), Error> {
        self.with(|disk| {
            let gone = disk.node(node.ino.raw())?.xattrs.remove(&name);
            gone.ok_or(Error::new(Code::NoXattr))?;
            disk.changed(node.ino.raw(), false)
        })
    }

    fn stat_fs(&self, _: &Context) -> Result<VolumeStats, Error> {
        Ok(VolumeStats {
            block_bytes: 4096,
            blocks: 10,
            free: 5,
            available: 5,
            files: 10,
            free_files: 5,
        })
    }

    fn allocate(
        &self,
        _: &Context,
        open: OpenId,
        range: ByteRange,
        mode: AllocateMode,
    ) -> Result<(), Error> {
        self.with(|disk| {
            let (ino, flags) = disk.opened(open)?;
            if !flags.write {
                return Err(Code::BadOpen.into());
            }
            let node = disk.node(ino)?;
            let end = range.offset + range.length;
            let keeps_size = match mode {
                AllocateMode::Reserve { keep_size } | AllocateMode::Zero { keep_size } => keep_size,
                AllocateMode::PunchHole => true,
            };
            if !matches!(mode, AllocateMode::Reserve { .. }) {
                node.bytes.retain(|at, _| *at < range.offset || *at >= end);
            }
            if !keeps_size {
                node.attr.size = node.attr.size.max(end);
            }
            disk.changed(ino, true)
        })
    }

    fn seek(&self, _: &Context, open: OpenId, from: SeekFrom) -> Result<u64, Error> {
        self.with(|disk| {
            let (ino, _) = disk.opened(open)?;
            let node = disk.node(ino)?;
            let mut places = from.offset.min(node.attr.size)..node.attr.size;
            let found = match from.whence {
                Whence::Data => node.bytes.range(places).next().map(|(at, _)| *at),
                Whence::Hole if places.is_empty() => None,
                Whence::Hole => {
                    let hole = places.find(|at| !node.bytes.contains_key(at));
                    Some(hole.unwrap_or(node.attr.size))
                }
            };
            found.ok_or_else(|| Code::NoData.into())
        })
    }

    fn copy_range(
        &self,
        context: &Context,
        from: FilePos,
        to: FilePos,
        length: u64,
    ) -> Result<Written, Error> {
        let there = self.with(|disk| {
            let source = disk.opened(from.open)?;
            let target = disk.opened(to.open)?;
            if !source.1.read || !target.1.write || target.1.append {
                return Err(Code::BadOpen.into());
            }
            let length = length.min(disk.attr(source.0)?.size.saturating_sub(from.offset));
            if source.0 == target.0 && from.offset.abs_diff(to.offset) < length {
                return Err(Code::Invalid.into());
            }
            Ok((u32::try_from(length).unwrap(), disk.attr(target.0)?.size))
        });
        there.and_then(|(length, size)| {
            if length == 0 {
                return Ok(Written { bytes: 0, size });
            }
            let bytes = self.read(context, from.open, from.offset, length)?;
            self.write(context, to, bytes.as_bytes(), false)
        })
    }
}
