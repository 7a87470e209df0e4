//! Open files over the fake table and a temporary folder, for tests.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pelago_lossfs::{Fault, Lossfs, Model, Operation};
use pelago_meta::durability::Durability;
use pelago_meta::recovery::{self, FirstRows};
use pelago_meta::shard::{self, Shard};
use pelago_store::content::ContentStore;
use pelago_store::hash::NameHasher;
use pelago_store::table::fake::FakeTable;
use pelago_store::table::{SharedTable, Table, TableRead};
use pelago_store::volume::VolumeId;
use pelago_store::{clock, key};
use pelago_wire::{
    Backing, Code, Context, Entry, Generation, Handle, Name, NewMode, OpenFlags, OpenId, SessionId,
    ShardId,
};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::blocking::{MayBlock, OpError};
use crate::fd_budget::FdBudget;
use crate::inode::Bytes;
use crate::open::Opening;
use crate::open_files::{OpenFiles, Options, Parts};
use crate::open_key::OpenKey;
use crate::pins::budget::PinLimits;
use crate::space::Space;
use crate::write::{Write, Written};

/// To read and write; reads do not change the access time.
pub(crate) const READ_WRITE: OpenFlags = OpenFlags { no_atime: true, ..OpenFlags::READ_WRITE };
/// To read.
pub(crate) const READ: OpenFlags = OpenFlags { no_atime: true, ..OpenFlags::READ };

/// Open files with their parts.
pub(crate) struct Rig {
    pub(crate) files: OpenFiles,
    pub(crate) shard: Arc<Shard>,
    table: FakeTable,
    last_open: AtomicU64,
    dir: Arc<TempDir>,
}

/// A rig whose content files are on a disk that fails on command.
pub(crate) struct FailingRig {
    pub(crate) rig: Rig,
    lossfs: Lossfs,
}

impl Rig {
    /// Returns a rig with a new volume.
    pub(crate) fn new() -> Self {
        Self::with_descriptors(100)
    }

    /// Returns a rig with a new volume, and this number of descriptors for content files.
    pub(crate) fn with_descriptors(descriptors: usize) -> Self {
        Self::over(Arc::new(tempfile::tempdir().unwrap()), descriptors, Options::default())
    }

    /// Returns a rig with a new volume, and these limits of pins.
    pub(crate) fn with_pins(pins: PinLimits) -> Self {
        let options = Options { pins, ..Options::default() };
        Self::over(Arc::new(tempfile::tempdir().unwrap()), 100, options)
    }

    fn over(dir: Arc<TempDir>, descriptors: usize, options: Options) -> Self {
        let content = ContentStore::open(dir.path()).unwrap();
        Self::over_table(FakeTable::new(), dir, content, descriptors, options)
    }

    /// Returns the first owner of a new volume on a shared store.
    pub(crate) fn shared() -> Self {
        Self::owner(FakeTable::new(), Arc::new(tempfile::tempdir().unwrap()))
    }

    /// Returns the next owner of the volume, which has the batches that this one made safe. This
    /// one does not notice, and continues.
    pub(crate) fn next_owner(&self) -> Self {
        Self::owner(self.table.fork_crashed(0), Arc::clone(&self.dir))
    }

    fn owner(table: FakeTable, dir: Arc<TempDir>) -> Self {
        let content = ContentStore::open(dir.path()).unwrap().shared();
        let rig = Self::over_table(table, dir, content, 100, Options::default());
        rig.files.load_writing_rows().unwrap();
        rig
    }

    /// Makes all done batches safe.
    pub(crate) fn commit_all(&self) {
        self.files.commit_dirty().unwrap();
        let done = self.files.durability.done();
        self.table.persist().unwrap();
        self.files.durability.persisted(done);
    }

    fn over_table(
        table: FakeTable,
        dir: Arc<TempDir>,
        content: ContentStore,
        descriptors: usize,
        options: Options,
    ) -> Self {
        let started = clock::now();
        let volume = VolumeId([7; 16]);
        let start = recovery::begin(&table, volume, ShardId::FIRST, &FirstRows::default(), started)
            .unwrap();
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
        let content = Arc::new(content);
        let files = OpenFiles::new(Parts {
            shard: Arc::clone(&shard),
            table: shared,
            space: Arc::new(Space::new(Arc::clone(&content), None, Arc::new(|| {}))),
            content,
            durability,
            fd_budget: FdBudget::new(descriptors),
            read_only: false,
            notify_orphans: Arc::new(|| {}),
            notify_pending_close: Arc::new(|| {}),
            options,
        });
        Self { files, shard, table, last_open: AtomicU64::new(0), dir }
    }

    /// Creates a file in the root directory and opens it to read and write.
    pub(crate) fn create(&self, text: &str) -> (Entry, OpenKey) {
        let context = Context::direct(10, 20);
        let mode = NewMode::exactly(0o644);
        let name = Name::new(text.as_bytes()).unwrap();
        let open = self.next_open();
        let (entry, _) = self
            .files
            .create(&context, open.open, Handle::ROOT, &name, mode, READ_WRITE, MayBlock::Yes)
            .unwrap();
        (entry, open)
    }

