//! The status of the relay of a volume's mirror.

use super::super::State;

/// The state of a relay, as the primary knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayProgress {
    /// Its address, `KEY@HOST:PORT`.
    pub address: String,
    /// Groups go through it now.
    pub is_used: bool,
    /// Groups that it has, and the mirror may not have.
    pub groups: usize,
    /// Bytes of these groups.
    pub bytes: u64,
    /// The reason why it is not used, or why the mirror takes nothing from it.
    pub problem: Option<String>,
}

impl State {
    /// Returns the state of the relay; `None` if there is none.
    pub(in super::super) fn relay_progress(&self) -> Option<RelayProgress> {
        if self.row.relay.is_empty() {
            return None;
        }
        let relay = &self.relay;
        let problem = if relay.is_used { &relay.apart } else { &relay.problem };
        Some(RelayProgress {
            address: self.row.relay.clone(),
            is_used: relay.is_used,
            groups: relay.queue.len(),
            bytes: relay.queue.bytes(),
            problem: problem.clone(),
        })
    }
}
