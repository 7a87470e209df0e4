//! A server's parts over the fake table and a temporary folder, for tests.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use pelago_data::{self as data, FdBudget, OpenFiles, Space};
use pelago_lossfs::{Fault, Lossfs, Model, Operation};
use pelago_meta::durability::Durability;
use pelago_meta::recovery::{self as meta_recovery, FirstRows};
use pelago_meta::shard::{self, Shard};
use pelago_search::{IndexPlace, Indexing, SearchIndex, Steps};
use pelago_store::content::ContentStore;
use pelago_store::folder::Folder;
use pelago_store::hash::NameHasher;
use pelago_store::rows::{self, Row};
use pelago_store::table::fake::FakeTable;
use pelago_store::table::{SharedTable, TableRead};
use pelago_store::volume::VolumeId;
use pelago_store::{clock, key};
use pelago_wire::{
    Attr, Backing, Bulk, Code, Context, DataPath, Done, Entry, Error, Handle, Name, NewMode,
    OpenFlags, OpenId, RenameFlags, Reply, Request, Served, Service, SetAttr, ShardId, Time,
    WriteFlags,
};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::chains::Chains;
use crate::grace::Grace;
use crate::group_commit::GroupCommit;
use crate::memory::{MEMORY_BYTES, fetch_limits};
use crate::origins::Origins;
use crate::policy::Policy;
use crate::pool::Pool;
use crate::recovery::{self, Measured};
use crate::replaced::ReplacedFiles;
use crate::service::{self, LocalService};
use crate::sites::{SiteParts, SiteRows, Sites};
use crate::stays::Stays;
use crate::unfinished::Unfinished;

pub(crate) mod log;

/// The caller of each request.
pub(crate) const CALLER: Context = Context::direct(10, 20);
/// The root directory.
pub(crate) const ROOT: Handle = Handle::ROOT;
/// To read and write; reads do not change the access time, so that tests can compare attributes.
pub(crate) const BOTH: OpenFlags = OpenFlags { no_atime: true, ..OpenFlags::READ_WRITE };
/// To read.
pub(crate) const READ: OpenFlags = OpenFlags { no_atime: true, ..OpenFlags::READ };
/// The longest wait of a test for a reply.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Returns the sites of a volume that has only this one.
fn no_sites(shard: &Arc<Shard>, durability: &Arc<Durability>) -> Arc<Sites> {
    Arc::new(Sites::new(SiteParts {
        own: 0,
        volume: VolumeId([0; 16]),
        folder: None,
        shard: Arc::clone(shard),
        durability: Arc::clone(durability),
        rows: SiteRows {
            others: Vec::new(),
            list: None,
            tokens: Vec::new(),
            chains: Chains::new(0, Vec::new()),
            unfinished: Unfinished::default(),
            stays: Stays::new(Arc::clone(shard), Vec::new()),
            origins: Origins::default(),
        },
        timeout: Duration::from_secs(10),
        copy_bytes: None,
        fetched: fetch_limits(MEMORY_BYTES),
        guests_alone: pelago_wire::limits::CHARTER_ALONE,
        stay_least_bytes: pelago_wire::limits::STAY_LEAST_BYTES,
        is_stepped: false,
    }))
}

/// Returns the policy of a volume without roots.
fn no_guests() -> Arc<Policy> {
    Arc::new(Policy::new(VolumeId([0; 16]), None, Vec::new(), None))
}

/// Returns a search index that no worker builds.
fn index_in(dir: &TempDir) -> Arc<SearchIndex> {
    let folder = Folder::open(dir.path()).unwrap();
    let place = IndexPlace { folder, volume: VolumeId([7; 16]) };
    let index = SearchIndex::new(Some(place), Indexing::Auto, Arc::new(|| {}));
    Arc::new(index.with_steps(Steps::small()))
}

/// Returns the number of an open that is to come.
pub(crate) fn next_open() -> OpenId {
    static LAST: AtomicU64 = AtomicU64::new(0);
    OpenId(LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

/// The parts of a server, without any thread but the pool's.
pub(crate) struct Rig {
    pub(crate) table: FakeTable,
    pub(crate) shard: Arc<Shard>,
    pub(crate) durability: Arc<Durability>,
    pub(crate) space: Arc<Space>,
    pub(crate) opens: Arc<OpenFiles>,
    pub(crate) descriptors: Arc<FdBudget>,
    pub(crate) content: Arc<ContentStore>,
    pub(crate) router: LocalService,
    pub(crate) commit: GroupCommit,
    /// Counts the calls that announce orphans.
    pub(crate) reaped: Arc<AtomicUsize>,
    /// The report of recovery.
    pub(crate) recovered: recovery::RecoveryReport,
    dir: Arc<TempDir>,
    options: Options,
}

/// The options of a rig.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) open: data::Options,
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    pub(crate) read_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { open: data::Options::default(), descriptors: 100, threads: 2, read_only: false }
    }
}

