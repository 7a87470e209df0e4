//! The chains of credentials of a guest: one is presented in each handshake, the others are attached
//! to its session.

use std::sync::Arc;

use pelago_wire::{Error, Reply, Request};

use super::calls::{Calls, State};
use super::role::Role;

/// The chains of a guest; none of any other client.
pub(super) struct GuestChains {
    all: Arc<[Vec<Vec<u8>>]>,
    /// The index of the one that was presented last.
    presented: usize,
}

impl Default for GuestChains {
    fn default() -> Self {
        Self { all: Arc::new([]), presented: 0 }
    }
}

impl Calls {
    /// Sets the chains, before the first connection.
    pub(super) fn set_chains(&self, all: Arc<[Vec<Vec<u8>>]>) {
        self.state.lock().chains = GuestChains { all, presented: 0 };
    }

    /// Returns the index of the chain that was presented last.
    pub(super) fn presented(&self) -> usize {
        self.state.lock().chains.presented
    }

    /// Returns the chain with an index, which is presented now.
    pub(super) fn present(&self, index: usize) -> Option<Vec<Vec<u8>>> {
        let chains = &mut self.state.lock().chains;
        let chain = chains.all.get(index)?.clone();
        chains.presented = index;
        Some(chain)
    }
}

impl State {
    /// Attaches the chains that were not presented, over a new connection and before anything else.
    /// A server that has them already does nothing.
    pub(super) fn attach_chains(&mut self) {
        let all = Arc::clone(&self.chains.all);
        let presented = self.chains.presented;
        for (index, chain) in all.iter().enumerate().filter(|(index, _)| *index != presented) {
            let request = Request::Attach { chain: chain.clone() };
            if let Err(code) = self.send_own(&request, Role::Attaches(index)) {
                tracing::warn!(index, why = code.says(), "credentials cannot be attached");
            }
        }
    }
}

/// Logs that a chain was not attached: what it grants cannot be used.
pub(super) fn log_answer(index: usize, result: &Result<Reply, Error>) {
    match result {
        Ok(Reply::Bytes(why)) if !why.is_empty() => {
            let why = String::from_utf8_lossy(why);
            tracing::warn!(index, %why, "the server refuses credentials");
        }
        Err(error) => tracing::warn!(index, %error, "the server refuses credentials"),
        Ok(_) => {}
    }
}
