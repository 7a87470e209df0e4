//! The status of a volume, which `status` and `up` print.
//!
//! The process that serves a volume fills an [`UpReport`] and sends it over the control socket as
//! JSON; the command parses it. Only [`json`] knows the keys.

use std::path::PathBuf;

use crate::data_path::Passthrough;

mod datagrams;
mod json;
mod mirror_line;
mod mirrors;
mod relay;
mod store;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use datagrams::DatagramLine;
pub(crate) use json::FromJson;
pub(crate) use mirror_line::{MirrorLine, RelayLine, VerifiedLine, link_text};
pub(crate) use mirrors::{MirrorReport, MirrorsReport, PromotedReport};
pub(crate) use relay::{RelayReport, RelayedReport};
pub(crate) use store::{StandbyReport, StoreLine};

/// The result of `status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StatusReport {
    /// A process serves the volume.
    Up(Box<UpReport>),
    /// This is a mount of a volume that another process serves.
    Far(FarReport),
    /// A process keeps the mirrors of volumes of other machines.
    Mirrors(MirrorsReport),
    /// A process passes the groups of volumes on to their mirrors.
    Relay(RelayReport),
    /// This is a server that stands by at a shared store.
    Standby(StandbyReport),
    /// No process serves the shared store from this folder.
    StoreServerDown {
        /// The folder of the server.
        dir: PathBuf,
        /// The folder of the store.
        store: PathBuf,
    },
    /// No process keeps the mirrors in this folder.
    MirrorsDown(PathBuf),
    /// No process is the relay of this folder.
    RelayDown(PathBuf),
    /// No process answers for the volume.
    Down(DownReport),
}

/// A volume that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UpReport {
    /// The version of pelago that serves it.
    pub(crate) pelago: String,
    /// The process that serves it.
    pub(crate) pid: u32,
    /// Its folder, absolute.
    pub(crate) dir: PathBuf,
    /// The id of the volume, in hexadecimal digits.
    pub(crate) id: String,
    /// The previous run stopped cleanly.
    pub(crate) started_clean: bool,
    /// The findings of the recovery at the start.
    pub(crate) recovered: RecoveredReport,
    /// The mount point; `None` if the volume is served without a mount.
    pub(crate) mounted: Option<PathBuf>,
    /// The address for other machines, `KEY@HOST:PORT`; `None` if they cannot connect.
    pub(crate) listening: Option<String>,
    /// The URL of the tree over HTTP; `None` if it is not served over HTTP.
    pub(crate) http: Option<String>,
    /// The counters of the HTTP server; `None` if there is none.
    pub(crate) http_traffic: Option<HttpReport>,
    /// The mirror of the volume; `None` if it has none.
    pub(crate) mirror: Option<MirrorLine>,
    /// The shared store that contains the volume; `None` if it is not in a shared store.
    pub(crate) store: Option<StoreLine>,
    /// Mounts by other processes and machines.
    pub(crate) sessions: Vec<SessionReport>,
    /// The number of sessions of the last run for which the start still waits.
    pub(crate) awaited_sessions: u64,
    /// Changes are refused.
    pub(crate) read_only: bool,
    /// The data path of files.
    pub(crate) passthrough: PassthroughReport,
    /// The reason why requests of the kernel come by the device; `None` if they come over io_uring.
    pub(crate) no_ring: Option<String>,
    /// The reason why there is never a search index; `None` if there may be one.
    pub(crate) no_index: Option<String>,
    /// The warning that the folder is a copy, or older than another site has seen of it; `None` if
    /// it is not known to be one.
    pub(crate) outdated: Option<String>,
    /// The guard of the mount; `None` without a mount.
    pub(crate) guard: Option<GuardReport>,
    /// The start of this run, in seconds since 1970.
    pub(crate) since: i64,
    /// The numbers of the batches that are done, and of those that are safe.
    pub(crate) durability: DurabilityReport,
    /// The number of open files.
    pub(crate) open_files: u64,
    /// The number of files that were closed but that a program may still write.
    pub(crate) pending_closes: u64,
    /// The number of ranges that file locks cover.
    pub(crate) locks: u64,
    /// The number of requests that wait for a file lock.
    pub(crate) lock_waiters: u64,
    /// Space on the disk below; `None` if it could not be measured.
    pub(crate) space: Option<SpaceReport>,
    /// Each limit of memory and its use.
    pub(crate) memory: Vec<MemoryReport>,
    /// The background jobs.
    pub(crate) workers: Vec<WorkerReport>,
    /// The space that the table takes, and its speed.
    pub(crate) table: TableReport,
}

