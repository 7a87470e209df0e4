//! The parts of a server that share state between threads, over the table's fake.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pelago_data::{FdBudget, MayBlock, OpError, OpenFiles, OpenKey, Options, Parts, Space, Write};
use pelago_meta::durability::Durability;
use pelago_meta::recovery::{self, FirstRows};
use pelago_meta::shard::{self, Page, Shard};
use pelago_store::clock;
use pelago_store::content::ContentStore;
use pelago_store::hash::NameHasher;
use pelago_store::table::fake::FakeTable;
use pelago_store::table::{SharedTable, Table as _};
use pelago_store::volume::VolumeId;
use pelago_wire::{
    Code, Context, Cookie, Error, Handle, Name, NewMode, OpenFlags, OpenId, RenameFlags, SessionId,
    ShardId,
};
use tempfile::TempDir;

const CALLER: Context = Context::direct(10, 20);
const VOLUME: VolumeId = VolumeId([7; 16]);
/// Files up to this size stay in memory and in the table.
const INLINE_BYTES: usize = 64;

pub struct Rig {
    pub table: FakeTable,
    pub shard: Arc<Shard>,
    pub files: Arc<OpenFiles>,
    durability: Arc<Durability>,
    last_open: AtomicU64,
    _folder: TempDir,
}

impl Rig {
    /// Returns an empty volume.
    pub fn new() -> Self {
        let table = FakeTable::new();
        let now = clock::now();
        let start = recovery::begin(&table, VOLUME, ShardId::FIRST, &FirstRows::default(), now);
        let start = start.expect("a new volume");
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
            started: now,
        }));
        let folder = tempfile::tempdir().expect("a folder");
        let content = Arc::new(ContentStore::open(folder.path()).expect("content files"));
        let space = Arc::new(Space::new(Arc::clone(&content), None, Arc::new(|| {})));
        let files = Arc::new(OpenFiles::new(Parts {
            shard: Arc::clone(&shard),
            table: shared,
            content,
            durability: Arc::clone(&durability),
            space,
            fd_budget: FdBudget::new(2),
            read_only: false,
            notify_orphans: Arc::new(|| {}),
            notify_pending_close: Arc::new(|| {}),
            options: Options {
                inline_bytes: INLINE_BYTES,
                can_detect_writers: false,
                ..Options::default()
            },
        }));
        Self { table, shard, files, durability, last_open: AtomicU64::new(0), _folder: folder }
    }

    /// Creates a file, writes `bytes` bytes and closes it.
    pub fn write_new(&self, dir: Handle, text: &str, bytes: usize) -> Result<(), Error> {
        let mode = NewMode::exactly(0o644);
        let flags = OpenFlags::READ_WRITE;
        let open = self.next_open();
        let name = name(text);
        let block = MayBlock::Yes;
        let created = self.files.create(&CALLER, open.open, dir, &name, mode, flags, block);
        created.map_err(error)?;
        let written = self.write(open, 0, bytes);
        self.close(open).and(written)
    }

    /// Opens a file, appends `bytes` bytes in two writes, reads it and closes it.
    pub fn append(&self, dir: Handle, text: &str, bytes: usize) -> Result<(), Error> {
        let node = self.shard.lookup(dir, &name(text))?.handle;
        let flags = OpenFlags { append: true, ..OpenFlags::READ_WRITE };
        let open = self.open(node, flags)?;
        let written = self.write(open, 0, bytes).and_then(|()| self.write(open, 0, bytes));
        let read = self.files.read(open, 0, 1 << 16, MayBlock::Yes, None);
        let read = read.map(drop).map_err(error);
        self.close(open).and(written).and(read)
    }

    /// Opens a file and syncs it.
    pub fn fsync(&self, dir: Handle, text: &str) -> Result<(), Error> {
        let node = self.shard.lookup(dir, &name(text))?.handle;
        let open = self.open(node, OpenFlags::READ_WRITE)?;
        let written = self.write(open, 0, 10);
        let synced = self.files.fsync(open, false, MayBlock::Yes).map_err(error);
        self.close(open).and(written).and(synced)
    }

    fn next_open(&self) -> OpenKey {
        let open = OpenId(self.last_open.fetch_add(1, Ordering::Relaxed) + 1);
        OpenKey { session: SessionId::DIRECT, open }
    }

    fn open(&self, node: Handle, flags: OpenFlags) -> Result<OpenKey, Error> {
        let open = self.next_open();
        self.files.open(open, node, flags, MayBlock::Yes).map_err(error)?;
        Ok(open)
    }

    fn write(&self, open: OpenKey, offset: u64, bytes: usize) -> Result<(), Error> {
        let bytes = vec![b'x'; bytes];
        let write =
            Write { offset, append: false, once: None, bytes: &bytes, kill_privileges: false };
        self.files.write(open, write, MayBlock::Yes).map(drop).map_err(error)
    }

    fn close(&self, open: OpenKey) -> Result<(), Error> {
        let flushed = self.files.flush(open, MayBlock::Yes).map_err(error);
        self.files.release(open, MayBlock::Yes).map_err(error).and(flushed)
    }

    pub fn make_dir(&self, dir: Handle, text: &str) -> Result<Handle, Error> {
        let new = shard::NewInode::directory(NewMode::exactly(0o755));
        Ok(self.shard.create(&CALLER, dir, &name(text), new, clock::now())?.handle)
    }

    pub fn unlink(&self, dir: Handle, text: &str) -> Result<(), Error> {
        self.shard.unlink(dir, &name(text), clock::now()).map(drop)
    }

    pub fn rename(
        &self,
        from_dir: Handle,
        from: &str,
        to_dir: Handle,
        to: &str,
    ) -> Result<(), Error> {
        let from = name(from);
        let to = name(to);
        let wanted = shard::Move { from_dir, from: &from, to_dir, to: &to };
        self.shard.rename(&CALLER, wanted, RenameFlags::Replace, clock::now()).map(drop)
    }

    /// Makes all changes safe, as the thread of the group commit does.
    pub fn group_commit(&self) {
        self.files.commit_dirty().expect("the table does not fail");
        self.shard.write_counts().expect("the table does not fail");
        self.shard.begin_group_commit();
        let done = self.durability.done();
        self.table.persist().expect("the fake does not fail");
        self.durability.persisted(done);
        self.durability.writeback_errors.clear();
    }

    /// Syncs closed content files, as the worker `writeback` does.
    pub fn write_back(&self) {
        self.files.write_back().expect("the disk does not fail");
    }

    /// Returns the names in a directory, sorted.
    pub fn names(&self, dir: Handle) -> Vec<String> {
        let page =
            Page { dir, after: Cookie::START, behind: None, entries: 1000, attributes: true };
        let (entries, _) = self.shard.list(page).expect("a listing");
        let mut names: Vec<_> = entries.iter().map(|entry| entry.name.to_string()).collect();
        names.sort();
        names
    }

    /// Checks that nothing is open or in memory any more, and that the table agrees with memory.
    pub fn check_at_rest(&self, dirs: &[Handle]) {
        self.group_commit();
        let counts = self.files.counts();
        assert_eq!((counts.opens, counts.closed, self.files.memory()), (0, 0, 0), "all is closed");
        let shown: Vec<_> = dirs.iter().map(|dir| self.names(*dir)).collect();
        self.shard.forget_rows();
        let stored: Vec<_> = dirs.iter().map(|dir| self.names(*dir)).collect();
        assert_eq!(shown, stored, "memory and table say the same");
    }
}

fn error(error: OpError) -> Error {
    match error {
        OpError::Failed(error) => error,
        OpError::WouldBlock => Code::Bug.into(),
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}
