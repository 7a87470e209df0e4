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
                self.found = Some(found);
                Found::Ready
            }
            Ok(RelayAnswer::Undelivered(groups)) => {
                let problem = format!("it still has {groups} groups of an earlier run");
                self.rest(mirror, problem, SHORT_REST);
                Found::Undelivered(groups)
            }
            Err(error) => {
                self.rest(mirror, error.to_string(), REST);
                Found::Nothing
            }
        }
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
