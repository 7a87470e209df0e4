//! Which names a directory may have, in memory: a yes may be wrong, a no never is.
//!
//! A create has to know that its name is free. The engine answers that from its own filters run by
//! run; this one answers from one place, for a directory whose names are all known. It is exact
//! over 32-bit fingerprints: a fingerprint that several names share is counted, so that names can
//! go again (`docs/decisions/0003-name-filter.md`).

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use pelago_wire::NameHash;

/// The fingerprints of all names of one directory.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    present: HashSet<u32, BuildHasherDefault<AsIs>>,
    /// Fingerprints that several names share, with the count of names behind the first.
    shared: HashMap<u32, u32, BuildHasherDefault<AsIs>>,
}

impl Filter {
    /// The filter of an empty directory.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A name with this hash came.
    pub(crate) fn insert(&mut self, hash: NameHash) {
        let print = fingerprint(hash);
        if !self.present.insert(print) {
            *self.shared.entry(print).or_insert(0) += 1;
        }
    }

    /// A name with this hash, inserted before, went.
    pub(crate) fn remove(&mut self, hash: NameHash) {
        let print = fingerprint(hash);
        match self.shared.get_mut(&print) {
            None => {
                self.present.remove(&print);
            }
            Some(1) => {
                self.shared.remove(&print);
            }
            Some(more) => *more -= 1,
        }
    }

    /// Whether a name with this hash may be there.
    #[must_use]
    pub(crate) fn may_contain(&self, hash: NameHash) -> bool {
        self.present.contains(&fingerprint(hash))
    }

    /// Bytes of memory it takes.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        // A slot and its control byte; the table doubles as it grows.
        self.present.capacity() * 5 + self.shared.capacity() * 9
    }
}

/// Fingerprints are bits of a hash already.
#[derive(Debug, Default)]
pub(crate) struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 << 8) | u64::from(*byte);
        }
    }

    fn write_u32(&mut self, print: u32) {
        // hashbrown takes its slot from the low bits and its tag from the top seven.
        self.0 = u64::from(print) | (u64::from(print) << 32);
    }
}

/// The low half of the hash: the high half is what neighbours in a partition share.
fn fingerprint(hash: NameHash) -> u32 {
    (hash.0 & u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_share_a_fingerprint_go_one_by_one() {
        let mut filter = Filter::new();
        let (one, other) = (NameHash(7), NameHash(7 | (1 << 40)));
        for hash in [one, other, one] {
            filter.insert(hash);
        }
        filter.remove(one);
        filter.remove(other);
        assert!(filter.may_contain(one));
        filter.remove(one);
        assert!(!filter.may_contain(one) && !filter.may_contain(other));
    }

    #[test]
    fn a_filter_never_denies_a_name_that_is_there() {
        let mut filter = Filter::new();
        let hashes = (0..10_000_u64).map(|n| NameHash(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        hashes.clone().for_each(|hash| filter.insert(hash));
        hashes.clone().step_by(2).for_each(|hash| filter.remove(hash));
        assert!(hashes.skip(1).step_by(2).all(|hash| filter.may_contain(hash)));
    }
}
