//! The further chains of a guest: a session has the rights of all its chains.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use pelago_keynote::Principal;
use pelago_wire::{GuestRefusal, limits};

use super::chain::Chain;
use super::{Guest, Policy};

/// The chains that a guest has attached to its session, beside the one that it has presented.
#[derive(Default)]
pub(super) struct Attached {
    chains: RwLock<Vec<Arc<Chain>>>,
    /// The ids of those whose end was recorded. A leaf lock.
    lapsed: Mutex<HashSet<[u8; 32]>>,
    /// Their number, which is stored once they are there: most sessions have none.
    count: AtomicUsize,
}

impl Attached {
    /// Returns the number of chains, which only grows.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Records the end of a chain. Returns whether that is the first time.
    pub(super) fn lapses(&self, chain: &Chain) -> bool {
        self.lapsed.lock().insert(chain.id)
    }
}

impl Guest {
    /// Returns all chains, that which was presented first.
    pub(super) fn chains(&self) -> Vec<Arc<Chain>> {
        let mut chains = vec![Arc::clone(&self.chain)];
        chains.extend(self.attached.chains.read().iter().map(Arc::clone));
        chains
    }

    /// Returns whether something is so for one of its chains. It allocates nothing.
    pub(super) fn any_chain(&self, is_so: impl Fn(&Chain) -> bool) -> bool {
        let is_of_attached = || self.attached.chains.read().iter().any(|chain| is_so(chain));
        is_so(&self.chain) || self.attached.count() > 0 && is_of_attached()
    }
}

impl Policy {
    /// Adds a chain to those of a guest. The guest of a session is one person to one user: the
    /// chain must be for the same key, and lead to the same user as whom it acts.
    ///
    /// # Errors
    /// [`GuestRefusal`], with a reason only for the holder of the key that the chain is for.
    pub(crate) fn attach(&self, guest: &Guest, texts: &[Vec<u8>]) -> Result<(), GuestRefusal> {
        let because = |why: &str| GuestRefusal(why.to_owned());
        let roots = self.roots.as_ref().ok_or_else(|| because(""))?;
        let bytes: usize = texts.iter().map(Vec::len).sum();
        if bytes > limits::CHAIN_BYTES {
            return Err(because(""));
        }
        // Held until the chain is there: two at once must not exceed the limits.
        let mut attached = guest.attached.chains.write();
        let chain = Chain::read(texts, &Principal(guest.principal), roots)?;
        if let Err(refusal) = self.check(&chain, &guest.principal) {
            self.note_not_attached(guest, &chain);
            return Err(refusal);
        }
        if guest.chain.id == chain.id || attached.iter().any(|known| known.id == chain.id) {
            return Ok(());
        }
        // What has ended makes room.
        let in_force = attached.iter().filter(|known| self.is_valid(known, &guest.principal));
        let present: usize = in_force.map(|known| known.bytes()).sum();
        if attached.len() + 1 >= limits::ATTACHED_CHAINS || present + bytes > limits::ATTACHED_BYTES
        {
            return Err(because("the session has as many credentials as it can have"));
        }
        if chain.reads_address && guest.address.is_none() {
            return Err(because("the credential holds for some addresses: attach it alone"));
        }
        if chain.may_change && !guest.chain.may_change {
            // Its session would need a row.
            return Err(because("the credential grants changes: attach it first"));
        }
        let user = self.user_of(&chain, &guest.principal);
        if user.is_none() || user != self.acting_user(guest).ok() {
            return Err(because(
                "you would act as another user by this credential: attach it alone",
            ));
        }
        let chain = Arc::new(chain);
        // First: a move that takes a right by the chain away must find the guest.
        self.guests.write().attach(guest, &chain);
        attached.push(Arc::clone(&chain));
        guest.attached.count.store(attached.len(), Ordering::Release);
        drop(attached);
        self.note_attached(guest, &chain);
        Ok(())
    }

    /// Returns those chains of a guest that are in force. The first one was presented, and its
    /// session ends with it.
    pub(super) fn chains_in_force(&self, guest: &Guest) -> Vec<Arc<Chain>> {
        let mut chains = guest.chains();
        if chains.len() > 1 {
            let user = self.acting_user(guest).ok();
            chains.retain(|chain| {
                let is_valid = || {
                    let is_valid = self.is_valid(chain, &guest.principal);
                    if !is_valid {
                        self.note_lapsed(guest, chain);
                    }
                    is_valid
                };
                chain.id == guest.chain.id
                    || is_valid() && self.user_of(chain, &guest.principal) == user
            });
        }
        chains
    }
}
