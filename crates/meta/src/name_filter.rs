//! Which names a directory may have, in memory: a yes may be wrong, a no never is.
//!
//! A create has to know that its name is free. The engine answers that from its own filters run by
//! run; this one answers from one place, for a directory whose names are all known. It is exact
//! over 32-bit fingerprints: a fingerprint that several names share is counted, so that names can
//! go again (`docs/decisions/0003-name-filter.md`).
//!
//! A large directory's fingerprints stand in 65,536 buckets by their high halves, so that a name
//! costs little more than the two bytes of the low half, and nothing is ever built again as it
//! grows.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use pelago_wire::NameHash;

/// Names from which on a directory is large: four to a bucket.
const MANY: usize = 1 << 18;
/// As many as there are high halves.
const BUCKETS: usize = 1 << 16;
/// A bucket grows by so many fingerprints.
const STEP: usize = 8;
/// Bytes of a bucket without its fingerprints: itself, and the allocator's head.
const BUCKET_BYTES: usize = size_of::<Vec<u16>>() + 8;
/// Fingerprints that are compared at once.
const LANES: usize = 16;

/// The fingerprints of all names of one directory.
#[derive(Debug)]
pub enum Filter {
    /// Up to [`MANY`] names.
    Few(Few),
    /// More; also when some have gone again.
    Many(Many),
}

/// The fingerprints of a small directory.
#[derive(Debug, Default)]
pub struct Few {
    present: HashSet<u32, BuildHasherDefault<AsIs>>,
    /// Fingerprints that several names share, with the count of names behind the first.
    shared: HashMap<u32, u32, BuildHasherDefault<AsIs>>,
}

/// The fingerprints of a large directory.
#[derive(Debug)]
pub struct Many {
    /// Low halves by their high halves, in no order; one that is shared stands there as often.
    buckets: Box<[Vec<u16>]>,
    /// Fingerprints for which the buckets have space.
    space: usize,
}

impl Default for Filter {
    fn default() -> Self {
        Self::new()
    }
}

impl Filter {
    /// The filter of an empty directory.
    #[must_use]
    pub fn new() -> Self {
        Self::Few(Few::default())
    }

    /// A name with this hash came.
    pub fn insert(&mut self, hash: NameHash) {
        match self {
            Self::Few(few) => {
                few.insert(fingerprint(hash));
                if few.present.len() > MANY {
                    *self = Self::Many(few.spread());
                }
            }
            Self::Many(many) => many.insert(fingerprint(hash)),
        }
    }

    /// A name with this hash, inserted before, went.
    pub(crate) fn remove(&mut self, hash: NameHash) {
        match self {
            Self::Few(few) => few.remove(fingerprint(hash)),
            Self::Many(many) => many.remove(fingerprint(hash)),
        }
    }

    /// Whether a name with this hash may be there.
    #[must_use]
    pub(crate) fn may_contain(&self, hash: NameHash) -> bool {
        match self {
            Self::Few(few) => few.present.contains(&fingerprint(hash)),
            Self::Many(many) => many.contains(fingerprint(hash)),
        }
    }

    /// Whether there is no name at all. A large directory that was emptied is not sure of it.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Few(few) if few.present.is_empty())
    }

    /// Bytes that the filter of so many names takes at the most.
    #[must_use]
    pub(crate) fn bytes_for(names: u64) -> u64 {
        if names <= MANY as u64 {
            // Just after the table grew.
            return names.saturating_mul(10);
        }
        (BUCKETS * (BUCKET_BYTES + 2 * STEP)) as u64 + names.saturating_mul(2)
    }

    /// Bytes of memory it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            // A slot and its control byte; the table doubles as it grows.
            Self::Few(few) => few.present.capacity() * 5 + few.shared.capacity() * 9,
            Self::Many(many) => BUCKETS * BUCKET_BYTES + many.space * 2,
        }
    }
}

