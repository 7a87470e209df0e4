//! What the caller chooses about a server.

use std::time::Duration;

use pelago_data::Passthrough;
use pelago_search::Indexing;
use pelago_store::volume::{Owner, VolumeId};
use pelago_wire::limits;

use crate::group_commit::SYNC_INTERVAL;
use crate::host::HostOptions;
use crate::memory::MEMORY_BYTES;
use crate::sites::Neighbour;

/// How long a request waits for another site, unless it is told otherwise.
const REMOTE_TIMEOUT: Duration = Duration::from_secs(10);

/// A site that joins a volume which exists elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joining {
    /// The id of the volume.
    pub volume: VolumeId,
    /// The number of the site.
    pub site: u16,
    /// The site that has invited it: the first one of the volume.
    pub founder: Neighbour,
    /// The name of that, for people.
    pub founder_name: String,
}

/// Options of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// The longest time between two group commits, if there is something to commit.
    pub sync_interval: Duration,
    /// The largest file in bytes that is kept in the table, at most [`limits::INLINE_BYTES`]. Used
    /// only if the volume is created; an existing volume has its own.
    pub inline_bytes: u32,
    /// Bytes of memory for all caches together.
    pub memory_bytes: u64,
    /// Whether changes are refused.
    pub read_only: bool,
    /// The owner of the root directory, if the volume is created.
    pub owner: Owner,
    /// The site that the volume is made for, if it is created; `None` founds a volume.
    pub joining: Option<Joining>,
    /// How long a request waits for another site. One that was silent for that long is not asked.
    pub remote_timeout: Duration,
    /// When clients that can use descriptors of content files get them.
    pub passthrough: Passthrough,
    /// How long a start waits for the sessions of the last run. Tests whose clients stay
    /// away set it to zero.
    pub grace: Duration,
    /// When there is a search index.
    pub indexing: Indexing,
    /// Called with `true` before the search index reads all rows, and with `false` afterwards.
    /// Meanwhile it takes and frees tens of MiB each second, on threads that do not last, which an
    /// allocator is not to keep.
    pub on_index_reading: fn(bool),
    /// Whether background workers run. Tests that control every step turn them off.
    pub workers: bool,
    /// For tests: the server starts no thread. Work for the pool is done on the caller's thread,
    /// all other work when the test calls [`Server::step`](crate::Server::step).
    pub stepped: bool,
}

impl Default for Options {
    fn default() -> Self {
        let uid = rustix::process::getuid();
        let gid = rustix::process::getgid();
        Self {
            sync_interval: SYNC_INTERVAL,
            inline_bytes: limits::INLINE_DEFAULT_BYTES as u32,
            memory_bytes: MEMORY_BYTES,
            read_only: false,
            owner: Owner { uid: uid.as_raw(), gid: gid.as_raw() },
            joining: None,
            remote_timeout: REMOTE_TIMEOUT,
            passthrough: Passthrough::Auto,
            // A session that stays away ends before that.
            grace: Duration::from_secs(limits::TERM_SECONDS + 2),
            indexing: Indexing::Auto,
            on_index_reading: |_| {},
            workers: true,
            stepped: false,
        }
    }
}

impl Options {
    /// Returns the options of the host.
    pub(crate) fn of_host(&self) -> HostOptions {
        HostOptions {
            memory_bytes: self.memory_bytes,
            sync_interval: self.sync_interval,
            is_stepped: self.stepped,
        }
    }
}

/// One step of a thread that a stepped server does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A group commit; reopens the table if it has stopped.
    Commit,
    /// All work that the worker of this name can do without waiting.
    Work(&'static str),
}
