//! Which of a client's bytes a server still takes.

/// Counts how often a session has lost leases on bytes: what its client has kept back under one of
/// an earlier era may have been read or written by others since, and is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteEra(pub u32);

impl WriteEra {
    /// The era of a session that has lost none.
    pub const FIRST: Self = Self(1);

    /// Returns the era that follows.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}