impl Few {
    fn insert(&mut self, print: u32) {
        if !self.present.insert(print) {
            *self.shared.entry(print).or_insert(0) += 1;
        }
    }

    fn remove(&mut self, print: u32) {
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

    fn spread(&self) -> Many {
        let mut many = Many { buckets: vec![Vec::new(); BUCKETS].into(), space: 0 };
        let again = self.shared.iter().flat_map(|(print, more)| (0..*more).map(move |_| print));
        self.present.iter().chain(again).for_each(|print| many.insert(*print));
        many
    }
}

impl Many {
    fn insert(&mut self, print: u32) {
        let (bucket, low) = place(print);
        let bucket = &mut self.buckets[bucket];
        if bucket.len() == bucket.capacity() {
            self.space -= bucket.capacity();
            bucket.reserve_exact(STEP);
            self.space += bucket.capacity();
        }
        bucket.push(low);
    }

    fn remove(&mut self, print: u32) {
        let (bucket, low) = place(print);
        let bucket = &mut self.buckets[bucket];
        if let Some(at) = bucket.iter().position(|other| *other == low) {
            bucket.swap_remove(at);
        }
    }

    fn contains(&self, print: u32) -> bool {
        let (bucket, low) = place(print);
        let (lanes, rest) = self.buckets[bucket].as_chunks::<LANES>();
        // Without a way out of the inner loop the lanes are compared at once.
        let in_lanes =
            |lanes: &[u16; LANES]| lanes.iter().fold(false, |found, other| found | (*other == low));
        lanes.iter().any(in_lanes) || rest.contains(&low)
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

/// The bucket of a fingerprint, and what stands there of it.
fn place(print: u32) -> (usize, u16) {
    ((print >> 16) as usize, (print & 0xffff) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filter of as many names as asked for, all different from those of the tests.
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
    fn names_that_share_a_fingerprint_go_one_by_one() {
        for names in [0, MANY as u32 + 1] {
            let mut filter = of(names);
            let one = spread_out(7);
            let other = NameHash(one.0 | (1 << 40));
            for hash in [one, other, one] {
                filter.insert(hash);
            }
            filter.remove(one);
            filter.remove(other);
            assert!(filter.may_contain(one));
            filter.remove(one);
            assert!(!filter.may_contain(one) && !filter.may_contain(other));
            assert_eq!(filter.is_empty(), names == 0);
        }
    }

    /// Also fingerprints that several names share are taken along when a directory becomes large.
    #[test]
    fn a_filter_answers_the_same_when_its_directory_becomes_large() {
        let mut filter = Filter::new();
        let all = MANY as u32 * 3;
        (0..10).for_each(|_| filter.insert(spread_out(5)));
        (0..all).for_each(|n| filter.insert(spread_out(n)));
        assert!(matches!(filter, Filter::Many(_)));
        (0..all).step_by(2).for_each(|n| filter.remove(spread_out(n)));
        assert!((0..all).all(|n| filter.may_contain(spread_out(n)) == (n % 2 == 1)));
        (0..11).for_each(|_| filter.remove(spread_out(5)));
        assert!(!filter.may_contain(spread_out(5)));
    }

    /// Counted: the filters of five million names fit into the memory they all may take.
    #[test]
    fn a_large_filter_takes_little_more_than_two_bytes_a_name() {
        let mut filter = of(1_000_000);
        assert!(filter.bytes() as u64 <= 1_000_000 * 6, "{}", filter.bytes());
        let (before, more) = (filter.bytes(), 500_000_u32);
        (0..more).for_each(|n| filter.insert(spread_out(n)));
        let each = (filter.bytes() - before) as f64 / f64::from(more);
        assert!((1.9..2.2).contains(&each), "{each} bytes a name");
        for names in [1_u32, 1_000, 200_000, 300_000, 2_000_000] {
            assert!(of(names).bytes() as u64 <= Filter::bytes_for(names.into()).max(64));
        }
    }
}
