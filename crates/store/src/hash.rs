//! The keyed hash of names. Directories are stored, split and listed in the order of the hashes.

use std::fmt;

use pelago_wire::NameHash;
use siphasher::sip::SipHasher24;

/// Hashes names with the key of a volume.
///
/// SipHash-2-4 is a keyed pseudorandom function: a user who does not know the key cannot choose
/// names with equal hashes, not even with the hashes of other chosen names at hand. Users of a
/// mount have those: `readdir` positions are made of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NameHasher {
    key: [u64; 2],
    /// The key of the first [`TOP_BITS`] bits, if they have one of their own.
    top_key: Option<[u64; 2]>,
    mask: u64,
}

/// Bits of a hash that have a key of their own in a shared store.
pub const TOP_BITS: u32 = 16;
/// The other bits of a hash.
const REST: u64 = u64::MAX >> TOP_BITS;

/// Returns the key as SipHash takes it.
const fn halves(key: u128) -> [u64; 2] {
    [key as u64, (key >> 64) as u64]
}

impl NameHasher {
    /// Returns the hasher of a volume with this key.
    #[must_use]
    pub const fn new(key: u128) -> Self {
        Self { key: halves(key), top_key: None, mask: u64::MAX }
    }

    /// Returns the hasher of a shared store: the first [`TOP_BITS`] bits of a hash are those of the
    /// hash with `top_key`, which its machines may know, so that they find the shard of a name; the
    /// others are those of the hash with `key`, which is secret.
    #[must_use]
    pub const fn with_two_keys(key: u128, top_key: u128) -> Self {
        Self { top_key: Some(halves(top_key)), ..Self::new(key) }
    }

    /// Returns a hasher whose hashes keep only their first `bits` bits, for tests of names with
    /// equal hashes.
    #[must_use]
    pub const fn truncated(key: u128, bits: u32) -> Self {
        let mask = if bits == 0 { 0 } else { u64::MAX << (64 - bits) };
        Self { mask, ..Self::new(key) }
    }

    /// Returns the hash of a name.
    #[must_use]
    pub fn hash(&self, name: &[u8]) -> NameHash {
        let hash = |[low, high]: [u64; 2]| SipHasher24::new_with_keys(low, high).hash(name);
        let whole = match self.top_key {
            None => hash(self.key),
            Some(top_key) => hash(top_key) & !REST | hash(self.key) & REST,
        };
        NameHash(whole & self.mask)
    }
}

impl fmt::Debug for NameHasher {
    /// Hides the key, which is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameHasher").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored names are found by their hash, so it may never change. The values are those that the
    /// authors of SipHash-2-4 published, for the key 00 to 0f and the names 00, 00 01, and so on.
    #[test]
    fn the_hash_of_a_name_stays() {
        let key = u128::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        let hasher = NameHasher::new(key);
        let name: Vec<u8> = (0..15).collect();
        assert_eq!(hasher.hash(b""), NameHash(0x726f_db47_dd0e_0e31));
        assert_eq!(hasher.hash(&name[..1]), NameHash(0x74f8_39c5_93dc_67fd));
        assert_eq!(hasher.hash(&name[..8]), NameHash(0x93f5_f579_9a93_2462));
        assert_eq!(hasher.hash(&name), NameHash(0xa129_ca61_49be_45e5));
        assert_ne!(NameHasher::new(1).hash(b"a"), NameHasher::new(1 << 64).hash(b"a"));
    }

    #[test]
    fn the_first_bits_of_a_hash_have_a_key_of_their_own_in_a_shared_store() {
        let [low, high] = [NameHasher::new(1), NameHasher::new(2)];
        let both = NameHasher::with_two_keys(1, 2);
        for name in [&b"a"[..], b"", b"a longer name"] {
            let hash = both.hash(name).0;
            assert_eq!(hash >> 48, high.hash(name).0 >> 48);
            assert_eq!(hash << 16, low.hash(name).0 << 16);
        }
        assert_eq!(NameHasher::with_two_keys(1, 1).hash(b"a"), low.hash(b"a"));
    }

    #[test]
    fn a_truncated_hash_has_few_values() {
        let hashes = |bits| {
            let hasher = NameHasher::truncated(7, bits);
            let hash = |number: u32| hasher.hash(&number.to_le_bytes()).0;
            (0..1000).map(hash).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!((hashes(0), hashes(1), hashes(3)), (1, 2, 8));
        assert_eq!(NameHasher::truncated(7, 64), NameHasher::new(7));
    }
}
