//! The leases of one session, in the order in which they were granted.

use std::collections::{HashMap, VecDeque};

use pelago_wire::InodeId;

use super::Leased;

/// Entries of leases that have ended which stay in the order, beside as many as there are leases.
const STALE_ENTRIES: usize = 64;

/// The leases of a session.
#[derive(Debug, Default)]
pub(super) struct GrantedLeases {
    /// The number of each grant.
    all: HashMap<Leased, u64>,
    /// The grants on nodes in the order of their numbers, with some that have ended.
    order: VecDeque<(InodeId, u64)>,
    last: u64,
}

impl GrantedLeases {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn contains(&self, on: Leased) -> bool {
        self.all.contains_key(&on)
    }

    /// Adds a lease that the session does not have.
    pub(super) fn add(&mut self, on: Leased) {
        self.last += 1;
        self.all.insert(on, self.last);
        if let Leased::Node(ino) = on {
            self.order.push_back((ino, self.last));
        }
    }

    /// Removes a lease. Returns whether the session had it.
    pub(super) fn remove(&mut self, on: Leased) -> bool {
        let is_removed = self.all.remove(&on).is_some();
        if self.order.len() > 2 * self.all.len() + STALE_ENTRIES {
            let Self { all, order, .. } = self;
            order.retain(|(ino, number)| all.get(&Leased::Node(*ino)) == Some(number));
        }
        is_removed
    }

    /// Returns all leases, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Leased> {
        self.all.keys().copied()
    }

    /// Removes the leases on nodes that were granted first, at most `most`, and returns the nodes.
    /// Those that must stay count as granted now.
    pub(super) fn take_oldest_nodes(
        &mut self,
        most: usize,
        must_stay: impl Fn(InodeId) -> bool,
    ) -> Vec<InodeId> {
        let mut taken = Vec::new();
        for _ in 0..self.order.len() {
            let Some((ino, number)) = self.order.front().copied().filter(|_| taken.len() < most)
            else {
                break;
            };
            self.order.pop_front();
            if self.all.get(&Leased::Node(ino)) != Some(&number) {
                // It has ended.
                continue;
            }
            match must_stay(ino) {
                true => self.order.push_back((ino, number)),
                false => {
                    self.all.remove(&Leased::Node(ino));
                    taken.push(ino);
                }
            }
        }
        taken
    }
}
