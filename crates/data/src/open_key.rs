//! The key of an open in the open file table.

use pelago_wire::{Context, OpenId, SessionId};

/// The key of an open. Each session numbers its opens itself, so the key has both numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpenKey {
    /// The session that has the file open.
    pub session: SessionId,
    /// The session's number of the open.
    pub open: OpenId,
}

impl OpenKey {
    /// Returns the key of an open of the caller's session.
    #[must_use]
    pub const fn of(context: &Context, open: OpenId) -> Self {
        Self { session: context.session, open }
    }
}