/// A mount of a volume that another process serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FarReport {
    /// The version of pelago that serves the mount.
    pub(crate) pelago: String,
    /// The process that serves the mount.
    pub(crate) pid: u32,
    /// The server of its session, or the server as the user has named it.
    pub(crate) server: String,
    /// The mount point.
    pub(crate) mounted: PathBuf,
    /// Changes are refused.
    pub(crate) read_only: bool,
    /// The reason why requests of the kernel come by the device; `None` if they come over io_uring.
    pub(crate) no_ring: Option<String>,
    /// The guard of the mount.
    pub(crate) guard: GuardReport,
    /// The session's id, in hexadecimal digits.
    pub(crate) session: Option<String>,
    /// The session has a connection.
    pub(crate) connected: bool,
    /// Milliseconds since the server last sent something.
    pub(crate) silent_ms: u64,
    /// The number of requests that wait for the server.
    pub(crate) waiting: u64,
    /// The number of connections that were made.
    pub(crate) connections: u64,
    /// The number of requests that were sent, without repetitions.
    pub(crate) requests: u64,
    /// The number of file locks that programs held and that were lost.
    pub(crate) locks_lost: u64,
    /// Inode numbers of files of which written bytes were lost.
    pub(crate) lost_writes: Vec<u64>,
}

/// The guard of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GuardReport {
    /// The guard runs, with this process id.
    Process(u32),
    /// There is no guard, for this reason.
    Missing(String),
}

impl From<Result<u32, String>> for GuardReport {
    fn from(guard: Result<u32, String>) -> Self {
        guard.map_or_else(Self::Missing, Self::Process)
    }
}

/// A mount by another process or machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionReport {
    /// The session's id, in hexadecimal digits.
    pub(crate) id: String,
    /// The key of the other machine, or the user of this machine.
    pub(crate) peer: String,
    /// The name of the key in the volume.
    pub(crate) name: Option<String>,
    /// The session has a connection.
    pub(crate) connected: bool,
    /// Milliseconds since the client last sent something.
    pub(crate) silent_ms: u64,
    /// The number of requests that run.
    pub(crate) running: u64,
}

/// The counters of an HTTP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HttpReport {
    /// Bytes of files that were read from the disk, as far as the kernel reports it.
    pub(crate) disk_bytes: u64,
    /// Bytes of files that were sent to clients.
    pub(crate) served_bytes: u64,
    /// Extents that were read; each read serves all clients that want the extent.
    pub(crate) extents_read: u64,
    /// Extents that are in memory.
    pub(crate) extents_in_memory: u64,
    /// Clients that wait for a read.
    pub(crate) askers: u64,
    /// Clients that get extents from memory.
    pub(crate) clients: u64,
    /// Files that are being delivered to these clients.
    pub(crate) files: u64,
}

/// The findings of the recovery about files that were open when the previous run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RecoveredReport {
    /// Files that were checked.
    pub(crate) files: u64,
    /// Files whose size or times were corrected.
    pub(crate) corrected: u64,
    /// Files that are empty now, because their bytes were never synced.
    pub(crate) emptied: u64,
    /// Files that are shorter than the sizes in their rows.
    pub(crate) shortened: u64,
    /// Files whose content is damaged.
    pub(crate) damaged: u64,
    /// Small files of the volume that were damaged and were written again.
    pub(crate) mended: u64,
}

/// The choice of the data path, and the reason if it is not in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PassthroughReport {
    /// The choice of `--passthrough`.
    pub(crate) wanted: Passthrough,
    /// The reason why bytes are copied through the process; `None` if passthrough works.
    pub(crate) why_not: Option<String>,
}

/// Batches, counted from 1 in each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DurabilityReport {
    /// The newest batch that is done.
    pub(crate) done: u64,
    /// The newest batch that is safe.
    pub(crate) safe: u64,
    /// The longest time between two syncs, in milliseconds.
    pub(crate) sync_interval_ms: u64,
    /// The age of the oldest batch that is not safe, in milliseconds; 0 if all are safe.
    pub(crate) unsafe_for_ms: u64,
}

/// Space on the disk below a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpaceReport {
    /// Bytes of the disk.
    pub(crate) bytes: u64,
    /// Bytes that can still be written.
    pub(crate) available_bytes: u64,
    /// The reserve is held back for deleting on a full disk.
    pub(crate) holds_reserve: bool,
    /// New data is refused.
    pub(crate) is_short: bool,
}

/// One limit of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemoryReport {
    /// The limit's name in `docs/limits.md`.
    pub(crate) name: String,
    /// Bytes in use.
    pub(crate) used: u64,
    /// Bytes allowed.
    pub(crate) limit: u64,
}

