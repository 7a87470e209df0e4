//! The lease on the bytes of a file, and the writes under it that run.

use pelago_wire::SessionId;

use super::ChangeId;

/// The lease on the bytes of a file.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) session: SessionId,
    /// A recall of the file is not answered.
    pub(super) is_recalled: bool,
    /// The lease has ended, and requests under it run.
    pub(super) is_over: bool,
    /// The number of requests under it that run.
    pub(super) running: u32,
    /// The changes that wait for these requests.
    pub(super) waiting: Vec<ChangeId>,
}

impl Writer {
    pub(super) const fn new(session: SessionId) -> Self {
        Self { session, is_recalled: false, is_over: false, running: 0, waiting: Vec::new() }
    }

    /// Records the announcement of a change of the file. Returns the session if the lease is to be
    /// recalled, and whether the change waits for requests that run.
    pub(super) fn announce(&mut self, change: ChangeId) -> (Option<SessionId>, bool) {
        if self.is_over {
            self.waiting.push(change);
            return (None, true);
        }
        let is_new = !std::mem::replace(&mut self.is_recalled, true);
        (is_new.then_some(self.session), false)
    }
}
