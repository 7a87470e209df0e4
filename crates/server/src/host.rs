//! The parts that a process has once, however many shards it serves.
//!
//! Two of any of them would be wrong: two budgets for the descriptors of one process, two pools
//! that do not know of each other's callers, two reserves on one disk. The parts of one shard are
//! in [`crate::server`]. A server makes its host itself, because it serves one shard today. The
//! reactor and its connections exist once in a process too, but belong to the crate `net`, which
//! serves other machines.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_data::{FdBudget, Space};
use pelago_wire::{Code, Error, limits};

use crate::background::{Notify, STOP_TIMEOUT, Worker, WorkerStatus, Workers};
use crate::group_commit::{CommitThread, GroupCommit};
use crate::memory::{MemoryLimits, most_leases};
use crate::pool::Pool;

/// The parts that a process has once.
pub(crate) struct Host {
    /// The division of the process's memory.
    pub(crate) memory: MemoryLimits,
    /// The limit of leases of all sessions together.
    pub(crate) leases: usize,
    /// The account of the disk's free space, which accepts or refuses new data.
    pub(crate) space: Arc<Space>,
    /// The budget of descriptors for content files.
    pub(crate) descriptors: Arc<FdBudget>,
    /// Threads for requests that may block.
    pub(crate) pool: Arc<Pool>,
    /// Taken after the lock of a server that stops, and before all other locks: it is held while
    /// workers are joined, and while a test steps one.
    workers: Mutex<Workers>,
    commit: OnceLock<CommitThread>,
    sync_interval: Duration,
    is_stepped: bool,
}

/// The options of a host, which do not change while it runs.
pub(crate) struct HostOptions {
    /// Bytes of memory for all caches together.
    pub(crate) memory_bytes: u64,
    /// The longest time between two group commits.
    pub(crate) sync_interval: Duration,
    /// For tests: true if no thread is started.
    pub(crate) is_stepped: bool,
}

impl Host {
    /// Returns a host with a pool and no other threads yet.
    ///
    /// # Errors
    /// The system's error if a thread of the pool cannot be started.
    pub(crate) fn new(options: &HostOptions, space: Arc<Space>) -> io::Result<Self> {
        let pool = match options.is_stepped {
            true => Pool::inline(),
            false => Pool::start(limits::POOL_SHARE)?,
        };
        Ok(Self {
            memory: MemoryLimits::of(options.memory_bytes),
            leases: most_leases(options.memory_bytes),
            space,
            descriptors: FdBudget::of_process(),
            pool: Arc::new(pool),
            workers: Mutex::new(Workers::new(options.is_stepped)),
            commit: OnceLock::new(),
            sync_interval: options.sync_interval,
            is_stepped: options.is_stepped,
        })
    }

    /// Starts a worker.
    ///
    /// # Errors
    /// The system's error if its thread cannot be started.
    pub(crate) fn start_worker(
        &self,
        notify: &Arc<Notify>,
        worker: impl Worker + 'static,
    ) -> io::Result<()> {
        self.workers.lock().start(notify, worker)
    }

    /// Starts the thread of the group commit. Called once, because a shard without its group commit
    /// would wait for ever.
    ///
    /// # Errors
    /// The system's error if the thread cannot be started.
    pub(crate) fn start_commits(&self, commit: GroupCommit) -> io::Result<()> {
        assert!(self.commit.get().is_none(), "a host commits one shard");
        let thread = match self.is_stepped {
            true => CommitThread::stepped(commit),
            false => CommitThread::start(commit, self.sync_interval)?,
        };
        let is_first = self.commit.set(thread).is_ok();
        assert!(is_first, "a host commits one shard");
        Ok(())
    }

    /// Does one round of the group commit on this thread. Only for a stepped host.
    ///
    /// # Errors
    /// As [`CommitThread::step`]; [`Code::Unavailable`] before [`Host::start_commits`].
    pub(crate) fn step_commit(&self) -> Result<(), Error> {
        let commit = self.commit.get().ok_or(Code::Unavailable)?;
        commit.step()
    }

    /// Does the work of the worker of this name on this thread. Only for a stepped host.
    ///
    /// # Errors
    /// As [`Workers::step`].
    pub(crate) fn step_worker(&self, name: &str) -> Result<(), Error> {
        self.workers.lock().step(name)
    }

    /// Returns the state of each worker.
    pub(crate) fn workers(&self) -> Vec<WorkerStatus> {
        self.workers.lock().status()
    }

    /// Stops each worker after its present piece of work. Returns when all have ended.
    pub(crate) fn stop_workers(&self) {
        self.workers.lock().stop(STOP_TIMEOUT);
    }

    /// Ends the thread of the group commit: nothing becomes safe any more.
    pub(crate) fn stop_commits(&self) {
        if let Some(commit) = self.commit.get() {
            commit.stop();
        }
    }
}
