//! The era of a session's leases on bytes.

/// The era of a session's leases on bytes: it rises each time the session loses some. A server
/// refuses writes that were buffered in an earlier era, because other sessions may have read or
/// written those bytes since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteEra(pub u32);

impl WriteEra {
    /// The era of a session that has lost no lease.
    pub const FIRST: Self = Self(1);

    /// Returns the era that follows.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}
