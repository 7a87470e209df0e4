//! The keyed hash of names: directories are kept, split and listed in its order.

use std::fmt;

use pelago_wire::NameHash;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Hashes names with a volume's seed, so that nobody outside can choose names that fall together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NameHasher {
    seed: u64,
}

impl NameHasher {
    /// The hasher of a volume with this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The hash of a name: XXH3, 64 bits, with the seed.
    #[must_use]
    pub fn hash(&self, name: &[u8]) -> NameHash {
        NameHash(xxh3_64_with_seed(name, self.seed))
    }
}

impl fmt::Debug for NameHasher {
    /// Without the seed, which is the volume's secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameHasher").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored names are found by their hash: it may never change.
    #[test]
    fn the_hash_of_a_name_stays() {
        assert_eq!(NameHasher::new(0).hash(b""), NameHash(0x2d06_8005_38d3_94c2));
        assert_eq!(NameHasher::new(0).hash(b"a"), NameHash(0xe6c6_32b6_1e96_4e1f));
        assert_ne!(NameHasher::new(1).hash(b"a"), NameHasher::new(2).hash(b"a"));
    }
}
