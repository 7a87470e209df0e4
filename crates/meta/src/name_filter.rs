//! A filter of the names of a directory, in memory: "may exist" may be wrong, "does not exist"
//! never is (I-7).
//!
//! A create must know that its name is free. The engine would consult one Bloom filter for each of
//! its runs; this filter answers for the whole directory, once all its names were scanned. It is
//! exact over 32-bit fingerprints: a fingerprint that several names share is counted, so that names
//! can be removed (`docs/decisions/0003-name-filter.md`).
//!
//! The fingerprints of a large directory are in 65,536 buckets by their high halves, so that a name
//! costs little more than the two bytes of the low half, and nothing is rebuilt as it grows.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use pelago_wire::NameHash;

/// The most names of a small directory: four for each bucket of a large one.
const SMALL_NAMES: usize = 1 << 18;
/// The number of buckets: one for each high half of a fingerprint.
const BUCKETS: usize = 1 << 16;
/// The number of fingerprints by which a bucket grows.
const STEP: usize = 8;
/// Bytes of a bucket without its fingerprints: the vector, and the allocator's header.
const BUCKET_BYTES: usize = size_of::<Vec<u16>>() + 8;
/// The number of fingerprints that are compared at once.
const LANES: usize = 16;

/// The fingerprints of all names of one directory.
#[derive(Debug)]
pub struct Filter(Fingerprints);

#[derive(Debug)]
enum Fingerprints {
    /// Those of up to [`SMALL_NAMES`] names.
    Small(Small),
    /// Those of a directory that has or had more names.
    Large(Large),
}

/// The fingerprints of a small directory.
#[derive(Debug, Default)]
struct Small {
    present: HashSet<u32, BuildHasherDefault<AsIs>>,
    /// Fingerprints that several names share, with the number of names after the first.
    shared: HashMap<u32, u32, BuildHasherDefault<AsIs>>,
}

/// The fingerprints of a large directory.
#[derive(Debug)]
struct Large {
    /// Low halves by their high halves, in no order; a fingerprint that several names share is
    /// there once for each name.
    buckets: Box<[Vec<u16>]>,
    /// The number of fingerprints for which the buckets have space.
    space: usize,
}

impl Default for Filter {
    fn default() -> Self {
        Self::new()
    }
}

impl Filter {
    /// Returns the filter of an empty directory.
    #[must_use]
    pub fn new() -> Self {
        Self(Fingerprints::Small(Small::default()))
    }

    /// Adds a name with this hash.
    pub fn insert(&mut self, hash: NameHash) {
        match &mut self.0 {
            Fingerprints::Small(small) => {
                small.insert(fingerprint(hash));
                if small.present.len() > SMALL_NAMES {
                    self.0 = Fingerprints::Large(small.to_large());
                }
            }
            Fingerprints::Large(large) => large.insert(fingerprint(hash)),
        }
    }

    /// Removes a name with this hash. Returns whether there was one.
    pub(crate) fn remove(&mut self, hash: NameHash) -> bool {
        match &mut self.0 {
            Fingerprints::Small(small) => small.remove(fingerprint(hash)),
            Fingerprints::Large(large) => large.remove(fingerprint(hash)),
        }
    }

    /// Returns whether there may be a name with this hash.
    #[must_use]
    pub(crate) fn may_contain(&self, hash: NameHash) -> bool {
        match &self.0 {
            Fingerprints::Small(small) => small.present.contains(&fingerprint(hash)),
            Fingerprints::Large(large) => large.contains(fingerprint(hash)),
        }
    }

    /// Returns true if there is no name; false for a large directory that was emptied.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        matches!(&self.0, Fingerprints::Small(small) if small.present.is_empty())
    }

    /// Returns the most bytes of memory that the filter of `names` names takes.
    #[must_use]
    pub(crate) fn bytes_for(names: u64) -> u64 {
        if names <= SMALL_NAMES as u64 {
            // Just after the hash table grew.
            return names.saturating_mul(10);
        }
        (BUCKETS * (BUCKET_BYTES + 2 * STEP)) as u64 + names.saturating_mul(2)
    }

    /// Returns the bytes of memory that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.0 {
            // A slot and its control byte; the hash table doubles as it grows.
            Fingerprints::Small(small) => {
                small.present.capacity() * 5 + small.shared.capacity() * 9
            }
            Fingerprints::Large(large) => BUCKETS * BUCKET_BYTES + large.space * 2,
        }
    }
}

impl Small {
    fn insert(&mut self, print: u32) {
        if !self.present.insert(print) {
            *self.shared.entry(print).or_insert(0) += 1;
        }
    }

