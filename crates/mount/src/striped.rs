//! A map whose entries are spread over several locks.
//!
//! Event loops work on different files most of the time. With one lock for each stripe of ids they
//! rarely wait for each other.

use std::array;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use parking_lot::{Mutex, MutexGuard};

/// A map from ids to values in `STRIPES` parts, each with a lock of its own. The locks are leaves:
/// their holders take no other lock of this process.
pub(crate) struct StripedMap<V, const STRIPES: usize = 16>([Mutex<Stripe<V>>; STRIPES]);

/// The entries of one stripe by id.
pub(crate) type Stripe<V> = HashMap<u64, V, BuildHasherDefault<IdHasher>>;

impl<V, const STRIPES: usize> StripedMap<V, STRIPES> {
    /// Locks the stripe that has the entry of `id`, if there is one.
    pub(crate) fn lock(&self, id: u64) -> MutexGuard<'_, Stripe<V>> {
        let stripes = STRIPES as u64;
        self.stripe(usize::try_from(id % stripes).expect("a remainder below the count of stripes"))
    }

    /// Locks a stripe by its index, which is below `STRIPES`.
    pub(crate) fn stripe(&self, index: usize) -> MutexGuard<'_, Stripe<V>> {
        self.0[index].lock()
    }

    /// Locks one stripe after the other.
    pub(crate) fn stripes(&self) -> impl Iterator<Item = MutexGuard<'_, Stripe<V>>> {
        self.0.iter().map(Mutex::lock)
    }

    /// Sets the value of `id` and returns the one before.
    pub(crate) fn insert(&self, id: u64, value: V) -> Option<V> {
        self.lock(id).insert(id, value)
    }

    /// Removes `id` and returns its value.
    pub(crate) fn remove(&self, id: u64) -> Option<V> {
        self.lock(id).remove(&id)
    }

    /// Returns whether `id` has a value.
    pub(crate) fn contains(&self, id: u64) -> bool {
        self.lock(id).contains_key(&id)
    }

    /// Removes all entries.
    pub(crate) fn drain(&self) -> impl Iterator<Item = (u64, V)> {
        self.stripes().flat_map(|mut stripe| std::mem::take(&mut *stripe))
    }
}

impl<V, const STRIPES: usize> Default for StripedMap<V, STRIPES> {
    fn default() -> Self {
        Self(array::from_fn(|_| Mutex::default()))
    }
}

/// Spreads ids over a map. They are the server's own numbers, so no user can choose colliding ones.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        let product = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_found_in_its_stripe_until_it_is_removed() {
        let map = StripedMap::<u64>::default();
        for id in 0..100 {
            assert_eq!(map.insert(id, 2 * id), None);
        }
        assert_eq!(map.insert(7, 1), Some(14));
        assert_eq!(map.lock(8).get(&8), Some(&16));
        assert_eq!(map.remove(7), Some(1));
        assert_eq!(map.remove(7), None);
        assert!(map.contains(6) && !map.contains(7));
    }

    #[test]
    fn stripes_share_the_entries_evenly() {
        let map = StripedMap::<(), 4>::default();
        for id in 0..100 {
            map.insert(id, ());
        }
        let counts: Vec<_> = map.stripes().map(|stripe| stripe.len()).collect();
        assert_eq!(counts, [25; 4]);
    }

    #[test]
    fn draining_leaves_an_empty_map() {
        let map = StripedMap::<u64>::default();
        for id in 0..100 {
            map.insert(id, id);
        }
        assert_eq!(map.drain().count(), 100);
        assert_eq!(map.drain().count(), 0);
    }
}
