//! The search for the relay: connections to it are made by another thread, because a machine that
//! is gone answers nothing for long.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use pelago_wire::mirror::LinkError;
use pelago_wire::relay::{OfferedRelay, RelayAnswer};

use super::super::{Mirror, Offer};
use super::RelayedMirror;

/// The time after which a relay that could not be reached or has failed is tried again.
const REST: Duration = Duration::from_secs(10);
/// The time after which one is asked again that still has groups of an earlier run.
const SHORT_REST: Duration = Duration::from_secs(1);

/// The search for the relay of a volume.
#[derive(Default)]
pub(in super::super) struct RelaySearch {
    answer: Option<Receiver<Result<RelayAnswer, LinkError>>>,
    found: Option<Box<dyn OfferedRelay>>,
    /// The relay is not tried before this time.
    rests_until: Option<Instant>,
    /// Number of connections that have failed since the relay had a group.
    failures: u32,
    /// Since when the relay says that it has groups of an earlier run.
    undelivered_since: Option<Instant>,
    /// When the primary has left the mirror to the relay.
    aside_at: Option<Instant>,
}

/// The result of a search.
pub(super) enum Found {
    /// The relay takes groups.
    Ready,
    /// It has so many groups of an earlier run.
    Undelivered(u64),
    /// There is none, or it is not known yet.
    Nothing,
}

/// The way of the next group, while the primary is connected to the mirror itself.
pub(in super::super) enum Way {
    /// As before.
    Itself,
    /// The relay takes groups, sealed with this key.
    Relay([u8; 32]),
    /// The relay has groups of an earlier run, and cannot tell the mirror while this connection is
    /// there.
    Aside,
}

impl RelaySearch {
    /// Looks for the relay of the volume, for at most `patience`.
    pub(super) fn poll(&mut self, mirror: &Mirror, offer: Offer, patience: Duration) -> Found {
        if self.found.is_some() {
            return Found::Ready;
        }
        if self.answer.is_none() {
            let rests = self.rests_until.is_some_and(|until| Instant::now() < until);
            self.answer = if rests { None } else { start(mirror, offer) };
        }
        let Some(answer) = &self.answer else { return Found::Nothing };
        let answer = match answer.recv_timeout(patience) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => return Found::Nothing,
            Err(RecvTimeoutError::Disconnected) => {
                Err(LinkError::Lost("its connection was not made".to_owned()))
            }
        };
        self.answer = None;
        match answer {
            Ok(RelayAnswer::Ready(found)) => {
                self.undelivered_since = None;
                self.found = Some(found);
                Found::Ready
            }
            Ok(RelayAnswer::Undelivered(groups)) => {
                let problem = format!("it still has {groups} groups of an earlier run");
                self.undelivered_since.get_or_insert_with(Instant::now);
                self.rest(mirror, problem, SHORT_REST);
                Found::Undelivered(groups)
            }
            Err(error) => {
                self.rest(mirror, error.to_string(), REST);
                Found::Nothing
            }
        }
    }

    /// Returns for how long the relay has said that it has groups of an earlier run.
    pub(super) fn undelivered_for(&self) -> Duration {
        self.undelivered_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Returns whether the primary is to leave the mirror to the relay now: once in so much time.
    /// The relay then has time for that again.
    pub(super) fn steps_aside(&mut self, period: Duration) -> bool {
        if self.aside_at.is_some_and(|at| at.elapsed() < period) {
            return false;
        }
        self.aside_at = Some(Instant::now());
        self.undelivered_since = None;
        true
    }

    /// Returns the relay that was found, for [`Mirror`] to use.
    pub(super) fn take(&mut self) -> Option<Box<dyn OfferedRelay>> {
        self.found.take()
    }

    /// Returns the last group of this run that the relay has, if one was found.
    pub(super) fn last(&self) -> Option<u64> {
        self.found.as_ref().map(|found| found.last())
    }

    /// Records that the relay has a group.
    pub(super) const fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Records that a connection has failed: it is made again at once, but not again and again.
    pub(super) fn failed(&mut self, mirror: &Mirror, problem: String) {
        self.failures += 1;
        let rest = if self.failures > 1 { REST } else { Duration::ZERO };
        self.rest(mirror, problem, rest);
    }

    fn rest(&mut self, mirror: &Mirror, problem: String, rest: Duration) {
        self.found = None;
        self.rests_until = Some(Instant::now() + rest);
        let mut state = mirror.state.lock();
        if state.relay.problem.as_ref() != Some(&problem) {
            tracing::warn!(problem, "the relay is not used now");
        }
        state.relay.problem = Some(problem);
    }
}

/// Starts to connect to the relay; `None` if there is none.
fn start(mirror: &Mirror, offer: Offer) -> Option<Receiver<Result<RelayAnswer, LinkError>>> {
    let state = mirror.state.lock();
    let connect = state.connect_relay.clone()?;
    let relay = state.row.relay.clone();
    let relayed = RelayedMirror { relay, mirror: state.row.peer.clone() };
    drop(state);
    if relayed.relay.is_empty() {
        return None;
    }
    let volume = mirror.parts.volume;
    let (sender, receiver) = mpsc::channel();
    let search = move || {
        // The sender may be gone.
        let _sent = sender.send(connect(&relayed, volume, offer));
    };
    // Without a thread the mirror gets the groups itself.
    let started = pelago_threads::spawn("pelago-relay", search);
    started.is_ok().then_some(receiver)
}
