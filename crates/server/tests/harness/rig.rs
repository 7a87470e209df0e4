//! A server over the fake table, with its content files in a temporary folder.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, fs, io};

use pelago_check::{self as check, Plan};
use pelago_server::{Options, Parts, Server};
use pelago_store::content::ContentStore;
use pelago_store::hash::NameHasher;
use pelago_store::table::fake::FakeTable;
use pelago_store::volume::VolumeId;
use pelago_wire::{
    Code, Context, Cookie, Entry, FileKind, Handle, Name, NewMode, OpenFlags, OpenId, Reply,
    Request, ShardId, WriteFlags, limits,
};

use super::requests::{self, next_open};

/// The longest time that anything takes on the slowest machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

const VOLUME: VolumeId = VolumeId([9; 16]);
pub(crate) const CALLER: Context = Context::direct(10, 20);

/// A server with its table and its folder of content files.
pub(crate) struct Rig {
    pub(crate) table: FakeTable,
    pub(crate) server: Server,
    folder: tempfile::TempDir,
}

/// What a program sees of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) ino: u64,
    pub(crate) kind: FileKind,
    pub(crate) mode: u16,
    pub(crate) links: u32,
    pub(crate) size: u64,
    pub(crate) bytes: Bytes,
    pub(crate) xattrs: Vec<u8>,
}

/// Bytes with a short `Debug` form.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Bytes(pub Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = self.0.iter().fold(0_u64, |sum, byte| sum.rotate_left(5) ^ u64::from(*byte));
        write!(f, "{} bytes, sum {sum:x}", self.0.len())
    }
}

/// All files by their paths.
pub(crate) type Tree = BTreeMap<String, Seen>;

/// Options without workers and timed group commits: both run only when a test asks for them.
#[must_use]
pub(crate) fn by_hand() -> Options {
    let sync_interval = Duration::from_secs(3600);
    let grace = Duration::ZERO;
    Options { sync_interval, grace, workers: false, ..Options::default() }
}

impl Rig {
    /// Starts a server of a new volume.
    #[must_use]
    pub(crate) fn new(options: Options) -> Self {
        Self::over(FakeTable::new(), tempfile::tempdir().unwrap(), options)
    }

    /// Starts a server over an existing table and folder.
    #[must_use]
    pub(crate) fn over(table: FakeTable, folder: tempfile::TempDir, options: Options) -> Self {
        let parts = Parts {
            shard: ShardId::FIRST,
            table: Arc::new(table.clone()),
            content: Arc::new(ContentStore::open(folder.path()).unwrap()),
            volume: VOLUME,
            hasher: hasher(),
        };
        let server = Server::start_on(parts, options).unwrap();
        Self { table, server, folder }
    }

    /// Starts a second server from what a crash of the machine leaves now: the first `keep` unsafe
    /// batches, and a copy of the content files as they are.
    #[must_use]
    pub(crate) fn crashed(&self, keep: usize, options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        copy(self.folder.path(), folder.path());
        Self::over(self.table.fork_crashed(keep), folder, options)
    }

    /// Ends the server, cleanly or as a crash would, and starts the next one.
    #[must_use]
    pub(crate) fn restarted(self, cleanly: bool, options: Options) -> Self {
        let Self { table, server, folder } = self;
        if cleanly {
            server.stop().unwrap();
        }
        drop(server);
        Self::over(table, folder, options)
    }

    /// As [`Rig::restarted`] after a crash that has done this to the folder of the content files.
    #[must_use]
    pub(crate) fn damaged(self, options: Options, damage: impl FnOnce(&Path)) -> Self {
        let Self { table, server, folder } = self;
        drop(server);
        damage(folder.path());
        Self::over(table, folder, options)
    }

    /// Returns what a check finds. The server may be running, but must be idle.
    #[must_use]
    pub(crate) fn check(&self) -> Plan {
        let content = ContentStore::open(self.folder.path()).unwrap();
        let parts = check::Parts {
            has_sites: false,
            shard: ShardId::FIRST,
            table: &self.table,
            content: &content,
            volume: VOLUME,
            hasher: hasher(),
            tags_are_complete: true,
            index: None,
        };
        check::plan_on(parts).unwrap()
    }

    /// Asserts that a check finds nothing but leftovers.
    pub(crate) fn expect_whole(&self, when: &str) {
        let plan = self.check();
        assert!(plan.is_whole(), "{when}: {:#?}", plan.findings);
    }

    /// Carries out a request.
    pub(crate) fn call(&self, request: Request) -> Result<Reply, Code> {
        self.call_with(request, &[])
    }

    pub(crate) fn call_with(&self, request: Request, bytes: &[u8]) -> Result<Reply, Code> {
        self.call_as(&CALLER, request, bytes)
    }

    pub(crate) fn call_as(
        &self,
        who: &Context,
        request: Request,
        bytes: &[u8],
    ) -> Result<Reply, Code> {
        requests::call_as(&self.server, who, request, bytes)
    }

    pub(crate) fn lookup(&self, dir: Handle, text: &str) -> Result<Entry, Code> {
        entry(self.call(Request::Lookup { dir, name: name(text) })?)
    }

    pub(crate) fn make_dir(&self, dir: Handle, text: &str) -> Result<Entry, Code> {
        entry(self.call(Request::MakeDir {
            dir,
            name: name(text),
            mode: NewMode::exactly(0o755),
        })?)
    }

    pub(crate) fn create(&self, dir: Handle, text: &str) -> Result<(Entry, OpenId), Code> {
        requests::create(&self.server, dir, text)
    }

