//! The use of a guest's chains over each connection: one is presented in the handshake, the others
//! are attached to the session.

use std::sync::Arc;

use pelago_wire::Request;

use super::calls::{Calls, State};
use super::guest_chains::GuestChains;
use super::role::Role;

impl Calls {
    /// Sets the chains, before the first connection.
    pub(super) fn set_chains(&self, all: Arc<[Vec<Vec<u8>>]>) {
        self.state.lock().chains = GuestChains::new(all);
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
