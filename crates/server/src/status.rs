//! The state of a server as plain data, for `pelago status` and for tests.

use std::path::PathBuf;
use std::time::Duration;

use pelago_data::PassthroughStatus;
use pelago_store::table::{Pressure, Usage};
use pelago_store::volume::VolumeId;
use pelago_wire::{Time, VolumeStats};

use crate::background::WorkerStatus;
use crate::memory::MemoryUse;
use crate::recovery::RecoveryReport;

/// The state of a server at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The volume's id.
    pub volume: VolumeId,
    /// The volume's folder; empty for a server without a volume.
    pub dir: PathBuf,
    /// The time at which this run of the server began.
    pub since: Time,
    /// Whether the run before it ended cleanly.
    pub started_clean: bool,
    /// The findings of recovery among the files that were open for writing when that run ended.
    pub recovered: RecoveryReport,
    /// True if the volume is served read-only.
    pub read_only: bool,
    /// The newest batches that are done and safe.
    pub progress: ProgressStatus,
    /// Number of sessions of the last run for which the start still waits.
    pub awaited_sessions: u64,
    /// Number of opens that were not released.
    pub open_files: u64,
    /// Number of byte ranges that file locks cover.
    pub locks: u64,
    /// Number of requests that wait for a file lock.
    pub lock_waiters: u64,
    /// Whether clients can get descriptors of content files.
    pub passthrough: PassthroughStatus,
    /// Number of files that were closed but not released yet, because a process may still write
    /// them. Counted at the same moment as [`Status::open_files`].
    pub pending_closes: u64,
    /// Space of the disk; `None` if it could not be measured.
    pub space: Option<SpaceStatus>,
    /// The limits of memory, and the use of each.
    pub memory: Vec<MemoryUse>,
    /// The background workers.
    pub workers: Vec<WorkerStatus>,
    /// The space and memory that the table uses.
    pub table: Usage,
    /// Whether the table falls behind with its writes.
    pub pressure: Pressure,
}

/// The newest batches that are done and safe. Batches are numbered from 1 in each run of the
/// server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgressStatus {
    /// The newest batch that was applied.
    pub done: u64,
    /// The newest batch that is on stable storage.
    pub safe: u64,
    /// The longest time between two group commits.
    pub sync_interval: Duration,
    /// The largest possible age of a change that is not safe; zero if all are safe.
    pub unsafe_for: Duration,
}

/// Space of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceStatus {
    /// Blocks and inodes of the disk, in total and free.
    pub disk: VolumeStats,
    /// True while the reserve holds its blocks.
    pub holds_reserve: bool,
    /// Whether new data is refused.
    pub is_short: bool,
}
