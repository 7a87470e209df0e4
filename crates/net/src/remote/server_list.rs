//! The list of the servers of a shared store, which the client requests from the owner every now
//! and then.

use std::time::Duration;

use pelago_wire::{Error, Reply, Request, limits};

use super::calls::{State, UnderWay};
use super::role::Role;
use crate::clock::boot_time;
use crate::key::address::ServerAddress;

/// The time between two requests for the list.
const INTERVAL: Duration = Duration::from_secs(limits::SERVERS_ASKED_SECONDS);
/// The time without a byte of the owner after which the next server is tried.
const OWNER_TIMEOUT: Duration = Duration::from_secs(limits::STORE_DEAD_SECONDS);

impl State {
    /// Requests the servers of the store, if the last request is long enough ago.
    pub(super) fn request_servers(&mut self) {
        let now = boot_time();
        let is_due = self.servers.requested.is_none_or(|at| now.saturating_sub(at) >= INTERVAL);
        if self.link.is_none() || !self.is_on_store() || self.reclaiming || !is_due {
            return;
        }
        let is_list = |call: &UnderWay| matches!(call.opens.role, Role::ListsServers);
        if self.under_way.values().any(is_list) {
            return;
        }
        self.servers.requested = Some(now);
        if let Err(code) = self.send_own(&Request::Servers, Role::ListsServers) {
            tracing::error!(error = code.says(), "the servers of the store cannot be asked for");
        }
    }

    /// Records the servers of the store.
    pub(super) fn record_servers(&mut self, result: &Result<Reply, Error>) {
        let servers = match result {
            Ok(Reply::Servers(servers)) => servers,
            Ok(_) => return,
            // The server may not know them, or be about to stop.
            Err(Error { code }) => {
                let why = code.says();
                return tracing::debug!(why, "the servers of the store are not known");
            }
        };
        let parsed = servers.iter().filter_map(|text| match text.parse::<ServerAddress>() {
            Ok(address) => Some(address),
            Err(error) => {
                tracing::warn!(text, %error, "a server of the store has no address");
                None
            }
        });
        let listed: Vec<ServerAddress> = parsed.take(limits::STORE_SERVERS).collect();
        if !listed.is_empty() {
            self.servers.listed = listed;
        }
    }

    /// Returns the time for which the server may be silent. With several servers in the store it is
    /// shorter: another one may own the volume by then. If the server was only slow, the session is
    /// resumed there.
    pub(super) fn patience(&self) -> Duration {
        match self.is_on_store() && self.servers.listed.len() > 1 {
            true => self.term().min(OWNER_TIMEOUT),
            false => self.term(),
        }
    }
}
