//! Questions to the owner of a shared store for its servers, on behalf of no program.

use std::time::Duration;

use pelago_wire::{Error, Reply, Request, limits};

use super::calls::{State, UnderWay};
use super::role::Role;
use crate::clock::boot_time;
use crate::key::address::ServerAddress;

/// The time between two questions for the servers.
const ASKED: Duration = Duration::from_secs(limits::SERVERS_ASKED_SECONDS);
/// After so long without a byte of the owner the next server is tried.
const DEAD: Duration = Duration::from_secs(limits::STORE_DEAD_SECONDS);

impl State {
    /// Asks for the servers of the store, if it is time.
    pub(super) fn ask_servers(&mut self) {
        let now = boot_time();
        let is_time = self.servers.asked.is_none_or(|asked| now.saturating_sub(asked) >= ASKED);
        if self.link.is_none() || !self.is_on_store() || self.reclaiming || !is_time {
            return;
        }
        let is_asked = |call: &UnderWay| matches!(call.opens.role, Role::AsksServers);
        if self.under_way.values().any(is_asked) {
            return;
        }
        self.servers.asked = Some(now);
        if let Err(code) = self.send_own(&Request::Servers, Role::AsksServers) {
            tracing::error!(error = code.says(), "the servers of the store cannot be asked for");
        }
    }

    /// Notes the servers of the store.
    pub(super) fn note_servers(&mut self, result: &Result<Reply, Error>) {
        let servers = match result {
            Ok(Reply::Servers(servers)) => servers,
            Ok(_) => return,
            // A server may have none to tell, or be about to stop.
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

    /// Returns how long the server may be silent. One of a store is given up earlier if another one
    /// may own the volume by then; a server that was only slow resumes the session.
    pub(super) fn patience(&self) -> Duration {
        match self.is_on_store() && self.servers.listed.len() > 1 {
            true => self.term().min(DEAD),
            false => self.term(),
        }
    }
}
