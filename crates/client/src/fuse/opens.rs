//! Which files the kernel has open through this mount.
//!
//! When a mount ends, the kernel does not wait for the last files to be released: those requests
//! may be lost. What is left here then is released by us.

use std::collections::HashSet;

use parking_lot::Mutex;
use pelago_wire::OpenId;

/// The open files; the server limits how many. Its locks are leaves.
#[derive(Default)]
pub(crate) struct Opens([Mutex<HashSet<u64>>; SHARDS]);

const SHARDS: usize = 16;

impl Opens {
    pub(crate) fn add(&self, open: OpenId) {
        self.shard(open).lock().insert(open.0);
    }

    pub(crate) fn remove(&self, open: OpenId) {
        self.shard(open).lock().remove(&open.0);
    }

    /// Takes all that are left.
    pub(crate) fn take(&self) -> Vec<OpenId> {
        let left = self.0.iter().flat_map(|shard| std::mem::take(&mut *shard.lock()));
        left.map(OpenId).collect()
    }

    fn shard(&self, open: OpenId) -> &Mutex<HashSet<u64>> {
        &self.0[usize::try_from(open.0).unwrap_or(0) % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_released_is_left() {
        let opens = Opens::default();
        for id in 0..100 {
            opens.add(OpenId(id));
        }
        for id in 0..98 {
            opens.remove(OpenId(id));
        }
        let mut left = opens.take();
        left.sort();
        assert_eq!(left, [OpenId(98), OpenId(99)]);
        assert_eq!(opens.take(), []);
    }
}
