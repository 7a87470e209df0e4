//! The terms of the session's last welcome: its epoch, its times and its features.

use std::time::Duration;

use pelago_wire::{SessionId, limits, version};

use super::calls::State;

impl State {
    /// Returns whether the volume lies on a store with several servers.
    pub(super) fn is_on_store(&self) -> bool {
        self.welcome.as_ref().is_some_and(|welcome| welcome.features & version::SHARDS != 0)
    }

    /// Returns the epoch of the server.
    pub(super) fn epoch(&self) -> Option<u32> {
        self.welcome.as_ref().map(|welcome| welcome.epoch)
    }

    /// Returns the id of the session.
    pub(super) fn session(&self) -> Option<SessionId> {
        self.welcome.as_ref().map(|welcome| welcome.session)
    }

    /// Returns the time that the session lives without a frame of the client.
    pub(super) fn term(&self) -> Duration {
        let millis = self.welcome.as_ref().map_or(0, |welcome| welcome.term_ms);
        Duration::from_millis(if millis == 0 { limits::TERM_SECONDS * 1000 } else { millis.into() })
    }

    /// Returns the time that leases last; zero if the server grants none.
    pub(super) fn lease(&self) -> Duration {
        let millis = self.welcome.as_ref().map_or(0, |welcome| welcome.lease_ms);
        Duration::from_millis(millis.into())
    }

    /// Returns the time after which a ping is sent if nothing else was: a third of the time of the
    /// leases, or of the term if there are none.
    pub(super) fn heartbeat(&self) -> Duration {
        let lease = self.lease();
        if lease.is_zero() { self.term() / 3 } else { lease / 3 }
    }
}
