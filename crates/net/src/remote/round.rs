//! A round of attempts: each known server of a store is tried in turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ServerTarget;
use super::connect::Connector;
use super::connect_error::{ConnectError, is_definite, is_passing};
use super::servers::RedirectError;
use crate::key::address::ServerAddress;
use crate::log_limit::LogLimit;

/// How long an attempt may take without an answer, if there are other servers to try.
const ANSWER: Duration = Duration::from_secs(2);
/// Redirects that are followed in one round.
const HOPS: usize = 4;
/// Lines about redirects that are not followed.
static REDIRECTS: LogLimit = LogLimit::new();

/// The failure of a round: no server gave a session.
pub(super) struct RoundFailure {
    /// The error that says most of it.
    pub(super) error: ConnectError,
    /// Only a person can change that.
    pub(super) is_definite: bool,
}

/// The attempts of a round.
#[derive(Default)]
struct Round {
    tried: Vec<ServerAddress>,
    /// Where servers that stand by have sent the client.
    owners: Vec<ServerAddress>,
    error: Option<ConnectError>,
    /// Whether each attempt failed for good.
    is_definite: bool,
}

impl Connector {
    /// Tries each known server, and the owner to which one of them redirects, each once.
    pub(super) fn round(&self, patience: Duration) -> Result<(), RoundFailure> {
        let (ServerTarget::Tcp { key, .. }, Some(turn)) = (&self.options.target, &self.turn) else {
            let result = self.attempt(&self.options.target, patience, patience);
            return result.map_err(|error| {
                let is_definite = is_definite(&error);
                RoundFailure { error, is_definite }
            });
        };
        let (listed, news) = self.calls.servers();
        let mut waiting = turn.lock().begin(&listed, &news);
        let mut round = Round { is_definite: true, ..Round::default() };
        while let Some(address) = waiting.pop_front() {
            let is_only = waiting.is_empty() && round.tried.is_empty();
            let answer = if is_only { patience } else { ANSWER.min(patience) };
            let target = ServerTarget::Tcp { address: address.clone(), key: Arc::clone(key) };
            let error = match self.attempt(&target, patience, answer) {
                Ok(()) => {
                    turn.lock().note_connected(address);
                    return Ok(());
                }
                Err(error) => error,
            };
            tracing::debug!(server = %address, %error, "no session there");
            if error.is_silence() {
                turn.lock().note_silent(&address);
            }
            let followed = error.owner().map(|text| turn.lock().follow(&listed, text));
            round.tried.push(address.clone());
            match followed {
                Some(Ok(owner)) if round.may_follow(&owner) => {
                    waiting.retain(|other| *other != owner);
                    round.owners.push(owner.clone());
                    waiting.push_front(owner);
                }
                Some(Err(why)) => note_not_followed(&address, &why),
                Some(Ok(_)) | None => {}
            }
            if round.note(&address, error) || self.calls.has_ended() {
                break;
            }
            // Connecting a socket waits, and deadlines of requests pass meanwhile.
            self.calls.tick(Instant::now());
        }
        Err(round.failure())
    }
}

impl Round {
    /// Returns whether a redirect is followed: one that was tried has failed a moment ago.
    fn may_follow(&self, owner: &ServerAddress) -> bool {
        self.owners.len() < HOPS && !self.tried.contains(owner)
    }

    /// Notes the failure at a server. Returns whether it is the last word: the owner, as another
    /// server has named it, refuses this client. A server that stands by may have an old list of
    /// clients, so that its word alone is none.
    fn note(&mut self, address: &ServerAddress, error: ConnectError) -> bool {
        let is_definite = is_definite(&error);
        let is_last = is_definite
            && matches!(error, ConnectError::Refused(_))
            && self.owners.contains(address);
        self.is_definite = is_last || (self.is_definite && is_definite);
        let says_more = match &self.error {
            Some(before) => is_last || (is_passing(&error) && !is_passing(before)),
            None => true,
        };
        if says_more {
            self.error = Some(error);
        }
        is_last
    }

    fn failure(self) -> RoundFailure {
        let Self { error, is_definite, .. } = self;
        match error {
            Some(error) => RoundFailure { error, is_definite },
            None => RoundFailure { error: ConnectError::Silent, is_definite: false },
        }
    }
}

fn note_not_followed(server: &ServerAddress, why: &RedirectError) {
    if let Some(left_out) = REDIRECTS.admit() {
        tracing::warn!(%server, %why, left_out, "a server stands by and leads nowhere");
    }
}