    fn remove(&mut self, print: u32) -> bool {
        match self.shared.get_mut(&print) {
            None => self.present.remove(&print),
            Some(1) => self.shared.remove(&print).is_some(),
            Some(more) => {
                *more -= 1;
                true
            }
        }
    }

    fn to_large(&self) -> Large {
        let mut large = Large { buckets: vec![Vec::new(); BUCKETS].into(), space: 0 };
        let again = self.shared.iter().flat_map(|(print, more)| (0..*more).map(move |_| print));
        self.present.iter().chain(again).for_each(|print| large.insert(*print));
        large
    }
}

impl Large {
    fn insert(&mut self, print: u32) {
        let (bucket, low) = split(print);
        let bucket = &mut self.buckets[bucket];
        if bucket.len() == bucket.capacity() {
            self.space -= bucket.capacity();
            bucket.reserve_exact(STEP);
            self.space += bucket.capacity();
        }
        bucket.push(low);
    }

    fn remove(&mut self, print: u32) -> bool {
        let (bucket, low) = split(print);
        let bucket = &mut self.buckets[bucket];
        let at = bucket.iter().position(|other| *other == low);
        at.map(|at| bucket.swap_remove(at)).is_some()
    }

    fn contains(&self, print: u32) -> bool {
        let (bucket, low) = split(print);
        let (lanes, rest) = self.buckets[bucket].as_chunks::<LANES>();
        // Without an exit from the inner loop the lanes are compared at once.
        let in_lanes =
            |lanes: &[u16; LANES]| lanes.iter().fold(false, |found, other| found | (*other == low));
        lanes.iter().any(in_lanes) || rest.contains(&low)
    }
}

/// Hashes fingerprints as they are: they are bits of a hash already.
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

/// Returns the low half of the hash: names of one partition may share bits of the high half.
fn fingerprint(hash: NameHash) -> u32 {
    (hash.0 & u64::from(u32::MAX)) as u32
}

/// Returns the bucket of a fingerprint, and the half that is stored there.
fn split(print: u32) -> (usize, u16) {
    ((print >> 16) as usize, (print & 0xffff) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a filter of so many names, all different from those of the tests.
    fn of(names: u32) -> Filter {
        let mut filter = Filter::new();
        (0..names).for_each(|n| filter.insert(spread_out(n | (1 << 31))));
        filter
    }

    fn spread_out(number: u32) -> NameHash {
        // Odd: no two numbers have one fingerprint.
        NameHash(u64::from(number.wrapping_mul(0x9e37_79b1)))
    }

    #[test]
    fn names_that_share_a_fingerprint_are_removed_one_by_one() {
        for names in [0, SMALL_NAMES as u32 + 1] {
            let mut filter = of(names);
            let one = spread_out(7);
            let other = NameHash(one.0 | (1 << 40));
            for hash in [one, other, one] {
                filter.insert(hash);
            }
            assert!(filter.remove(one) && filter.remove(other));
            assert!(filter.may_contain(one));
            assert!(filter.remove(one) && !filter.remove(one));
            assert!(!filter.may_contain(one) && !filter.may_contain(other));
            assert_eq!(filter.is_empty(), names == 0);
        }
    }

    /// Fingerprints that several names share keep their count.
    #[test]
    fn a_filter_answers_the_same_when_its_directory_becomes_large() {
        let mut filter = Filter::new();
        let all = SMALL_NAMES as u32 * 3;
        (0..10).for_each(|_| filter.insert(spread_out(5)));
        (0..all).for_each(|n| filter.insert(spread_out(n)));
        assert!(matches!(filter.0, Fingerprints::Large(_)));
        (0..all).step_by(2).for_each(|n| assert!(filter.remove(spread_out(n))));
        assert!((0..all).all(|n| filter.may_contain(spread_out(n)) == (n % 2 == 1)));
        (0..11).for_each(|_| assert!(filter.remove(spread_out(5))));
        assert!(!filter.may_contain(spread_out(5)));
    }

    /// So the filters of five million names fit into the memory that all filters may take.
    #[test]
    fn a_large_filter_takes_little_more_than_two_bytes_a_name() {
        let mut filter = of(1_000_000);
        assert!(filter.bytes() as u64 <= 1_000_000 * 6, "{}", filter.bytes());
        let before = filter.bytes();
        let more = 500_000_u32;
        (0..more).for_each(|n| filter.insert(spread_out(n)));
        let each = (filter.bytes() - before) as f64 / f64::from(more);
        assert!((1.9..2.2).contains(&each), "{each} bytes a name");
        for names in [1_u32, 1_000, 200_000, 300_000, 2_000_000] {
            assert!(of(names).bytes() as u64 <= Filter::bytes_for(names.into()).max(64));
        }
    }
}
