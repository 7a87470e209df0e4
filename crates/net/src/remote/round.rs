//! A round of attempts: each known server of a store is tried once. The round fails for good if all
//! servers have refused the client for good, or if the owner has.

use super::connect_error::{ConnectError, is_definite, is_passing};
use crate::key::address::ServerAddress;

/// Redirects that are followed in one round.
const HOPS: usize = 4;

/// The failure of a round: no server gave a session.
pub(super) struct RoundFailure {
    /// The most significant error of the attempts.
    pub(super) error: ConnectError,
    /// Only a person can change the cause.
    pub(super) is_definite: bool,
}

/// The attempts of a round.
pub(super) struct Round {
    /// The servers that were tried.
    pub(super) tried: Vec<ServerAddress>,
    /// The owners that standby servers have named.
    pub(super) owners: Vec<ServerAddress>,
    error: Option<ConnectError>,
    /// Each attempt failed for good.
    is_definite: bool,
}

impl Round {
    pub(super) const fn new() -> Self {
        Self { tried: Vec::new(), owners: Vec::new(), error: None, is_definite: true }
    }

    /// Returns whether a redirect to this owner is followed: not if it was tried in this round.
    pub(super) fn may_follow(&self, owner: &ServerAddress) -> bool {
        self.owners.len() < HOPS && !self.tried.contains(owner)
    }

    /// Records the failure of an attempt. Returns whether it ends the round: the owner, as another
    /// server has named it, refuses this client for good. The refusal of a standby server alone
    /// does not end it: its list of clients may be old.
    pub(super) fn record(&mut self, address: &ServerAddress, error: ConnectError) -> bool {
        let is_definite = is_definite(&error);
        let is_last = is_definite
            && matches!(error, ConnectError::Refused(_))
            && self.owners.contains(address);
        self.is_definite = is_last || (self.is_definite && is_definite);
        let is_more_significant = match &self.error {
            Some(before) => is_last || (is_passing(&error) && !is_passing(before)),
            None => true,
        };
        if is_more_significant {
            self.error = Some(error);
        }
        is_last
    }

    /// Returns the failure of the round.
    pub(super) fn failure(self) -> RoundFailure {
        let Self { error, is_definite, .. } = self;
        match error {
            Some(error) => RoundFailure { error, is_definite },
            None => RoundFailure { error: ConnectError::Silent, is_definite: false },
        }
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::handshake::{RefusalCode, Refused};

    use super::*;
    use crate::key::PrivateKey;

    fn at(port: u16) -> ServerAddress {
        let key = PrivateKey::from_seed([7; 32]).public();
        ServerAddress::new(key, "host", port).unwrap_or_else(|_| unreachable!())
    }

    fn refused(code: RefusalCode) -> ConnectError {
        let wire_min = 1;
        let wire_max = 1;
        let text = String::new();
        ConnectError::Refused(Refused { code, wire_min, wire_max, retry_ms: 0, text })
    }

    #[test]
    fn a_round_fails_for_good_if_all_refuse_or_the_owner_does() {
        use RefusalCode::{NotOwner, UnknownKey};
        let fails = |codes: &[Option<RefusalCode>], owners: &[u16]| {
            let mut round = Round::new();
            round.owners = owners.iter().map(|port| at(*port)).collect();
            for (code, port) in codes.iter().zip(1..) {
                let error = code.map_or(ConnectError::Silent, refused);
                if round.record(&at(port), error) {
                    break;
                }
            }
            round.failure().is_definite
        };
        assert!(fails(&[Some(UnknownKey)], &[]));
        assert!(fails(&[Some(UnknownKey), Some(UnknownKey)], &[]));
        assert!(!fails(&[Some(UnknownKey), None], &[]), "it may be an old list");
        assert!(!fails(&[None, Some(UnknownKey)], &[]));
        assert!(!fails(&[Some(NotOwner), None], &[2]));
        assert!(fails(&[Some(NotOwner), Some(UnknownKey), None], &[2]), "the owner has said so");
        assert!(!fails(&[Some(NotOwner)], &[]));
        assert!(!fails(&[], &[]));
    }
}
