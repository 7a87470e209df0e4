//! Maps by ids: cheap ones for ids that the server chose, which no user can make collide, and one
//! with a secret for numbers that a client chose.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

/// A map by ids that the server chose.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;
/// A set of ids that the server chose.
pub type IdSet<K> = HashSet<K, BuildHasherDefault<IdHasher>>;

/// Hashes one 64-bit id: spreads it over all bits.
#[derive(Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The golden ratio: neighbours land far apart.
        let spread = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ (spread >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A map by numbers that a client chose.
pub type KeyedMap<K, V> = HashMap<K, V, KeyedState>;

/// The secret of a [`KeyedMap`], so that no client can choose numbers that collide.
#[derive(Debug, Clone, Copy)]
pub struct KeyedState {
    start: u64,
    factor: u64,
}

impl Default for KeyedState {
    /// Returns a random secret.
    fn default() -> Self {
        let random = RandomState::new();
        Self { start: random.hash_one(0), factor: random.hash_one(1) | 1 }
    }
}

impl BuildHasher for KeyedState {
    type Hasher = KeyedHasher;

    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher { state: self.start, factor: self.factor }
    }
}

/// Hashes 64-bit numbers with a secret: each costs one multiplication, and the end another one.
#[derive(Debug)]
pub struct KeyedHasher {
    state: u64,
    factor: u64,
}

impl Hasher for KeyedHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.state = fold(self.state ^ number, self.factor);
    }

    fn finish(&self) -> u64 {
        // Numbers that differ in their high bits only differ in few bits of the state.
        fold(self.state, self.factor.rotate_left(32) | 1)
    }
}

/// Multiplies, and returns both halves of the product together: each bit depends on secret bits.
fn fold(number: u64, factor: u64) -> u64 {
    let product = u128::from(number) * u128::from(factor);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers share their low 24 bits, which is what the cheap hasher cannot tell apart.
    #[test]
    fn chosen_numbers_share_few_buckets_of_a_map_with_a_secret() {
        let state = KeyedState::default();
        let hash = |number: u64| state.hash_one((7_u64, number << 48));
        let buckets: HashSet<u64> = (0..4096).map(|number| hash(number) % 4096).collect();
        assert!(buckets.len() > 1024, "{}", buckets.len());
        assert_eq!(hash(1), hash(1));
    }
}
