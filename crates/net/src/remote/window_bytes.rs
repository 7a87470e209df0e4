//! The bytes that a session may have under way.

use pelago_wire::limits;

/// Bytes of a session, by what its server lets it have under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowBytes {
    /// Those of requests under way and of their answers, and of what is kept. About half, so that a
    /// repetition fits too; four requests of the largest size with their heads.
    pub(super) under_way: usize,
    /// Those of what is kept.
    pub(super) kept: usize,
}

impl WindowBytes {
    pub(super) fn of(share: usize) -> Self {
        let share = share.max(limits::SESSION_LEAST_BYTES);
        let under_way = share / 2 + share / 16;
        Self { under_way, kept: limits::SESSION_KEPT_BYTES.min(under_way / 2) }
    }
}
