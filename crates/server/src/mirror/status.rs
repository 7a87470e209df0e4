//! What a server says of the mirror of its volume.

use std::time::Duration;

use pelago_wire::Time;

/// The state of a mirror, as its primary sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorProgress {
    /// Its address, `KEY@HOST:PORT`.
    pub peer: String,
    /// The reign of the primary.
    pub reign: u64,
    /// How far it is.
    pub phase: MirrorPhase,
    /// Bytes of changes that it does not have.
    pub bytes_at_risk: u64,
    /// How old the oldest of them is; zero if it has all.
    pub time_at_risk: Duration,
    /// When the state that it has was cut; `None` if it has none of this run.
    pub as_of: Option<Time>,
}

/// How far a mirror is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MirrorPhase {
    /// It is not connected.
    Connecting {
        /// Why the last connection ended, or could not be made.
        problem: Option<String>,
    },
    /// All of the volume is copied: until that is complete, none of its state is there.
    Copying {
        /// Bytes that were sent.
        sent: u64,
    },
    /// It gets each change.
    Follows,
    /// It was promoted: this folder is served no more.
    Replaced {
        /// The reign of the other primary.
        reign: u64,
    },
}
