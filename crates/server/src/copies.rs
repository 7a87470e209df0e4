//! Copies of other sites' files on the disk of this one.
//!
//! A block that was fetched under a lease is kept in the folder `copies` with the version of its
//! file and a hash. It answers later reads of the same version, also after a restart, so a second
//! reader moves no bytes over the line. A copy is never the only one, so nothing here is synced:
//! what a crash has spoiled does not have its hash, and is fetched again. The files that were read
//! least recently make room for others.
//!
//! When a file has changed, its copies are those of an older version. The blocks that its home
//! still has stay and become copies of the new version; the others are overwritten.
//!
//! `index` says without I/O which blocks there are, `map` is the form of the file that remembers
//! them, `worker` the thread that writes.

mod index;
mod map;
mod worker;

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use pelago_holder::{BlockLease, Copies, FileVersion};
use pelago_store::folder::{Folder, FolderError};
use pelago_wire::{InodeId, limits};
use rustix::fs::OFlags;

use self::index::Index;
use self::map::BlockHash;
use self::worker::{Job, Worker};
use crate::memory::FetchLimits;

/// The folder of the copies, in that of the volume.
const FOLDER: &str = "copies";
const BLOCK: u64 = limits::FETCH_BLOCK_BYTES as u64;

/// The copies of a site.
pub(crate) struct CopyStore {
    shared: Arc<Shared>,
    /// A leaf lock.
    worker: Mutex<Stage>,
}

/// The stage of the worker.
enum Stage {
    /// It has not been needed yet.
    New,
    Runs {
        jobs: SyncSender<Job>,
        thread: JoinHandle<()>,
    },
    /// It has ended, and will not run again.
    Ended,
}

/// The parts that the worker shares.
struct Shared {
    /// The folder of the volume.
    folder: Folder,
    /// Bytes that all copies may take.
    budget: u64,
    limits: FetchLimits,
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
    #[error("less than a tenth of the disk is free")]
    DiskIsFull,
}

impl CopyStore {
    /// Returns the copies in the folder of a volume, which may take `budget` bytes.
    pub(crate) fn new(folder: Folder, budget: u64, limits: FetchLimits) -> Self {
        let index = Mutex::default();
        let worker = Mutex::new(Stage::New);
        Self { shared: Arc::new(Shared { folder, budget, limits, index }), worker }
    }

    /// Removes all copies of the volume in a folder.
    pub(crate) fn remove_all(folder: &Folder) {
        if let Err(error) = folder.remove_tree(FOLDER)
            && !error.is_not_found()
        {
            tracing::warn!(%error, "the copies of other sites' files stay");
        }
    }

    /// Reads which copies there are, and begins to keep others: on a thread of its own. A second
    /// call does nothing.
    pub(crate) fn start(&self) {
        let mut stage = self.worker.lock();
        if !matches!(*stage, Stage::New) {
            return;
        }
        let (jobs, taken) = mpsc::sync_channel(self.shared.limits.copy_jobs);
        let worker = Worker::new(Arc::clone(&self.shared));
        match pelago_threads::spawn("copies", move || worker.run(&taken)) {
            Ok(thread) => *stage = Stage::Runs { jobs, thread },
            Err(error) => {
                tracing::warn!(%error, "nothing of other sites is kept on this disk");
            }
        }
    }

    /// Ends the worker: nothing is written any more. Waits for it.
    pub(crate) fn stop(&self) {
        let stage = std::mem::replace(&mut *self.worker.lock(), Stage::Ended);
        if let Stage::Runs { jobs, thread } = stage {
            drop(jobs);
            if thread.join().is_err() {
                tracing::error!("the thread of the copies has panicked");
            }
        }
    }

    /// Returns how many bytes of a file there are copies of.
    pub(crate) fn bytes_of(&self, file: InodeId) -> u64 {
        self.shared.index.lock().bytes_of(file)
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
        let is_it = |read: &[u8]| BlockHash::of(read) == hash;
        let why = match self.shared.read_if(version.ino, block, bytes, is_it) {
            Ok(read) => return Some(read),
            Err(why) => why,
        };
        // The worker may have replaced the file meanwhile.
        if self.shared.index.lock().forget_block(version, block, hash) {
            tracing::warn!(ino = %version.ino, block, why, "a copy is damaged, and fetched again");
        }
        None
    }

    fn older(&self, version: &FileVersion, blocks: Range<u64>) -> Option<Range<u64>> {
        self.shared.index.lock().older(version, blocks)
    }

    fn older_block(
        &self,
        version: &FileVersion,
        block: u64,
        bytes: usize,
        hash: &[u8; 32],
    ) -> Option<Vec<u8>> {
        let known = self.shared.index.lock().take_older(version, block)?;
        if !known.begins(hash) {
            return None;
        }
        // The whole hash: half of one does not stop two blocks that were made to have the same.
        let is_it = |read: &[u8]| blake3::hash(read) == *hash;
        let why = match self.shared.read_if(version.ino, block, bytes, is_it) {
            Ok(read) => return Some(read),
            Err(why) => why,
        };
        if self.shared.index.lock().forget_older(version, block, known) {
            tracing::warn!(ino = %version.ino, block, why, "a copy is damaged, and fetched again");
        }
        None
    }

    fn keep(&self, version: &FileVersion, block: u64, bytes: &[u8], lease: BlockLease) {
        let stage = self.worker.lock();
        let Stage::Runs { jobs, .. } = &*stage else { return };
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
    /// Reads a block of this number of bytes, if it is the right one.
    ///
    /// # Errors
    /// The reason why it is not, for the log.
    fn read_if(
        &self,
        ino: InodeId,
        block: u64,
        bytes: usize,
        is_it: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>, String> {
        match self.read(ino, block, bytes) {
            Ok(read) if is_it(&read) => Ok(read),
            Ok(_) => Err("other bytes".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Reads a block of this number of bytes.
    fn read(&self, ino: InodeId, block: u64, bytes: usize) -> Result<Vec<u8>, CopyError> {
        let folder = self.folder.open_folder(FOLDER)?;
        let file = folder.open_file(&bytes_name(ino), OFlags::RDONLY)?;
        let mut read = vec![0; bytes];
        file.read_exact_at(&mut read, block * BLOCK)?;
        Ok(read)
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