impl Rig {
    /// A new volume.
    pub(crate) fn new() -> Self {
        Self::with(Options::default())
    }

    /// A new volume, served with these options.
    pub(crate) fn with(options: Options) -> Self {
        Self::over(FakeTable::new(), Arc::new(tempfile::tempdir().unwrap()), options)
    }

    /// The volume after the server was killed and started again.
    pub(crate) fn after_kill(&self) -> Self {
        self.after_crash(usize::MAX)
    }

    /// The volume after a crash that kept the first `keep` unsafe batches, and all bytes of content
    /// files.
    pub(crate) fn after_crash(&self, keep: usize) -> Self {
        self.opens.close_kept();
        Self::over(self.table.fork_crashed(keep), Arc::clone(&self.dir), self.options)
    }

    /// The volume after a kill, served with other options.
    pub(crate) fn restarted(&self, options: Options) -> Self {
        self.opens.close_kept();
        Self::over(self.table.fork_crashed(usize::MAX), Arc::clone(&self.dir), options)
    }

    /// A new volume in this folder.
    pub(crate) fn in_folder(dir: &Arc<TempDir>) -> Self {
        Self::over(FakeTable::new(), Arc::clone(dir), Options::default())
    }

    fn over(table: FakeTable, dir: Arc<TempDir>, options: Options) -> Self {
        let started = clock::now();
        let volume = VolumeId([7; 16]);
        let first = FirstRows::default();
        let start = meta_recovery::begin(&table, volume, ShardId::FIRST, &first, started).unwrap();
        let shared: SharedTable = Arc::new(table.clone());
        let durability = Arc::new(Durability::default());
        let shard = Arc::new(Shard::new(shard::Parts {
            id: ShardId::FIRST,
            table: Arc::clone(&shared),
            hasher: NameHasher::new(7),
            durability: Arc::clone(&durability),
            epoch: start.epoch,
            next_id: start.next_id,
            cache_bytes: 1 << 20,
            started,
        }));
        let content = Arc::new(ContentStore::open(dir.path()).unwrap());
        let can_detect = content.can_detect_writers().unwrap_or(false);
        let found = recovery::measure_written(&shard, &table, &content, can_detect, false);
        let Measured { report: recovered, still_written: written } = found.unwrap();
        let space = Arc::new(Space::new(Arc::clone(&content), None, Arc::new(|| {})));
        let reaped = Arc::new(AtomicUsize::new(0));
        let descriptors = FdBudget::new(options.descriptors);
        let opens = Arc::new(OpenFiles::new(data::Parts {
            shard: Arc::clone(&shard),
            table: Arc::clone(&shared),
            content: Arc::clone(&content),
            durability: Arc::clone(&durability),
            space: Arc::clone(&space),
            fd_budget: Arc::clone(&descriptors),
            read_only: options.read_only,
            notify_orphans: counted(&reaped),
            notify_pending_close: Arc::new(|| {}),
            options: options.open,
        }));
        opens.load_writing_rows().unwrap();
        written.into_iter().for_each(|handle| opens.resume_external_writes(handle).unwrap());
        let router = LocalService::new(service::Parts {
            shard: Arc::clone(&shard),
            opens: Arc::clone(&opens),
            content: Arc::clone(&content),
            index: index_in(&dir),
            table: Arc::clone(&shared),
            durability: Arc::clone(&durability),
            space: Arc::clone(&space),
            pool: Arc::new(Pool::start(options.threads).unwrap()),
            groups: None,
            served: Served { volume: [0; 16], epoch: 1, read_only: options.read_only, site: 0 },
            notify_orphans: counted(&reaped),
            replaced: Arc::new(ReplacedFiles::new(Arc::clone(&opens), Arc::new(|| {}))),
            earlier: Vec::new(),
            grace: Arc::new(Grace::new(HashSet::new())),
            leases: pelago_wire::limits::LEASES,
            policy: no_guests(),
            sites: no_sites(&shard, &durability),
            ownership: None,
            mirror: None,
        });
        let commit = GroupCommit::new(
            Arc::clone(&opens),
            Arc::clone(&shard),
            shared,
            Arc::clone(&durability),
            None,
            None,
        );
        Self {
            table,
            shard,
            durability,
            space,
            opens,
            descriptors,
            content,
            router,
            commit,
            reaped,
            recovered,
            dir,
            options,
        }
    }

