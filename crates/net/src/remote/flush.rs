//! The flush of buffered writes after the server has begun a new epoch. The client sends them at
//! its own pace, and the server lets other sessions continue after the last answer.

/// The state of the flush. The server gets one message at its end.
#[derive(Debug, Default)]
pub(super) struct Flush {
    /// The number of the round: each new epoch begins one. The end of an old round does not end the
    /// next one.
    round: u64,
    is_under_way: bool,
}

impl Flush {
    /// Begins a round. Returns its number.
    pub(super) fn begin(&mut self) -> u64 {
        self.round += 1;
        self.is_under_way = true;
        self.round
    }

    /// Ends a round. Returns `false` if it had ended before, or another one has begun.
    pub(super) fn end(&mut self, round: u64) -> bool {
        self.round == round && std::mem::take(&mut self.is_under_way)
    }

    pub(super) const fn is_under_way(&self) -> bool {
        self.is_under_way
    }
}
