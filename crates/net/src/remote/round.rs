//! A round of attempts: each known server of a store is tried in turn.

use super::connect_error::{ConnectError, is_definite, is_passing};
use crate::key::address::ServerAddress;

/// Redirects that are followed in one round.
const HOPS: usize = 4;
/// The failure of a round: no server gave a session.
pub(super) struct RoundFailure {
    /// The error that says most of it.
    pub(super) error: ConnectError,
    /// Only a person can change that.
    pub(super) is_definite: bool,
}

/// The attempts of a round.
pub(super) struct Round {
    pub(super) tried: Vec<ServerAddress>,
    /// Where servers that stand by have sent the client.
    pub(super) owners: Vec<ServerAddress>,
    error: Option<ConnectError>,
    /// Whether each attempt failed for good.
    is_definite: bool,
}

impl Round {
    pub(super) const fn new() -> Self {
        Self { tried: Vec::new(), owners: Vec::new(), error: None, is_definite: true }
    }

    /// Returns whether a redirect is followed: one that was tried has failed a moment ago.
    pub(super) fn may_follow(&self, owner: &ServerAddress) -> bool {
        self.owners.len() < HOPS && !self.tried.contains(owner)
    }

    /// Notes the failure at a server. Returns whether it is the last word: the owner, as another
    /// server has named it, refuses this client. A server that stands by may have an old list of
    /// clients, so that its word alone is none.
    pub(super) fn note(&mut self, address: &ServerAddress, error: ConnectError) -> bool {
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

    pub(super) fn failure(self) -> RoundFailure {
        let Self { error, is_definite, .. } = self;
        match error {
            Some(error) => RoundFailure { error, is_definite },
            None => RoundFailure { error: ConnectError::Silent, is_definite: false },
        }
    }
}
