//! The extents in memory, and those that are being read.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{ClientId, VersionId};

/// An extent in memory or on its way there.
#[derive(Debug)]
pub(super) struct Cached {
    pub(super) state: Load,
    /// When it was used last, as a number of [`Cache`].
    pub(super) used: u64,
    /// The client for which it was read, until that has taken a block of it; `None` for a client
    /// that takes blocks in order.
    pub(super) reader: Option<ClientId>,
}

/// The state of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    Reading { since: Duration },
    Resident { number: u64 },
}

/// The extents in memory, and those that are being read.
#[derive(Debug, Default)]
pub(super) struct Cache {
    extents: BTreeMap<(VersionId, u32), Cached>,
    counter: u64,
}

impl Cache {
    /// Returns the number of extents, with those that are being read.
    pub(super) fn len(&self) -> usize {
        self.extents.len()
    }

    /// Returns whether an extent can be sent.
    pub(super) fn is_resident(&self, file: VersionId, extent: u32) -> bool {
        let state = self.extents.get(&(file, extent)).map(|it| it.state);
        matches!(state, Some(Load::Resident { .. }))
    }

    /// Begins a read.
    pub(super) fn begin(
        &mut self,
        file: VersionId,
        extent: u32,
        reader: Option<ClientId>,
        now: Duration,
    ) {
        let state = Load::Reading { since: now };
        let used = self.count();
        self.extents.insert((file, extent), Cached { state, used, reader });
    }

    /// Ends a read. Returns when it began, and the number of the extent; `None` if the extent is
    /// not being read.
    pub(super) fn end(&mut self, file: VersionId, extent: u32) -> Option<(Duration, u64)> {
        let number = self.count();
        let cached = self.extents.get_mut(&(file, extent))?;
        let Load::Reading { since } = cached.state else { return None };
        cached.state = Load::Resident { number };
        cached.used = number;
        Some((since, number))
    }

    /// Records that a client has taken a block of an extent.
    pub(super) fn touch(&mut self, file: VersionId, extent: u32, by: ClientId) {
        let used = self.count();
        if let Some(cached) = self.extents.get_mut(&(file, extent)) {
            cached.used = used;
            if cached.reader == Some(by) {
                cached.reader = None;
            }
        }
    }

    /// Forgets an extent.
    pub(super) fn remove(&mut self, file: VersionId, extent: u32) -> Option<Cached> {
        self.extents.remove(&(file, extent))
    }

    /// Returns the extents that can be sent.
    pub(super) fn resident(&self) -> impl Iterator<Item = (VersionId, u32, &Cached)> {
        let is_resident = |it: &Cached| matches!(it.state, Load::Resident { .. });
        let all = self.extents.iter().filter(move |(_, cached)| is_resident(cached));
        all.map(|((file, extent), cached)| (*file, *extent, cached))
    }

    const fn count(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }
}