    pub(crate) fn create_unnamed(&self, dir: Handle) -> Result<(Entry, OpenId), Code> {
        let flags = OpenFlags::READ_WRITE;
        let open = next_open();
        let mode = NewMode { mode: 0o666, umask: 0o022 };
        match self.call(Request::CreateUnnamed { dir, mode, flags, open })? {
            Reply::Created { entry, .. } => Ok((entry, open)),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn open(&self, node: Handle) -> Result<OpenId, Code> {
        let flags = OpenFlags::READ_WRITE;
        let open = next_open();
        match self.call(Request::Open { node, flags, open })? {
            Reply::Opened { .. } => Ok(open),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn write(&self, open: OpenId, offset: u64, bytes: &[u8]) -> Result<(), Code> {
        for (part, at) in bytes.chunks(limits::IO_BYTES).zip((offset..).step_by(limits::IO_BYTES)) {
            let request = Request::Write { open, offset: at, flags: WriteFlags::NONE };
            self.call_with(request, part)?;
        }
        Ok(())
    }

    pub(crate) fn fsync(&self, open: OpenId) -> Result<(), Code> {
        self.call(Request::Fsync { open, data_only: false }).map(drop)
    }

    /// Flushes and releases, as the kernel does: the release follows even if the flush fails.
    pub(crate) fn close(&self, open: OpenId) -> Result<(), Code> {
        let flushed = self.call(Request::Flush { open, owner: None });
        self.call(Request::Release { open })?;
        flushed.map(drop)
    }

    pub(crate) fn unlink(&self, dir: Handle, text: &str) -> Result<(), Code> {
        self.call(Request::Unlink { dir, name: name(text) }).map(drop)
    }

    /// Makes all done batches safe.
    pub(crate) fn sync(&self) {
        self.call(Request::FsyncDir { dir: Handle::ROOT, since: None }).unwrap();
    }

    /// Creates, writes and closes a file.
    pub(crate) fn put(&self, dir: Handle, text: &str, bytes: &[u8]) -> Result<Entry, Code> {
        let (entry, open) = self.create(dir, text)?;
        let written = self.write(open, 0, bytes);
        self.close(open)?;
        written.map(|()| entry)
    }

    pub(crate) fn read(&self, node: Handle, size: u64) -> Result<Vec<u8>, Code> {
        let flags = OpenFlags::READ;
        let open = next_open();
        let Reply::Opened { .. } = self.call(Request::Open { node, flags, open })? else {
            panic!("an open answers `Opened`");
        };
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < size {
            let size = (size - bytes.len() as u64).min(limits::IO_BYTES as u64) as u32;
            let request = Request::Read { open, offset: bytes.len() as u64, size };
            match self.call(request)? {
                Reply::Data(data) if data.as_bytes().is_empty() => break,
                Reply::Data(data) => bytes.extend_from_slice(data.as_bytes()),
                other => panic!("{other:?}"),
            }
        }
        self.call(Request::Release { open })?;
        Ok(bytes)
    }

    /// Returns all files and directories as a program sees them.
    #[must_use]
    pub(crate) fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        self.walk(Handle::ROOT, "", &mut tree);
        tree
    }

    fn walk(&self, dir: Handle, path: &str, tree: &mut Tree) {
        let mut after = Cookie::START;
        loop {
            let request =
                Request::List { dir, after, behind: None, entries: 100, attributes: false };
            let Reply::Listed { entries, end } = self.call(request).unwrap() else {
                panic!("a listing answers `Listed`");
            };
            for listed in &entries {
                after = listed.cookie;
                let text = listed.name.to_string();
                if listed.name.as_bytes() == b"." || listed.name.as_bytes() == b".." {
                    continue;
                }
                let entry = self.lookup(dir, &text).unwrap();
                let path = format!("{path}/{text}");
                let seen = self.see(&entry);
                assert_eq!((seen.ino, seen.kind), (listed.ino.raw(), listed.kind), "{path}");
                if seen.kind == FileKind::Directory {
                    self.walk(entry.handle, &path, tree);
                }
                tree.insert(path, seen);
            }
            if end {
                return;
            }
        }
    }

    fn see(&self, entry: &Entry) -> Seen {
        let attr = &entry.attr;
        let bytes = match attr.kind {
            FileKind::Regular => self.read(entry.handle, attr.size + 1).unwrap(),
            FileKind::Symlink => match self.call(Request::ReadLink { node: entry.handle }) {
                Ok(Reply::Bytes(target)) => target,
                other => panic!("{other:?}"),
            },
            _ => Vec::new(),
        };
        let Reply::Bytes(xattrs) = self.call(Request::ListXattr { node: entry.handle }).unwrap()
        else {
            panic!("a list of attributes answers `Bytes`");
        };
        Seen {
            ino: attr.ino.raw(),
            kind: attr.kind,
            mode: attr.mode,
            links: attr.links,
            size: attr.size,
            bytes: Bytes(bytes),
            xattrs,
        }
    }
}

#[must_use]
pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub(crate) fn entry(reply: Reply) -> Result<Entry, Code> {
    match reply {
        Reply::Entry(entry) => Ok(entry),
        other => panic!("{other:?}"),
    }
}

fn hasher() -> NameHasher {
    NameHasher::new(11)
}

/// Copies a folder while a server works in it: a file that goes meanwhile is gone after the crash.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let there = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&there).unwrap();
            copy(&entry.path(), &there);
        } else {
            match fs::copy(entry.path(), &there) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            }
        }
    }
}
