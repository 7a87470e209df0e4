//! The driver of the machine that decides: reads are tasks, and their ends wake clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_proto::deliver::{Options, Policy};
use pelago_wire::Caching;
use tokio::runtime::Handle;

use super::buffers::Buffers;
use super::extent::Extent;
use super::state::{Begun, State};
use crate::hashes::ExtentHashes;
use crate::pinned::ReadError;
use crate::traffic::HttpTraffic;

/// Delivers files to clients.
pub(crate) struct Delivery {
    state: Mutex<State>,
    pub(crate) hashes: ExtentHashes,
    pub(super) buffers: Arc<Buffers>,
    runtime: Handle,
    origin: Instant,
    disk_bytes: AtomicU64,
    served_bytes: AtomicU64,
    reads: AtomicU64,
}

impl Delivery {
    /// Returns one that has extents of so many bytes in memory, and reads on this runtime. A
    /// quarter as much is for blocks from the page cache.
    pub(crate) fn new(memory_bytes: u64, runtime: Handle) -> Arc<Self> {
        let options = Options::new(Policy::Relevance, memory_bytes);
        let buffer_bytes = memory_bytes / 4;
        Arc::new(Self {
            state: Mutex::new(State::new(options)),
            hashes: ExtentHashes::default(),
            buffers: Arc::new(Buffers::new(buffer_bytes)),
            runtime,
            origin: Instant::now(),
            disk_bytes: AtomicU64::new(0),
            served_bytes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
        })
    }

    /// Does something under the lock, and then begins the reads that are wanted because of it.
    pub(super) fn with<R>(self: &Arc<Self>, act: impl FnOnce(&mut State, Duration) -> R) -> R {
        let (result, begun) = {
            let mut state = self.state.lock();
            let now = self.origin.elapsed();
            let result = act(&mut state, now);
            (result, state.begin_reads(now))
        };
        for read in begun {
            self.runtime.spawn(Arc::clone(self).read(read));
        }
        result
    }

    /// Looks at the state, which begins no reads.
    pub(super) fn look<R>(&self, at: impl FnOnce(&mut State) -> R) -> R {
        at(&mut self.state.lock())
    }

    /// Counts bytes that were read from the disk, as far as the kernel tells.
    pub(crate) fn count_read(&self, bytes: u64) {
        self.disk_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes of files that were given to clients.
    pub(crate) fn count_served(&self, bytes: u64) {
        self.served_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns what was counted, and what there is now.
    pub(crate) fn traffic(&self) -> HttpTraffic {
        let state = self.state.lock();
        HttpTraffic {
            disk_bytes: self.disk_bytes.load(Ordering::Relaxed),
            served_bytes: self.served_bytes.load(Ordering::Relaxed),
            extents_read: self.reads.load(Ordering::Relaxed),
            extents_in_memory: state.resident() as u64,
            askers: state.machine.askers() as u64,
            clients: state.machine.clients() as u64,
            files: state.machine.files() as u64,
        }
    }

    async fn read(self: Arc<Self>, begun: Begun) {
        let Begun { read, source, tag, file, has_any_order, has_in_order, evicted } = begun;
        drop(evicted);
        let part = read.offset..read.offset + u64::from(read.len);
        let is_cached = source.is_cached(part.clone());
        // Clients in order take it from there, as long as they get buffers.
        if !has_any_order && !read.is_awaited && is_cached && !self.buffers.are_scarce() {
            return self.with(|state, _now| state.skip_read(&read));
        }
        // Clients in order come one behind another, and the kernel has more memory than this. What
        // is read for those in any order is used at once, by all.
        let caching = if has_in_order { Caching::Keep } else { Caching::Bypass };
        let result = match source.read(part, caching).await {
            Ok(blocks) => {
                self.count_read(if is_cached { 0 } else { u64::from(read.len) });
                self.reads.fetch_add(1, Ordering::Relaxed);
                let number = u64::from(read.extent);
                let known = self.hashes.get(&tag, number);
                let extent = Arc::new(Extent::new(blocks, known));
                if has_any_order && known.is_none() {
                    let hashed = Arc::clone(&extent);
                    let of = Arc::clone(&self);
                    let hash = move || of.hashes.put(&tag, file, number, hashed.hash());
                    // Without it the hash is computed when it is sent.
                    let _done = self.runtime.spawn_blocking(hash).await;
                }
                Ok(extent)
            }
            Err(error) => {
                if let ReadError::Unreadable(error) = error {
                    tracing::warn!(
                        offset = read.offset,
                        why = error.code.says(),
                        "an extent cannot be read"
                    );
                }
                Err(error)
            }
        };
        self.with(|state, now| state.end_read(&read, result, now));
        // The file is released outside the lock.
        drop(source);
    }
}
