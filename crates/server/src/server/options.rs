//! The options of a server.

use std::sync::Arc;
use std::time::Duration;

use pelago_data::Passthrough;
use pelago_search::Indexing;
use pelago_store::volume::{Owner, VolumeId};
use pelago_wire::limits;

use crate::group_commit::SYNC_INTERVAL;
use crate::group_gate::GroupGate;
use crate::host::HostOptions;
use crate::memory::MEMORY_BYTES;
use crate::mirror::WhenCut;
use crate::sites::Neighbour;

/// The bytes of the disk that copies of other sites' files may take, unless a user says otherwise.
pub const COPY_BYTES: u64 = 8 << 30;

/// The default for [`Options::remote_timeout`].
const REMOTE_TIMEOUT: Duration = Duration::from_secs(10);

/// A site that joins a volume which exists elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joining {
    /// The id of the volume.
    pub volume: VolumeId,
    /// The number of the site.
    pub site: u16,
    /// The site that has invited it: the first site of the volume.
    pub founder: Neighbour,
    /// The name of that site, for people.
    pub founder_name: String,
}

/// Options of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// The longest time between two group commits while there are changes to commit.
    pub sync_interval: Duration,
    /// The size in bytes of the largest file whose bytes are a row in the table, at most
    /// [`limits::INLINE_BYTES`]. Used only if the volume is created; an existing volume has its
    /// own.
    pub inline_bytes: u32,
    /// Bytes of memory for all caches together.
    pub memory_bytes: u64,
    /// Whether changes are refused.
    pub read_only: bool,
    /// The owner of the root directory, if the volume is created.
    pub owner: Owner,
    /// The site for which the volume is made, if it is created; `None` founds a volume.
    pub joining: Option<Joining>,
    /// The longest wait of a request for another site. A site that was silent for that long gets no
    /// requests.
    pub remote_timeout: Duration,
    /// The time for which a site serves guests although it cannot reach the first one.
    pub guests_alone: Duration,
    /// Bytes of the disk that copies of other sites' files may take; 0 keeps none, and removes
    /// those that there are.
    pub copy_bytes: u64,
    /// New files of other sites up to this size go home with their close; the bytes of larger ones
    /// stay here. Set by tests alone.
    pub stay_least_bytes: usize,
    /// The condition under which clients get descriptors of content files.
    pub passthrough: Passthrough,
    /// The limit of what a mirror may lack: beyond it, the replies to changes are held back. `None`
    /// is 2 s if the level of the whole volume is *network* or *remote*, and no limit otherwise.
    pub lag: Option<Duration>,
    /// The reaction of a sync of level *remote* to a mirror that is cut off.
    pub when_cut: WhenCut,
    /// The longest wait of a start for the sessions of the last run. Tests whose clients stay away
    /// set it to zero.
    pub grace: Duration,
    /// The condition under which there is a search index.
    pub indexing: Indexing,
    /// Called with `true` before the search index reads all rows, and with `false` afterwards. In
    /// between it allocates and frees tens of MiB each second on short-lived threads, and an
    /// allocator should not keep that memory.
    pub on_index_reading: fn(bool),
    /// Whether background workers run. Tests that control every step turn them off.
    pub workers: bool,
    /// For tests: whether the server starts no thread. Work for the pool is done on the caller's
    /// thread, all other work when the test calls [`Server::step`](crate::Server::step).
    pub stepped: bool,
    /// The gate of a mirror, whose rows and content files change beneath the server. Such a server
    /// only answers readers, and recovers and writes nothing.
    pub groups: Option<Arc<GroupGate>>,
    /// Whether the folder was the primary and becomes a mirror: it is opened although it is not the
    /// primary, to recover it, and listens to no client.
    pub adopts: bool,
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
            guests_alone: limits::CHARTER_ALONE,
            copy_bytes: 0,
            stay_least_bytes: limits::STAY_LEAST_BYTES,
            passthrough: Passthrough::Auto,
            lag: None,
            when_cut: WhenCut::GoOn,
            // The sessions of clients that stay away end before that.
            grace: Duration::from_secs(limits::TERM_SECONDS + 2),
            indexing: Indexing::Auto,
            on_index_reading: |_| {},
            workers: true,
            stepped: false,
            groups: None,
            adopts: false,
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
