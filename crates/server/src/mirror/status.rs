//! The status of a volume's mirror.

use std::time::Duration;

use pelago_wire::Time;

use super::RelayProgress;

/// The state of a mirror, as its primary knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorProgress {
    /// Its address, `KEY@HOST:PORT`.
    pub peer: String,
    /// The reign of the primary.
    pub reign: u64,
    /// The phase of the mirror.
    pub phase: MirrorPhase,
    /// Bytes of changes that the mirror does not have.
    pub bytes_at_risk: u64,
    /// The age of the oldest change that the mirror does not have; zero if it has all.
    pub time_at_risk: Duration,
    /// The time of the cut whose state the mirror has; `None` if it has none of this run.
    pub as_of: Option<Time>,
    /// True if it has not followed, or not answered, for some seconds.
    pub is_cut_off: bool,
    /// Number of syncs that wait for it.
    pub waiting: usize,
    /// The relay before it, if there is one.
    pub relay: Option<RelayProgress>,
}

/// The phase of a mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MirrorPhase {
    /// It is not connected.
    Connecting {
        /// The reason why the last connection ended or could not be made.
        problem: Option<String>,
    },
    /// The whole volume is being copied. Until that is complete, the mirror has no state of it.
    Copying {
        /// Number of bytes that were sent.
        sent: u64,
    },
    /// It has a state of another run, or an old one, and is compared with the volume. What differs
    /// is sent; until all of that is there, the mirror keeps the state that it has.
    Comparing {
        /// Number of rows that were compared.
        rows: u64,
        /// Number of bytes that were sent.
        sent: u64,
    },
    /// It gets each change.
    Follows,
    /// It was promoted: this folder must not be served any more.
    Replaced {
        /// The reign of the other primary.
        reign: u64,
    },
}
