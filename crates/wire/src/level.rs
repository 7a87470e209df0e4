//! The levels at which changes are safe.

use std::fmt;

/// The level at which a change is safe when a sync of its file returns. A later level includes the
/// earlier ones.
///
/// SMFS calls the first two asynchronous and local-sync, the last two network-sync and remote-sync
/// (FAST'09, section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// It is done, and becomes safe by the next group commit. A crash may lose it.
    Async,
    /// It is on stable storage at the server.
    Local,
    /// It is also on the line to the mirror, with its repair packets.
    Network,
    /// It is on stable storage at the mirror too.
    Remote,
}

impl Level {
    /// All levels, from the weakest to the strongest.
    pub const ALL: [Self; 4] = [Self::Async, Self::Local, Self::Network, Self::Remote];

    /// Returns the name of a level, as users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Async => "async",
            Self::Local => "local",
            Self::Network => "network",
            Self::Remote => "remote",
        }
    }

    /// Returns the level of this name.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name().as_bytes() == name)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_known_by_its_name_and_by_nothing_else() {
        for level in Level::ALL {
            assert_eq!(Level::named(level.name().as_bytes()), Some(level));
        }
        for other in [&b""[..], b"Remote", b"remote\n", b"local+fec", b"remote\0"] {
            assert_eq!(Level::named(other), None);
        }
        assert!(Level::ALL.is_sorted());
    }
}
