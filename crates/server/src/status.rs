//! What a server says of itself: plain data for `pelago status` and for tests.

use std::path::PathBuf;
use std::time::Duration;

use pelago_data::PassthroughStatus;
use pelago_store::table::{Pressure, Usage};
use pelago_store::volume::VolumeId;
use pelago_wire::{Time, VolumeStats};

use crate::background::WorkerStatus;
use crate::memory::MemoryUse;
use crate::recovery::Recovered;

/// How a server is, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The volume.
    pub volume: VolumeId,
    /// Its folder; empty where a test runs without.
    pub dir: PathBuf,
    /// When this life of the server began.
    pub since: Time,
    /// Whether the life before it ended cleanly.
    pub started_clean: bool,
    /// What was found of files that were being written when that life ended.
    pub recovered: Recovered,
    /// Whether changes are refused by choice.
    pub read_only: bool,
    /// What is done and what is safe.
    pub progress: ProgressStatus,
    /// Files that are open.
    pub open_files: u64,
    /// Whether files are handed out as descriptors.
    pub passthrough: PassthroughStatus,
    /// Files that were closed and are still in use: somebody may still write them, or they are just
    /// being let go of. Counted at the same moment as [`Status::open_files`].
    pub lingering_files: u64,
    /// Space of the medium; `None` where it could not be measured.
    pub space: Option<SpaceStatus>,
    /// Each limit of memory, and how much of it is used.
    pub memory: Vec<MemoryUse>,
    /// What is done in the background.
    pub workers: Vec<WorkerStatus>,
    /// What the table costs.
    pub table: Usage,
    /// Whether the table keeps up.
    pub pressure: Pressure,
}

/// What is done and what is safe. Batches are counted from 1 in each life of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgressStatus {
    /// The newest batch that was applied.
    pub done: u64,
    /// The newest batch that is on stable storage.
    pub safe: u64,
    /// How often batches are made safe, at the least.
    pub sync_interval: Duration,
    /// Since when something waits to be safe: no longer than this; zero where nothing does.
    pub unsafe_for: Duration,
}

/// Space of the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceStatus {
    /// Blocks and files, all and free.
    pub medium: VolumeStats,
    /// Whether the reserve is held.
    pub holds_reserve: bool,
    /// Whether new data is refused.
    pub is_short: bool,
}
