//! The terms of the session's last welcome.

use std::sync::Arc;
use std::time::Duration;

use pelago_wire::{SessionId, limits, version};

use super::calls::State;
use crate::link::Link;

impl State {
    /// Returns whether this is the connection of the session: what still comes over another one is
    /// of no server that it relies on.
    pub(super) fn is_present(&self, link: &Arc<Link>) -> bool {
        self.link.as_ref().is_some_and(|present| Arc::ptr_eq(present, link))
    }

    /// Returns whether the volume lies on a store with several servers.
    pub(super) fn is_on_store(&self) -> bool {
        self.welcome.as_ref().is_some_and(|welcome| welcome.features & version::SHARDS != 0)
    }

    /// Returns the epoch of the server.
    pub(super) fn epoch(&self) -> Option<u32> {
        self.welcome.as_ref().map(|welcome| welcome.epoch)
    }

    /// Returns the session.
    pub(super) fn session(&self) -> Option<SessionId> {
        self.welcome.as_ref().map(|welcome| welcome.session)
    }

    pub(super) fn term(&self) -> Duration {
        let millis = self.welcome.as_ref().map_or(0, |welcome| welcome.term_ms);
        Duration::from_millis(if millis == 0 { limits::TERM_SECONDS * 1000 } else { millis.into() })
    }

    /// Returns how long leases last; zero if the server grants none.
    pub(super) fn lease(&self) -> Duration {
        let millis = self.welcome.as_ref().map_or(0, |welcome| welcome.lease_ms);
        Duration::from_millis(millis.into())
    }

    /// Returns how long nothing is sent at most: a third of the time of the leases, or of the
    /// session if there are none.
    pub(super) fn heartbeat(&self) -> Duration {
        let lease = self.lease();
        if lease.is_zero() { self.term() / 3 } else { lease / 3 }
    }
}