/// One background job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkerReport {
    /// The job's name.
    pub(crate) name: String,
    /// Its state, in one lower-case word.
    pub(crate) doing: String,
    /// The number of items that it has finished.
    pub(crate) items: u64,
    /// The last failure, if there was one.
    pub(crate) last_error: Option<String>,
}

/// The space that the table takes, and its speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableReport {
    /// Bytes of the table's files.
    pub(crate) disk_bytes: u64,
    /// Bytes of its journals.
    pub(crate) journal_bytes: u64,
    /// Bytes of memory that wait to be written.
    pub(crate) memory_bytes: u64,
    /// Compaction keeps up with the writes.
    pub(crate) keeps_up: bool,
}

/// A volume for which no process answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DownReport {
    /// Its folder, absolute.
    pub(crate) dir: PathBuf,
    /// The folder is that of a mount, whose volume another process serves.
    pub(crate) is_far: bool,
    /// The process that is starting or stopping it; `None` if it is down.
    pub(crate) pid: Option<u32>,
    /// The process was killed and cannot end.
    pub(crate) is_dying: bool,
    /// The last run stopped cleanly.
    pub(crate) stopped_cleanly: bool,
    /// The folder is a mirror, or was the primary until its mirror was promoted.
    pub(crate) is_not_primary: bool,
    /// The mount whose process is gone.
    pub(crate) dead_mount: Option<PathBuf>,
}

#[cfg(test)]
impl FarReport {
    /// Returns a report with a value in every field, all distinct.
    pub(crate) fn sample() -> Self {
        Self {
            pelago: "1.2.3".to_owned(),
            pid: 7,
            server: "/v/pelago.sock".to_owned(),
            mounted: "/m".into(),
            read_only: true,
            no_ring: Some("switched off".to_owned()),
            guard: GuardReport::Process(13),
            session: Some("1f".to_owned()),
            connected: false,
            silent_ms: 2500,
            waiting: 8,
            connections: 9,
            requests: 10,
            locks_lost: 11,
            lost_writes: vec![12],
        }
    }
}

#[cfg(test)]
impl UpReport {
    /// Returns a report with a value in every field, all distinct.
    pub(crate) fn sample() -> Self {
        Self {
            pelago: "1.2.3".to_owned(),
            pid: 7,
            dir: "/v".into(),
            id: "00ff".to_owned(),
            started_clean: false,
            recovered: RecoveredReport {
                files: 3,
                corrected: 2,
                emptied: 4,
                shortened: 5,
                damaged: 1,
                mended: 6,
            },
            mounted: Some("/v/files".into()),
            listening: Some("key@host:7440".to_owned()),
            http: Some("http://127.0.0.1:8080/".to_owned()),
            http_traffic: Some(HttpReport {
                disk_bytes: 21,
                served_bytes: 22,
                extents_read: 23,
                extents_in_memory: 24,
                askers: 25,
                clients: 26,
                files: 27,
            }),
            mirror: Some(MirrorLine::sample()),
            store: Some(StoreLine::sample()),
            sessions: vec![SessionReport {
                id: "1f".to_owned(),
                peer: "user 0".to_owned(),
                name: Some("bob".to_owned()),
                connected: true,
                silent_ms: 18,
                running: 19,
            }],
            awaited_sessions: 20,
            read_only: true,
            passthrough: PassthroughReport {
                wanted: Passthrough::Always,
                why_not: Some("passthrough needs root".to_owned()),
            },
            no_ring: Some("switched off".to_owned()),
            no_index: Some("built without".to_owned()),
            outdated: Some("this folder is a copy".to_owned()),
            guard: Some(GuardReport::Missing("it was killed".to_owned())),
            since: 1_800_000_000,
            durability: DurabilityReport {
                done: 9,
                safe: 8,
                sync_interval_ms: 1000,
                unsafe_for_ms: 4,
            },
            open_files: 5,
            pending_closes: 6,
            locks: 16,
            lock_waiters: 17,
            space: Some(SpaceReport {
                bytes: 1 << 40,
                available_bytes: 1 << 30,
                holds_reserve: true,
                is_short: false,
            }),
            memory: vec![MemoryReport { name: "ROWS".to_owned(), used: 10, limit: 11 }],
            workers: vec![WorkerReport {
                name: "orphans".to_owned(),
                doing: "waiting".to_owned(),
                items: 12,
                last_error: Some("no space".to_owned()),
            }],
            table: TableReport {
                disk_bytes: 13,
                journal_bytes: 14,
                memory_bytes: 15,
                keeps_up: true,
            },
        }
    }
}
