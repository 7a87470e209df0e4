//! The thread that writes copies: it remembers blocks once they count, and makes room.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use pelago_holder::{BlockLease, FileVersion};
use pelago_store::folder::Folder;
use pelago_wire::{InodeId, limits};
use rustix::fs::{OFlags, statvfs};

use super::index::block_bytes;
use super::map::{BlockHash, Map};
use super::{BLOCK, CopyError, FOLDER, Shared, bytes_name, map, map_name};

/// The time for which the lease on a file must last after a block of it was fetched; see
/// [`BlockLease`]. Longer than the tick of any clock.
const SETTLES: Duration = Duration::from_secs(1);
/// The longest time until blocks that count are remembered.
const PAUSE: Duration = Duration::from_millis(500);
/// The same, if remembering them takes long.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The pause between two looks at the free space while nothing is kept.
const IDLE: Duration = Duration::from_secs(5);
/// Of the disk, one part in so many stays free.
const FREE: u64 = 10;
/// The end of the name of a map that is not whole yet.
const NEW: &str = ".new";

/// A block to keep.
pub(super) struct Job {
    pub(super) version: FileVersion,
    pub(super) block: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) lease: BlockLease,
}

/// The state of the thread.
pub(super) struct Worker {
    shared: Arc<Shared>,
    /// Blocks that are written and do not count yet, the oldest first.
    waiting: VecDeque<Written>,
    /// The last write has failed, which is in the log.
    is_failing: bool,
}

/// A block that is written.
struct Written {
    version: FileVersion,
    block: u64,
    hash: BlockHash,
    lease: BlockLease,
    since: Instant,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, waiting: VecDeque::new(), is_failing: false }
    }

    /// Reads which copies there are, then keeps blocks until there are no more to come.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        if let Err(error) = self.load() {
            tracing::warn!(%error, "the copies of other sites' files cannot be read");
        }
        self.make_room();
        let mut looked = Instant::now();
        let mut pause = PAUSE;
        loop {
            let wait = if self.waiting.is_empty() { IDLE } else { PAUSE };
            match jobs.recv_timeout(wait) {
                Ok(job) => self.keep(job),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.remember(),
            }
            self.settle();
            if looked.elapsed() >= pause {
                let began = Instant::now();
                self.remember();
                self.make_room();
                looked = Instant::now();
                // The maps of large files are long: they take a part of the time only.
                pause = (20 * (looked - began)).clamp(PAUSE, LONGEST_PAUSE);
            }
        }
    }

    /// Reads the maps. Removes what belongs to none.
    fn load(&mut self) -> Result<(), CopyError> {
        let folder = match self.shared.folder.open_folder(FOLDER) {
            Err(error) if error.is_not_found() => return Ok(()),
            opened => opened?,
        };
        let mut found = Vec::new();
        for name in folder.entries()? {
            let Some(name) = name.to_str() else { continue };
            let ino =
                name.strip_suffix(".map").and_then(|digits| u64::from_str_radix(digits, 16).ok());
            let Some(ino) = ino.map(InodeId::from_raw).filter(|ino| map_name(*ino) == name) else {
                continue;
            };
            match read_map(&folder, ino) {
                Ok(Some(map)) => found.push(map),
                // Its blocks are fetched again.
                Ok(None) | Err(_) => self.forget(&folder, ino),
            }
        }
        found.sort_unstable_by_key(|found| (found.changed, found.map.version.ino));
        let mut index = self.shared.index.lock();
        found.into_iter().for_each(|found| index.add(found.map, found.bytes));
        drop(index);
        self.remove_strays(&folder)
    }

    /// Removes files that belong to no map: a crash has left them.
    fn remove_strays(&self, folder: &Folder) -> Result<(), CopyError> {
        for name in folder.entries()? {
            let Some(name) = name.to_str() else { continue };
            let is_stray = match name.strip_suffix(".bytes") {
                Some(digits) => !folder.contains(&format!("{digits}.map"))?,
                None => name.ends_with(NEW),
            };
            if is_stray && let Err(error) = folder.remove(name) {
                tracing::debug!(%error, "what is no copy stays");
            }
        }
        Ok(())
    }

    /// Writes a block. It counts later.
    fn keep(&mut self, job: Job) {
        let Job { version, block, bytes, lease } = job;
        if bytes.len() as u64 != block_bytes(&version, block)
            || self.shared.index.lock().hash(&version, block).is_some()
        {
            return;
        }
        // One that waits may have been read under an earlier lease, and need not count.
        let hash = BlockHash::of(&bytes);
        match self.write(&version, block, &bytes, hash) {
            Ok(()) => {
                self.is_failing = false;
                let since = Instant::now();
                self.waiting.push_back(Written { version, block, hash, lease, since });
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(%error, "what is fetched from other sites is not kept");
                }
            }
        }
    }

    /// Writes a block, unless it is there since an earlier version.
    fn write(
        &mut self,
        version: &FileVersion,
        block: u64,
        bytes: &[u8],
        hash: BlockHash,
    ) -> Result<(), CopyError> {
        let folder = self.shared.folder.create_folder(FOLDER)?;
        let shared = Arc::clone(&self.shared);
        let is_here = || shared.index.lock().older_hash(version, block) == Some(hash);
        if missing(&folder)? > 0 && !is_here() {
            return Err(CopyError::DiskIsFull);
        }
        if self.shared.index.lock().has_other(version) {
            self.renew(&folder, version);
        }
        if is_here() {
            return Ok(());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE;
        let file = folder.open_file(&bytes_name(version.ino), flags)?;
        file.write_all_at(bytes, block * BLOCK)?;
        self.shared.index.lock().note_written(version, block);
        Ok(())
    }

    /// Makes the copies of a file those of an older version than this one. Those of a small file
    /// are of no use then.
    fn renew(&mut self, folder: &Folder, version: &FileVersion) {
        if version.size < limits::HASHED_FILE_BYTES {
            return self.forget(folder, version.ino);
        }
        self.waiting.retain(|written| written.version.ino != version.ino);
        self.shared.index.lock().renew(version);
        if let Err(error) = cut(folder, version) {
            tracing::debug!(%error, "copies of an older version are not kept");
            self.forget(folder, version.ino);
        }
    }

    /// Makes copies of the blocks whose leases have lasted long enough.
    fn settle(&mut self) {
        while let Some(written) = self.waiting.front().filter(|it| it.since.elapsed() >= SETTLES) {
            if written.lease.lasts() {
                let mut index = self.shared.index.lock();
                index.settle(&written.version, written.block, written.hash);
            }
            self.waiting.pop_front();
        }
    }

    /// Writes the maps that have changed.
    fn remember(&self) {
        let changed = self.shared.index.lock().take_changed();
        for map in changed {
            let ino = map.version.ino;
            if let Err(error) = self.write_map(ino, &map::encode(&map)) {
                tracing::debug!(%error, %ino, "copies are not remembered");
                self.shared.index.lock().note_changed(ino);
            }
        }
    }

    fn write_map(&self, ino: InodeId, bytes: &[u8]) -> Result<(), CopyError> {
        let folder = self.shared.folder.open_folder(FOLDER)?;
        let name = map_name(ino);
        let new = format!("{name}{NEW}");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        folder.open_file(&new, flags)?.write_all(bytes)?;
        folder.rename(&new, &name)?;
        Ok(())
    }

    /// Removes the files that were used least recently while there are too many, or too little of
    /// the disk is free.
    fn make_room(&mut self) {
        let Ok(folder) = self.shared.folder.open_folder(FOLDER) else { return };
        loop {
            let mut budget = self.shared.budget;
            match missing(&folder) {
                Ok(0) => {}
                Ok(missing) => {
                    let bytes = self.shared.index.lock().bytes();
                    budget = budget.min(bytes.saturating_sub(missing));
                }
                Err(error) => tracing::debug!(%error, "the free space is not known"),
            }
            let Some(ino) =
                self.shared.index.lock().surplus(budget, self.shared.limits.copied_files)
            else {
                return;
            };
            self.forget(&folder, ino);
        }
    }

    /// Forgets the copies of a file. The map goes first: bytes without one are removed by the next
    /// start.
    fn forget(&mut self, folder: &Folder, ino: InodeId) {
        self.waiting.retain(|written| written.version.ino != ino);
        self.shared.index.lock().remove(ino);
        for name in [map_name(ino), bytes_name(ino)] {
            if let Err(error) = folder.remove(&name) {
                tracing::debug!(%error, "a copy cannot be removed");
            }
        }
    }
}

