//! The sessions of guests, and an index of the folders that their links name.
//!
//! A move of a directory concerns few of many guests. It looks up the directories that are above
//! one of its ends only, so that the others cost it nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pelago_wire::{InodeId, SessionId};

use super::Guest;
use super::chain::Chain;

#[cfg(test)]
mod tests;

/// The sessions of guests. What changes it takes no lock of a guest: a guest that attaches a chain
/// holds its own.
#[derive(Default)]
pub(super) struct GuestMap {
    /// `None` for a session of an earlier run whose client has not come back.
    sessions: BTreeMap<SessionId, Option<Arc<Guest>>>,
    folders: FolderIndex,
}

/// The folders that links of sessions name, and the sessions that any move may concern.
#[derive(Default)]
struct FolderIndex {
    of_folders: BTreeSet<(u64, SessionId)>,
    /// The same pairs, by which a session is forgotten.
    of_sessions: BTreeSet<(SessionId, u64)>,
    /// The sessions with a link in another form than Pelago's.
    any: BTreeSet<SessionId>,
}

impl GuestMap {
    /// Returns the guest of a session; see the field for `None` in it.
    pub(super) fn get(&self, session: &SessionId) -> Option<&Option<Arc<Guest>>> {
        self.sessions.get(session)
    }

    /// Returns the guests in the order of their sessions.
    pub(super) fn values(&self) -> impl Iterator<Item = &Option<Arc<Guest>>> {
        self.sessions.values()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Inserts a session, in place of the one with this id. The guest has attached no chain.
    pub(super) fn insert(&mut self, session: SessionId, guest: Option<Arc<Guest>>) {
        self.folders.remove(session);
        if let Some(guest) = &guest {
            self.folders.add(session, guest.chain.folders.as_deref());
        }
        self.sessions.insert(session, guest);
    }

    /// Records a chain that a guest attaches, before it has a right by it. Does nothing if the
    /// guest has ended.
    pub(super) fn attach(&mut self, guest: &Guest, chain: &Chain) {
        let session = guest.session;
        let known = self.sessions.get(&session).and_then(Option::as_deref);
        if known.is_some_and(|known| std::ptr::eq(known, guest)) {
            self.folders.add(session, chain.folders.as_deref());
        }
    }

    /// Removes a session. Returns its guest, if its client was there.
    pub(super) fn remove(&mut self, session: SessionId) -> Option<Arc<Guest>> {
        self.folders.remove(session);
        self.sessions.remove(&session).flatten()
    }

    /// Returns the sessions of guests, in their order, with a link whose folder is one of these
    /// directories, or with one in another form than Pelago's. `None` stands for all directories.
    pub(super) fn concerned(&self, dirs: Option<&[InodeId]>) -> Vec<SessionId> {
        self.folders.concerned(dirs)
    }
}

impl FolderIndex {
    /// Adds the folders of a chain to those of a session; `None` if any move may concern it.
    fn add(&mut self, session: SessionId, folders: Option<&[u64]>) {
        let Some(folders) = folders else {
            self.any.insert(session);
            return;
        };
        for folder in folders {
            self.of_folders.insert((*folder, session));
            self.of_sessions.insert((session, *folder));
        }
    }

    fn remove(&mut self, session: SessionId) {
        self.any.remove(&session);
        let first = (session, u64::MIN);
        for (_, folder) in self.of_sessions.extract_if(first..=(session, u64::MAX), |_| true) {
            self.of_folders.remove(&(folder, session));
        }
    }

    fn concerned(&self, dirs: Option<&[InodeId]>) -> Vec<SessionId> {
        let mut found = self.any.clone();
        match dirs {
            None => found.extend(self.of_sessions.iter().map(|(session, _)| *session)),
            Some(dirs) => {
                let of_dir = |dir: &InodeId| {
                    let all = (dir.raw(), SessionId(u64::MIN))..=(dir.raw(), SessionId(u64::MAX));
                    self.of_folders.range(all).map(|(_, session)| *session)
                };
                found.extend(dirs.iter().flat_map(of_dir));
            }
        }
        found.into_iter().collect()
    }
}