    /// Creates a file with these bytes and closes it.
    pub(crate) fn file(&self, text: &str, bytes: &[u8]) -> Entry {
        let (entry, open) = self.create(text);
        self.write(open, 0, bytes).unwrap();
        self.close(open);
        entry
    }

    /// Returns the key of the next open.
    fn next_open(&self) -> OpenKey {
        let open = OpenId(self.last_open.fetch_add(1, Ordering::Relaxed) + 1);
        OpenKey { session: SessionId::DIRECT, open }
    }

    /// Opens a file.
    pub(crate) fn open(&self, handle: Handle, flags: OpenFlags) -> Result<OpenKey, Code> {
        Ok(self.opening(handle, flags)?.0)
    }

    /// Opens a file; returns the result of the open too.
    pub(crate) fn opening(
        &self,
        handle: Handle,
        flags: OpenFlags,
    ) -> Result<(OpenKey, Opening), Code> {
        let open = self.next_open();
        Ok((open, self.files.open(open, handle, flags, MayBlock::Yes).map_err(code)?))
    }

    /// Writes bytes.
    pub(crate) fn write(&self, open: OpenKey, offset: u64, bytes: &[u8]) -> Result<Written, Code> {
        let write = Write { offset, append: false, once: None, bytes, kill_privileges: false };
        self.files.write(open, write, MayBlock::Yes).map_err(code)
    }

    /// Reads bytes.
    pub(crate) fn read(&self, open: OpenKey, offset: u64, size: u32) -> Result<Vec<u8>, Code> {
        let read = self.files.read(open, offset, size, MayBlock::Yes, None).map_err(code)?;
        Ok(read.into_bytes())
    }

    /// Syncs bytes; the row is not safe yet when this returns.
    pub(crate) fn fsync(&self, open: OpenKey) -> Result<(), Code> {
        self.files.fsync(open, true, MayBlock::Yes).map_err(code)
    }

    /// Commits the bytes that were written through an open.
    pub(crate) fn flush(&self, open: OpenKey) -> Result<(), Code> {
        self.files.flush(open, MayBlock::Yes).map_err(code)
    }

    /// Does what the kernel does when a program closes its last descriptor.
    pub(crate) fn close(&self, open: OpenKey) {
        self.flush(open).unwrap();
        self.files.release(open, MayBlock::Yes).unwrap();
    }

    /// Returns whether the table has a `writing` row of a file.
    pub(crate) fn has_writing_row(&self, handle: Handle) -> bool {
        self.table.get(&key::writing(handle.ino)).unwrap().is_some()
    }

    /// Counts the files in the folder of content files, whatever their names.
    pub(crate) fn content_files(&self) -> usize {
        let mut count = 0;
        self.files
            .disk
            .content
            .list(&mut |_| {
                count += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        count
    }

    /// Removes the content file of a file, as the worker for orphans does.
    pub(crate) fn remove_content(&self, handle: Handle) {
        self.files.forget_content(handle.ino);
        assert!(self.files.disk.content.remove(handle.ino, Generation::FIRST).unwrap());
    }

    /// Returns whether the content file of an open file is open.
    pub(crate) fn is_content_open(&self, handle: Handle) -> bool {
        let inode = self.files.opens.inode(handle.ino).unwrap();
        let state = inode.lock();
        matches!(state.bytes, Bytes::ContentOpen(_))
    }
}

impl FailingRig {
    /// Returns a rig with this number of descriptors. Returns `None`, and prints why, if no file
    /// system can be mounted here.
    pub(crate) fn with_descriptors(descriptors: usize) -> Option<Self> {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        match Lossfs::mount(dir.path(), Model::new()) {
            Ok(lossfs) => {
                Some(Self { rig: Rig::over(dir, descriptors, Options::default()), lossfs })
            }
            Err(error) => {
                println!("skipped: not here: no FUSE file system can be mounted: {error}");
                None
            }
        }
    }

    /// Makes the next `times` operations of this kind fail.
    pub(crate) fn fail_next(&self, on: Operation, times: u64, error: Errno) {
        let fault = Fault { on, within: String::new(), after: 0, times, error };
        self.lossfs.control().fail(fault);
    }
}

/// Opens a content file as the kernel does for a program that has the file open by passthrough.
pub(crate) fn reopened(backing: &Backing, flags: OpenFlags) -> File {
    let path = format!("/proc/self/fd/{}", backing.as_fd().as_raw_fd());
    File::options().read(true).write(flags.write).append(flags.append).open(path).unwrap()
}

/// Returns `length` bytes that differ from their neighbours.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|number| (number % 251) as u8).collect()
}

fn code(error: OpError) -> Code {
    match error {
        OpError::Failed(error) => error.code,
        OpError::WouldBlock => panic!("the caller may block"),
    }
}
