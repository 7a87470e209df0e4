//! Versions of the wire, newest first. A version changes whenever bytes between client and server
//! mean something else; it is neither the version of the disk nor that of the product.

/// A version, and the changes that it brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireVersion {
    /// The number; numbers rise by one.
    pub number: u16,
    /// The changes, for people.
    pub changed: &'static str,
}

/// The versions that this program speaks, newest first: at most the current one and the one before.
pub const VERSIONS: &[WireVersion] = &[WireVersion {
    number: 2,
    changed: "a Welcome has the time of leases, and a Hello names volume, shard and site",
}];

/// The newest version.
pub const NEWEST: u16 = VERSIONS[0].number;
/// The oldest version.
pub const OLDEST: u16 = VERSIONS[VERSIONS.len() - 1].number;

/// The bit of the feature *shards*: the volume lies on a store that several servers share, and the
/// server answers [`crate::Request::Servers`]. A client with it follows the owner of the volume.
pub const SHARDS: u64 = 1 << 2;

/// The features that this program has, one bit each. A connection has those of both ends.
pub const FEATURES: u64 = SHARDS;

/// Returns the newest version that this program and a peer with the range `min` to `max` speak.
#[must_use]
pub const fn negotiate(min: u16, max: u16) -> Option<u16> {
    let version = if max < NEWEST { max } else { NEWEST };
    if min <= version && OLDEST <= version { Some(version) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_newest_first_without_gaps() {
        assert!(VERSIONS.windows(2).all(|pair| pair[0].number == pair[1].number + 1));
        assert!(VERSIONS.len() <= 2 && OLDEST >= 1);
    }

    #[test]
    fn the_newest_common_version_is_chosen() {
        assert_eq!(negotiate(OLDEST, NEWEST), Some(NEWEST));
        assert_eq!(negotiate(1, u16::MAX), Some(NEWEST));
        assert_eq!(negotiate(NEWEST + 1, u16::MAX), None);
        assert_eq!(negotiate(0, OLDEST - 1), None);
        // A range that ends before it begins has no version.
        assert_eq!(negotiate(u16::MAX, NEWEST), None);
    }
}
