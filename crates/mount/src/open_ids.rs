//! Which files the kernel has open through this mount.
//!
//! When a mount ends, the kernel does not wait for the last files to be released: those requests
//! may be lost. What is left here then is released by us.

use std::collections::HashMap;

use parking_lot::Mutex;
use pelago_wire::OpenId;

/// The open files; the server limits how many. Its locks are leaves.
#[derive(Default)]
pub(crate) struct OpenIds([Mutex<HashMap<u64, OpenPath>>; SHARDS]);

/// How the bytes of an open file come to whoever reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenPath {
    /// By requests.
    Daemon,
    /// By a descriptor that the kernel has.
    Passthrough,
}

const SHARDS: usize = 16;

impl OpenIds {
    pub(crate) fn add(&self, open: OpenId, path: OpenPath) {
        self.shard(open).lock().insert(open.0, path);
    }

    /// Takes one out; nothing where it was taken before.
    pub(crate) fn remove(&self, open: OpenId) -> Option<OpenPath> {
        self.shard(open).lock().remove(&open.0)
    }

    /// Takes all that are left.
    pub(crate) fn take(&self) -> Vec<OpenId> {
        let left = self.0.iter().flat_map(|shard| std::mem::take(&mut *shard.lock()));
        left.map(|(open, _)| OpenId(open)).collect()
    }

    fn shard(&self, open: OpenId) -> &Mutex<HashMap<u64, OpenPath>> {
        &self.0[usize::try_from(open.0).unwrap_or(0) % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_released_is_left() {
        let opens = OpenIds::default();
        for id in 0..100 {
            opens.add(OpenId(id), if id == 7 { OpenPath::Passthrough } else { OpenPath::Daemon });
        }
        for id in 0..98 {
            let path = if id == 7 { OpenPath::Passthrough } else { OpenPath::Daemon };
            assert_eq!(opens.remove(OpenId(id)), Some(path));
            assert_eq!(opens.remove(OpenId(id)), None);
        }
        let mut left = opens.take();
        left.sort();
        assert_eq!(left, [OpenId(98), OpenId(99)]);
        assert_eq!(opens.take(), []);
    }
}
