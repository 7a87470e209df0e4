//! The chains of credentials of a guest, and the answers about them.

use std::sync::Arc;

use pelago_wire::{Error, Reply};

/// The chains of a guest; none of any other client.
pub(super) struct GuestChains {
    pub(super) all: Arc<[Vec<Vec<u8>>]>,
    /// The index of the one that was presented last.
    pub(super) presented: usize,
}

impl Default for GuestChains {
    fn default() -> Self {
        Self { all: Arc::new([]), presented: 0 }
    }
}

impl GuestChains {
    pub(super) const fn new(all: Arc<[Vec<Vec<u8>>]>) -> Self {
        Self { all, presented: 0 }
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