    /// Returns the folder of the volume.
    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Begins a request; its reply comes through the channel.
    pub(crate) fn begin(&self, request: Request, bytes: &[u8]) -> Receiver<Result<Reply, Error>> {
        self.begin_as(&CALLER, request, bytes)
    }

    fn begin_as(
        &self,
        context: &Context,
        request: Request,
        bytes: &[u8],
    ) -> Receiver<Result<Reply, Error>> {
        let (send, reply) = channel();
        let mut later = || -> Done {
            let send = send.clone();
            Box::new(move |answer| drop(send.send(answer)))
        };
        if let Some(now) = self.router.ask(context, request, Bulk::Borrowed(bytes), &mut later) {
            later()(now);
        }
        reply
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn call(&self, request: Request) -> Result<Reply, Code> {
        answer(&self.begin(request, &[]))
    }

    /// Sends a request of another caller and waits for its reply.
    pub(crate) fn call_as(&self, context: &Context, request: Request) -> Result<Reply, Code> {
        answer(&self.begin_as(context, request, &[]))
    }

    /// Creates a file in the root and opens it.
    pub(crate) fn create(&self, text: &str, flags: OpenFlags) -> (Entry, OpenId) {
        let mode = NewMode::exactly(0o644);
        let open = next_open();
        let request = Request::Create { dir: ROOT, name: name(text), mode, flags, open };
        match self.call(request).unwrap() {
            Reply::Created { entry, .. } => (entry, open),
            other => panic!("{other:?}"),
        }
    }

    /// Creates a file in the root with these bytes, and closes it.
    pub(crate) fn file(&self, text: &str, bytes: &[u8]) -> Entry {
        let (_, open) = self.create(text, BOTH);
        self.write(open, 0, bytes).unwrap();
        self.close(open);
        self.lookup(text).unwrap()
    }

    /// Looks up a name in the root.
    pub(crate) fn lookup(&self, text: &str) -> Result<Entry, Code> {
        match self.call(Request::Lookup { dir: ROOT, name: name(text) })? {
            Reply::Entry(entry) => Ok(entry),
            other => panic!("{other:?}"),
        }
    }

    /// Opens a file.
    pub(crate) fn open(&self, node: Handle, flags: OpenFlags) -> Result<OpenId, Code> {
        let open = next_open();
        match self.call(Request::Open { node, flags, open })? {
            Reply::Opened { .. } => Ok(open),
            other => panic!("{other:?}"),
        }
    }

    /// Opens a file; returns its attributes and data path too.
    pub(crate) fn open_path(&self, node: Handle, flags: OpenFlags) -> (OpenId, Attr, DataPath) {
        let open = next_open();
        match self.call(Request::Open { node, flags, open }).unwrap() {
            Reply::Opened { attr, path } => (open, attr, path),
            other => panic!("{other:?}"),
        }
    }

    /// Writes; returns how many bytes were written, and the size afterwards.
    pub(crate) fn write(
        &self,
        open: OpenId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(u64, u64), Code> {
        self.write_by(Request::Write { open, offset, flags: WriteFlags::NONE }, bytes)
    }

    /// Writes at the end; returns as [`Rig::write`] does.
    pub(crate) fn append(&self, open: OpenId, bytes: &[u8]) -> Result<(u64, u64), Code> {
        let request = Request::Write {
            open,
            offset: 0,
            flags: WriteFlags { append: true, ..WriteFlags::NONE },
        };
        self.write_by(request, bytes)
    }

    fn write_by(&self, request: Request, bytes: &[u8]) -> Result<(u64, u64), Code> {
        match answer(&self.begin(request, bytes))? {
            Reply::Written { bytes, size } => Ok((bytes, size)),
            other => panic!("{other:?}"),
        }
    }

    /// Reads bytes.
    pub(crate) fn read(&self, open: OpenId, offset: u64, size: u32) -> Result<Vec<u8>, Code> {
        match self.call(Request::Read { open, offset, size })? {
            Reply::Data(buffer) => Ok(buffer.into_bytes()),
            other => panic!("{other:?}"),
        }
    }

    /// Reads all bytes of a file in the root, by an open of its own.
    pub(crate) fn bytes(&self, text: &str) -> Vec<u8> {
        let open = self.open(self.lookup(text).unwrap().handle, READ).unwrap();
        let bytes = self.read(open, 0, 1 << 20).unwrap();
        self.close(open);
        bytes
    }

    /// Changes attributes.
    pub(crate) fn set(
        &self,
        node: Handle,
        open: Option<OpenId>,
        set: SetAttr,
    ) -> Result<Attr, Code> {
        match self.call(Request::SetAttr { node, open, set })? {
            Reply::Attr(attr) => Ok(attr),
            other => panic!("{other:?}"),
        }
    }

    /// Returns attributes.
    pub(crate) fn attr(&self, node: Handle) -> Result<Attr, Code> {
        match self.call(Request::GetAttr { node })? {
            Reply::Attr(attr) => Ok(attr),
            other => panic!("{other:?}"),
        }
    }

    /// Does what the kernel does when a program closes its last descriptor.
    pub(crate) fn close(&self, open: OpenId) {
        self.call(Request::Flush { open, owner: None }).unwrap();
        self.call(Request::Release { open }).unwrap();
    }

    /// Removes a name from the root.
    pub(crate) fn unlink(&self, text: &str) {
        self.call(Request::Unlink { dir: ROOT, name: name(text) }).unwrap();
    }

    /// Renames a file in the root, over another one if there is one.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), Code> {
        let from = name(from);
        let to = name(to);
        let flags = RenameFlags::Replace;
        self.call(Request::Rename { from_dir: ROOT, from, to_dir: ROOT, to, flags }).map(drop)
    }

    /// Returns the inline row of a file.
    pub(crate) fn inline_row(&self, node: Handle) -> Option<Vec<u8>> {
        let value = self.table.get(&key::inline(node.ino)).unwrap()?;
        Some(rows::Inline::decode(&value).unwrap().1.bytes.to_vec())
    }

    /// Returns whether the table has a `writing` row of a file.
    pub(crate) fn has_writing_row(&self, node: Handle) -> bool {
        self.table.get(&key::writing(node.ino)).unwrap().is_some()
    }
}

/// A rig whose content files are on a disk that fails on command.
pub(crate) struct Failing {
    pub(crate) rig: Rig,
    lossfs: Lossfs,
    _folder: Arc<TempDir>,
}

impl Failing {
    /// Returns a new volume, served with these options; `None` if no file system can be mounted
    /// here.
    pub(crate) fn with(options: Options) -> Option<Self> {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        match Lossfs::mount(folder.path(), Model::new()) {
            Ok(lossfs) => {
                let rig = Rig::over(FakeTable::new(), Arc::clone(&folder), options);
                Some(Self { rig, lossfs, _folder: folder })
            }
            Err(error) => {
                println!("skipped: not here: no FUSE file system can be mounted: {error}");
                None
            }
        }
    }

