//! A server of one volume: directories and files over a table and content files, as
//! [`pelago_wire::Service`].
//!
//! `service` admits each request, chooses its thread and passes it on: names and attributes to the
//! crate `meta`, bytes of open files to the crate `data`. `group_commit` makes batches safe,
//! `background` does work that can wait, `host` holds the parts that a process has once, and
//! `recovery` runs before the first request.

#![forbid(unsafe_code)]

pub use background::{WorkerState, WorkerStatus};
pub use copies::CopyStatus;
pub use group_gate::GroupGate;
pub use memory::{MEMORY_BYTES, MemoryUse, inode_table_bytes, most_facts};
pub use mirror::{
    Commit, ConnectMirror, ConnectRelay, HandOverError, MirrorPhase, MirrorProgress, Offer,
    OnReplaced, RelayProgress, RelayedMirror, SetMirrorError, Verified, WhenCut,
};
pub use mirrors::{
    Adopted, KeptChange, KeptChanges, ListenForReaders, MirrorError, MirrorStatus, MirrorStore,
    OwnChange, Promoted, ReadableMirror, has_mirrors, kept_changes, kept_count,
};
pub use ownership::OnLost;
pub use pelago_data::{Passthrough, PassthroughStatus};
pub use pelago_meta::recovery::RecoverError;
pub use pelago_search::{
    HAS_ENGINE as HAS_SEARCH_INDEX, Indexing, panics_are_caught as index_panics_are_caught,
};
pub use pelago_store::volume::Owner;
pub use recovery::RecoveryReport;
pub use server::{COPY_BYTES, Joining, Options, Parts, Server, StartError, Step, StopError};
pub use sites::{ConnectSite, InviteError, LeaveError, Neighbour, SiteStatus};
pub use standby::{Standby, StandbyStop, Standing};
pub use status::{ProgressStatus, SpaceStatus, Status};
pub use stays::{KeptVersion, StayStatus};
pub use upstream::FarClock;

mod background;
mod chains;
mod completion;
mod copies;
mod digests;
mod find_by_id;
mod grace;
mod group_commit;
mod group_gate;
mod homecomings;
mod host;
mod leases;
mod locks;
mod memory;
mod mirror;
mod mirrors;
mod origins;
mod other_sessions;
mod ownership;
mod policy;
mod pool;
mod recovery;
mod replaced;
mod router;
mod server;
mod service;
mod sites;
mod standby;
mod status;
mod stays;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod unfinished;
mod upstream;
