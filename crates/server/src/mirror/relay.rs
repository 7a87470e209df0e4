//! The relay between the primary and its mirror, on the side of the primary.
//!
//! While the mirror follows, groups go to the relay, which passes them on. The next one is cut as
//! soon as the relay has the last one ([`queue`] has those that the mirror may not have), so a sync
//! of level *network* waits for the relay and not for the mirror. For a copy, a comparison, a
//! verification or a handover, and while the relay cannot be reached, the primary is connected to
//! the mirror itself.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::MutexGuard;
use pelago_meta::shard::RowRisk;
use pelago_store::volume::VolumeId;
use pelago_wire::mirror::LinkError;
use pelago_wire::relay::{RelayAnswer, RelayReport, RelaySays};

use super::waits::WhenMirrored;
use super::{Mirror, Offer, State};
use queue::{Queue, Queued};

pub(super) use search::{RelaySearch, Way};
pub use status::RelayProgress;

mod follow;
mod link;
mod queue;
mod search;
mod status;

/// A function that connects to a relay, and offers it the groups of this volume.
pub type ConnectRelay =
    Arc<dyn Fn(&RelayedMirror, VolumeId, Offer) -> Result<RelayAnswer, LinkError> + Send + Sync>;

/// A relay and the mirror after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayedMirror {
    /// The address of the relay, `KEY@HOST:PORT`.
    pub relay: String,
    /// The address of the mirror.
    pub mirror: String,
}

/// The connection to the relay, and what it has reported.
#[derive(Default)]
pub(super) struct RelayState {
    /// Groups go to the relay now.
    is_used: bool,
    /// The newest group that the relay has whole.
    kept: u64,
    /// Number of answers to pings.
    pongs: u64,
    /// Another relay was set, or none.
    is_changed: bool,
    /// The mirror takes nothing from the relay, for this reason.
    apart: Option<String>,
    /// The connection has ended.
    ended: Option<LinkError>,
    /// The reason why the relay is not used.
    problem: Option<String>,
    /// The groups that the relay has, and the mirror may not have.
    queue: Queue,
}

impl RelayState {
    /// Returns the groups that the mirror may not have.
    pub(super) const fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Has the sender look for the relay anew.
    pub(super) fn change(&mut self) {
        self.is_changed = true;
        self.problem = None;
    }

    /// Returns whether the mirror takes nothing from the relay.
    pub(super) const fn is_apart(&self) -> bool {
        self.is_used && self.apart.is_some()
    }
}

impl Mirror {
    /// Takes a report of the relay, or the reason for which no more come.
    fn take_report(&self, report: Result<RelayReport, LinkError>) {
        let mut state = self.state.lock();
        let State { relay, waits, .. } = &mut *state;
        match report {
            Ok(RelayReport { number, says: RelaySays::Sent | RelaySays::Safe(_) })
                if number > relay.kept =>
            {
                let problem = format!("the relay reports group {number}, which it has not got");
                relay.ended = Some(LinkError::Lost(problem));
            }
            Ok(RelayReport { number, says }) => match says {
                RelaySays::Kept => relay.kept = relay.kept.max(number),
                RelaySays::Sent => relay.queue.set_sent(number),
                RelaySays::Safe(_) => relay.queue.set_safe(number),
                RelaySays::Ready => relay.pongs += 1,
                RelaySays::Joined => {
                    relay.apart = None;
                    waits.follows(true, Instant::now());
                }
                // It says so after some seconds in which the mirror has taken nothing.
                RelaySays::Apart(why) => {
                    tracing::warn!(why, "the relay has groups that the mirror does not take");
                    relay.apart = Some(why);
                    waits.cut_off(Instant::now());
                }
                // The mirror is asked: a relay can stop no primary.
                RelaySays::Replaced => {
                    let problem = format!("the mirror was promoted, with reign {number}");
                    relay.ended = Some(LinkError::Lost(problem));
                }
                RelaySays::Undelivered => {
                    let problem = "the relay gives another answer".to_owned();
                    relay.ended = Some(LinkError::Lost(problem));
                }
            },
            Err(error) => relay.ended = Some(error),
        }
        self.answer_relayed(state);
    }

    /// Records a group that the relay has.
    fn queue_relayed(&self, group: Queued) {
        let mut state = self.state.lock();
        state.under_way = RowRisk::default();
        state.groups.end();
        state.waits.queued(group.commit, group.has_all);
        state.relay.queue.push(group);
        if !state.relay.is_apart() {
            state.waits.follows(true, Instant::now());
        }
        self.answer_relayed(state);
    }

    /// Answers the callers that have waited for what the relay and the mirror have.
    fn answer_relayed(&self, mut state: MutexGuard<'_, State>) {
        let mut answers = Vec::new();
        if let Some(commit) = state.relay.queue.sent() {
            answers.extend(state.waits.sent(commit));
        }
        let safe = state.relay.queue.take_safe();
        // Callers that are held back need not wait for the next group commit.
        let has_less = !safe.is_empty();
        for group in safe {
            self.backlog.sent(group.bytes, group.since.elapsed());
            answers.extend(state.mirrored(&group));
        }
        self.changed.notify_all();
        drop(state);
        for answer in answers {
            answer(Ok(()));
        }
        if has_less {
            self.tick();
        }
    }
}

impl State {
    /// Records that the mirror has a group. Returns the callers that have waited for it.
    fn mirrored(&mut self, group: &Queued) -> Vec<WhenMirrored> {
        self.as_of = Some(group.at);
        self.groups.mirrored(group.stamp);
        self.waits.mirrored(group.commit, group.has_all)
    }
}
