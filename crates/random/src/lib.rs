//! A small seeded random generator (xoshiro256**, seeded by splitmix64), and bytes made from a
//! seed.
//!
//! The same seed gives the same numbers on every machine and in every version, so the seed in a
//! report reproduces it.

#![forbid(unsafe_code)]

/// A seeded generator of random numbers. Not for secrets.
#[derive(Debug, Clone)]
pub struct Random([u64; 4]);

impl Random {
    /// Returns the generator of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        let (a, seed) = split_mix(seed);
        let (b, seed) = split_mix(seed);
        let (c, seed) = split_mix(seed);
        let (d, _) = split_mix(seed);
        Self([a, b, c, d])
    }

    /// Returns the next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        let state = &mut self.0;
        let result = state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        result
    }

    /// Returns a number from 0 to `bound` − 1; 0 if `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        // The bias of a 128-bit product is below 2⁻³² for every bound used here.
        ((self.bits() as u128 * bound as u128) >> 64) as u64
    }

    /// Returns an index into a collection of `length` items; 0 if it is empty.
    pub const fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// Returns `true` in `percent` of 100 cases.
    pub const fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one of `items`; `None` if there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let index = self.index(items.len());
        items.get(index)
    }

    /// Puts `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.index(last + 1);
            items.swap(last, other);
        }
    }
}

/// Returns `length` bytes that depend on `seed` only. The bytes of two seeds differ nearly
/// everywhere, and none of them is zero, so a hole is never taken for data.
#[must_use]
pub fn bytes_of(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = Vec::with_capacity(length.next_multiple_of(8));
    while bytes.len() < length {
        bytes.extend(random.bits().to_le_bytes().map(|byte| byte.max(1)));
    }
    bytes.truncate(length);
    bytes
}

const fn split_mix(seed: u64) -> (u64, u64) {
    let next = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = next;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31), next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_in_every_version() {
        let mut random = Random::new(1);
        let first: Vec<u64> = (0..3).map(|_| random.bits()).collect();
        assert_eq!(
            first,
            [12_966_619_160_104_079_557, 9_600_361_134_598_540_522, 10_590_380_919_521_690_900]
        );
    }

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut random = Random::new(7);
        for bound in 1..200 {
            assert!(random.below(bound) < bound);
        }
        assert_eq!(random.below(0), 0);
        assert_eq!(random.pick::<u8>(&[]), None);
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..1000).collect();
        Random::new(3).shuffle(&mut items);
        assert_ne!(items, (0..1000).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn bytes_depend_on_the_seed_and_are_never_zero() {
        assert_eq!(bytes_of(5, 100), bytes_of(5, 104)[..100]);
        assert_ne!(bytes_of(5, 100), bytes_of(6, 100));
        assert!(!bytes_of(9, 100_000).contains(&0));
        assert!(bytes_of(9, 0).is_empty());
    }
}