/// Returns the bytes of the disk that are missing to the part that stays free.
fn missing(folder: &Folder) -> io::Result<u64> {
    let disk = statvfs(folder.proc_path())?;
    Ok((disk.f_blocks / FREE).saturating_sub(disk.f_bavail).saturating_mul(disk.f_frsize))
}

/// Gives the disk back what is after the end of a version of a file.
fn cut(folder: &Folder, version: &FileVersion) -> Result<(), CopyError> {
    let file = folder.open_file(&bytes_name(version.ino), OFlags::WRONLY)?;
    if file.metadata()?.len() > version.size {
        file.set_len(version.size)?;
    }
    Ok(())
}

/// A map that was read.
struct FoundMap {
    /// The time of its last change, in seconds and nanoseconds.
    changed: (i64, i64),
    map: Map,
    /// Bytes of the disk that its blocks take, also those that it does not name.
    bytes: u64,
}

/// Reads a map; `None` if it is damaged.
fn read_map(folder: &Folder, ino: InodeId) -> Result<Option<FoundMap>, CopyError> {
    let mut file = folder.open_file(&map_name(ino), OFlags::RDONLY)?;
    let about = file.metadata()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let changed = (about.mtime(), about.mtime_nsec());
    let Some(map) = map::decode(&bytes).filter(|map| map.version.ino == ino) else {
        return Ok(None);
    };
    let on_disk = folder.open_file(&bytes_name(ino), OFlags::RDONLY)?.metadata()?.blocks() * 512;
    let named = map.blocks.keys().map(|block| block_bytes(&map.version, *block)).sum();
    Ok(Some(FoundMap { changed, map, bytes: on_disk.max(named) }))
}
