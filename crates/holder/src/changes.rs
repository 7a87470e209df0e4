//! Changes under way, and the moments at which changes have ended: the fact of a reply may be
//! cached only if it has not changed since the request was sent.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use pelago_wire::{InodeId, Name, Touched};

/// Slots for the moments at which changes have ended. Nodes or names that share a slot seem to
/// change together: then less is cached, and nothing that is old.
const SLOTS: usize = 4096;

/// A moment, as a count of the changes that have ended by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

/// The time between two losses of all leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseEra(u64);

impl LeaseEra {
    /// The era of what was opened without a lease.
    pub(crate) const NONE: Self = Self(u64::MAX);
}

/// Changes of nodes and names: those under way, and when the last one of each has ended.
#[derive(Debug)]
pub(crate) struct Changes {
    /// The number of changes of each key.
    under_way: HashMap<u64, u32>,
    /// For each slot the moment at which a change has ended last.
    ended: Box<[u64]>,
    /// The moment at which all leases have ended last.
    lost: u64,
    now: u64,
    hasher: RandomState,
}

impl Default for Changes {
    fn default() -> Self {
        let under_way = HashMap::new();
        let ended = vec![0; SLOTS].into();
        Self { under_way, ended, lost: 0, now: 0, hasher: RandomState::new() }
    }
}

impl Changes {
    /// Returns the present moment, before a request is sent.
    pub(crate) const fn now(&self) -> Moment {
        Moment(self.now)
    }

    /// Records that a change begins: a recall, or a request of this client.
    pub(crate) fn begin(&mut self, touched: &[Touched]) {
        for key in self.keys(touched) {
            *self.under_way.entry(key).or_default() += 1;
        }
    }

    /// Records that a change has ended.
    pub(crate) fn end(&mut self, touched: &[Touched]) {
        for key in self.keys(touched) {
            self.now += 1;
            self.ended[slot(key)] = self.now;
            if let Some(count) = self.under_way.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    self.under_way.remove(&key);
                }
            }
        }
    }

    /// Records that all leases have ended: no reply to an earlier request may be cached.
    pub(crate) fn lose(&mut self) {
        self.now += 1;
        self.lost = self.now;
    }

    /// Returns the present era of leases.
    pub(crate) const fn era(&self) -> LeaseEra {
        LeaseEra(self.lost)
    }

    /// Returns whether the attributes of a node may be cached that a reply reports. `since` is the
    /// moment before its request was sent, `own` the number of the request's own changes of the
    /// node, which are still under way.
    pub(crate) fn node_holds(&self, ino: InodeId, since: Moment, own: u32) -> bool {
        self.holds(self.node(ino), since, own)
    }

    /// Returns whether the target of a name may be cached; as [`Changes::node_holds`].
    pub(crate) fn name_holds(&self, dir: InodeId, name: &Name, since: Moment, own: u32) -> bool {
        self.holds(self.name(dir, name), since, own)
    }

    /// Returns whether a listing of a directory may be cached: no name in it is being changed, or
    /// has changed since the request was sent.
    pub(crate) fn names_hold(&self, dir: InodeId, since: Moment) -> bool {
        self.holds(self.names(dir), since, 0)
    }

    /// Returns whether a change of a node is under way.
    pub(crate) fn is_node_changing(&self, ino: InodeId) -> bool {
        !self.under_way.is_empty() && self.under_way.contains_key(&self.node(ino))
    }

    /// Returns whether a change of a name is under way.
    pub(crate) fn is_name_changing(&self, dir: InodeId, name: &Name) -> bool {
        !self.under_way.is_empty() && self.under_way.contains_key(&self.name(dir, name))
    }

    fn holds(&self, key: u64, since: Moment, own: u32) -> bool {
        self.under_way.get(&key).copied().unwrap_or(0) == own
            && self.ended[slot(key)] <= since.0
            && self.lost <= since.0
    }

    fn keys(&self, touched: &[Touched]) -> Vec<u64> {
        let keys = |touched: &Touched| match touched {
            Touched::Node(ino) => [Some(self.node(*ino)), None],
            Touched::Name { dir, name } => [Some(self.name(*dir, name)), Some(self.names(*dir))],
            Touched::Bytes(_) => [None, None],
        };
        touched.iter().flat_map(keys).flatten().collect()
    }

    fn node(&self, ino: InodeId) -> u64 {
        self.hasher.hash_one(ino)
    }

    fn name(&self, dir: InodeId, name: &Name) -> u64 {
        self.hasher.hash_one((dir, name.as_bytes()))
    }

    /// Returns the key of all names in a directory.
    fn names(&self, dir: InodeId) -> u64 {
        self.hasher.hash_one((dir, "names"))
    }
}

const fn slot(key: u64) -> usize {
    // The remainder is below SLOTS.
    (key % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: InodeId = InodeId::from_raw(1);

    fn node() -> [Touched; 1] {
        [Touched::Node(ONE)]
    }

    #[test]
    fn a_reply_that_crosses_a_change_is_not_cached() {
        let mut changes = Changes::default();
        let before = changes.now();
        assert!(changes.node_holds(ONE, before, 0));
        changes.begin(&node());
        let during = changes.now();
        assert!(!changes.node_holds(ONE, before, 0) && changes.is_node_changing(ONE));
        changes.end(&node());
        assert!(!changes.node_holds(ONE, before, 0) && !changes.node_holds(ONE, during, 0));
        assert!(changes.node_holds(ONE, changes.now(), 0) && !changes.is_node_changing(ONE));
    }

    #[test]
    fn the_reply_to_a_change_is_cached_if_no_other_change_was_under_way() {
        let mut changes = Changes::default();
        let first = changes.now();
        changes.begin(&node());
        assert!(changes.node_holds(ONE, first, 1));
        let second = changes.now();
        changes.begin(&node());
        assert!(!changes.node_holds(ONE, first, 1), "another one is under way");
        changes.end(&node());
        assert!(!changes.node_holds(ONE, second, 1), "another one was under way");
    }

    #[test]
    fn a_listing_that_crosses_the_change_of_a_name_is_not_cached() {
        let mut changes = Changes::default();
        let name = [Touched::Name { dir: ONE, name: Name::new(b"a").unwrap() }];
        let before = changes.now();
        changes.begin(&node());
        changes.end(&node());
        assert!(changes.names_hold(ONE, before), "only its attributes change");
        changes.begin(&name);
        assert!(!changes.names_hold(ONE, before) && !changes.names_hold(ONE, changes.now()));
        changes.end(&name);
        assert!(!changes.names_hold(ONE, before) && changes.names_hold(ONE, changes.now()));
    }

    #[test]
    fn nothing_is_cached_that_was_requested_before_the_leases_ended() {
        let mut changes = Changes::default();
        let before = changes.now();
        changes.lose();
        let name = Name::new(b"a").unwrap();
        assert!(!changes.node_holds(ONE, before, 0));
        assert!(!changes.name_holds(ONE, &name, before, 0));
        assert!(changes.name_holds(ONE, &name, changes.now(), 0));
    }
}
