//! The bytes that a session may have under way.

use pelago_wire::limits;

/// The bytes that a session may have under way, by the share that its server gives it.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowBytes {
    /// The bytes of requests under way, of their answers, and of the replay log. About half of the
    /// share, so that a repetition fits, too; four requests of the largest size with their heads.
    pub(super) under_way: usize,
    /// The bytes of the replay log.
    pub(super) replay_log: usize,
}

impl WindowBytes {
    pub(super) fn of(share: usize) -> Self {
        let share = share.max(limits::SESSION_LEAST_BYTES);
        let under_way = share / 2 + share / 16;
        Self { under_way, replay_log: limits::SESSION_KEPT_BYTES.min(under_way / 2) }
    }
}
