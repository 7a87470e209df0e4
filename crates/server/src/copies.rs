//! Copies of other sites' files on the disk of this one.
//!
//! A block that was fetched under a lease is kept in the folder `copies` with the version of its
//! file and a hash. It answers later reads of the same version, also after a restart, so a second
//! reader moves no bytes over the line. A copy is never the only one, so nothing here is synced:
//! what a crash has spoiled does not have its hash, and is fetched again. The files that were read
//! least recently make room for others.
//!
//! `index` says without I/O which blocks there are, `map` is the form of the file that remembers
//! them, `worker` the thread that writes.

mod index;
mod map;
mod worker;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::mpsc::{self, SyncSender};

use parking_lot::Mutex;
use pelago_holder::{BlockLease, Copies, FileVersion};
use pelago_store::folder::{Folder, FolderError};
use pelago_wire::{InodeId, limits};
use rustix::fs::OFlags;

use self::index::Index;
use self::map::BlockHash;
use self::worker::{Job, Worker};

/// The folder of the copies, in that of the volume.
const FOLDER: &str = "copies";
const BLOCK: u64 = limits::FETCH_BLOCK_BYTES as u64;

/// The copies of a site.
pub(crate) struct CopyStore {
    shared: Arc<Shared>,
    jobs: OnceLock<SyncSender<Job>>,
}

/// The parts that the worker shares.
struct Shared {
    /// The folder of the volume.
    folder: Folder,
    /// Bytes that all copies may take.
    budget: u64,
    /// A leaf lock.
    index: Mutex<Index>,
}

/// The copies of a site, for `site list`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyStatus {
    /// Number of files of which there are copies.
    pub files: usize,
    /// Their bytes that are here.
    pub bytes: u64,
    /// Bytes that they may take.
    pub budget: u64,
}

/// A failure of the folder of the copies, or of a file in it.
#[derive(Debug, thiserror::Error)]
enum CopyError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl CopyStore {
    /// Returns the copies in the folder of a volume, which may take `budget` bytes.
    pub(crate) fn new(folder: Folder, budget: u64) -> Self {
        let index = Mutex::default();
        Self { shared: Arc::new(Shared { folder, budget, index }), jobs: OnceLock::new() }
    }

    /// Reads which copies there are, and begins to keep others: on a thread of its own. A second
    /// call does nothing.
    pub(crate) fn start(&self) {
        self.jobs.get_or_init(|| {
            let (jobs, taken) = mpsc::sync_channel(limits::COPY_JOBS);
            let worker = Worker::new(Arc::clone(&self.shared));
            if let Err(error) = pelago_threads::spawn("copies", move || worker.run(&taken)) {
                tracing::warn!(%error, "nothing of other sites is kept on this disk");
            }
            jobs
        });
    }

    /// Returns how many copies there are.
    pub(crate) fn status(&self) -> CopyStatus {
        let index = self.shared.index.lock();
        CopyStatus { files: index.len(), bytes: index.bytes(), budget: self.shared.budget }
    }
}

impl Copies for CopyStore {
    fn has(&self, version: &FileVersion, mut blocks: Range<u64>) -> bool {
        let index = self.shared.index.lock();
        blocks.all(|block| index.hash(version, block).is_some())
    }

    fn block(&self, version: &FileVersion, block: u64, bytes: usize) -> Option<Vec<u8>> {
        let hash = self.shared.index.lock().take(version, block)?;
        match self.shared.read(version.ino, block, bytes) {
            Ok(read) if BlockHash::of(&read) == hash => Some(read),
            Ok(_) => {
                tracing::warn!(ino = %version.ino, block, "a copy is damaged, and fetched again");
                self.shared.index.lock().forget_block(version, block);
                None
            }
            Err(error) => {
                tracing::debug!(%error, ino = %version.ino, block, "a copy cannot be read");
                self.shared.index.lock().forget_block(version, block);
                None
            }
        }
    }

    fn keep(&self, version: &FileVersion, block: u64, bytes: &[u8], lease: BlockLease) {
        let Some(jobs) = self.jobs.get() else { return };
        if version.size > self.shared.budget / 2 {
            return;
        }
        // If the disk is slower than the line, the block is fetched again some day.
        let job = Job { version: *version, block, bytes: bytes.to_vec(), lease };
        if let Err(error) = jobs.try_send(job) {
            tracing::debug!(%error, "a block is not kept");
        }
    }
}

impl Shared {
    /// Reads a block of this number of bytes.
    fn read(&self, ino: InodeId, block: u64, bytes: usize) -> Result<Vec<u8>, CopyError> {
        let file = self.open(&bytes_name(ino), OFlags::RDONLY)?;
        let mut read = vec![0; bytes];
        file.read_exact_at(&mut read, block * BLOCK)?;
        Ok(read)
    }

    /// Opens a file in the folder of the copies.
    fn open(&self, name: &str, flags: OFlags) -> Result<File, CopyError> {
        Ok(self.folder.open_folder(FOLDER)?.open_file(name, flags)?)
    }
}

/// Returns the name of the file with the blocks of a file, each at its place.
fn bytes_name(ino: InodeId) -> String {
    format!("{:016x}.bytes", ino.raw())
}

/// Returns the name of the file that remembers the blocks of a file.
fn map_name(ino: InodeId) -> String {
    format!("{:016x}.map", ino.raw())
}