    /// Makes `times` operations of this kind fail, after `after` that succeed.
    pub(crate) fn refuse(&self, on: Operation, after: u64, times: u64, error: Errno) {
        self.lossfs.control().fail(Fault { on, within: String::new(), after, times, error });
    }

    /// Makes every operation succeed again.
    pub(crate) fn heal(&self) {
        self.lossfs.control().heal();
    }
}

/// Returns a function that counts its calls.
fn counted(count: &Arc<AtomicUsize>) -> data::WakeWorker {
    let count = Arc::clone(count);
    Arc::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
    })
}

/// Waits for the reply to a request that was begun.
pub(crate) fn answer(reply: &Receiver<Result<Reply, Error>>) -> Result<Reply, Code> {
    reply.recv_timeout(DEADLINE).expect("every request is answered").map_err(|error| error.code)
}

/// Opens a content file as the kernel does for a program that has the file open by passthrough.
pub(crate) fn reopened(backing: &Backing, flags: OpenFlags) -> File {
    let path = format!("/proc/self/fd/{}", backing.as_fd().as_raw_fd());
    File::options().read(true).write(flags.write).append(flags.append).open(path).unwrap()
}

/// Returns a name.
pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// Returns a time so many seconds after the epoch.
pub(crate) fn at(seconds: i64) -> Time {
    Time { seconds, nanos: 5 }
}
