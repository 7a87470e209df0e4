//! What a client has kept back when its server begins a new epoch: it sends that at its own pace,
//! and the server lets others go on after the last answer.

/// Whether the server still has to be told of the end.
#[derive(Debug, Default)]
pub(super) struct Flush {
    /// Counts the epochs in which something was sent so: the end of one is not that of the next.
    round: u64,
    is_under_way: bool,
}

impl Flush {
    /// Begins anew. Returns the number of the round.
    pub(super) fn begin(&mut self) -> u64 {
        self.round += 1;
        self.is_under_way = true;
        self.round
    }

    /// Ends a round. Returns `false` if it was over before, or another one has begun.
    pub(super) fn end(&mut self, round: u64) -> bool {
        self.round == round && std::mem::take(&mut self.is_under_way)
    }

    pub(super) const fn is_under_way(&self) -> bool {
        self.is_under_way
    }
}
