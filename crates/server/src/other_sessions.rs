//! The sessions besides that of the server's own mount, and the cache that must be told of their
//! changes.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use pelago_data::OpenKey;
use pelago_wire::id_map::KeyedMap;
use pelago_wire::{InodeId, LocalCache, SessionId, Touched};

/// The sessions besides [`SessionId::DIRECT`].
#[derive(Default)]
pub(crate) struct OtherSessions {
    cache: OnceLock<Arc<dyn LocalCache>>,
    /// The cache is called under this lock only to say whether there are sessions, which takes no
    /// other lock of this crate.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sessions: HashSet<SessionId>,
    /// The inodes that they have open for writing.
    writes: KeyedMap<OpenKey, InodeId>,
    /// Changes that were announced and are not answered; they may outlast their session.
    running: usize,
}

/// What is known of an open for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noted {
    /// It is noted now.
    New,
    /// It was noted before: it was opened again.
    Known,
    /// Nothing: its session has ended meanwhile.
    Ended,
}

impl OtherSessions {
    /// Sets the cache of the server's own mount; a second one is ignored. Returns whether this is
    /// the first.
    pub(crate) fn set_cache(&self, cache: Arc<dyn LocalCache>) -> bool {
        let state = self.state.lock();
        let is_first = self.cache.set(Arc::clone(&cache)).is_ok();
        if is_first && !state.sessions.is_empty() {
            cache.set_shared(true);
        }
        is_first
    }

    /// Returns the cache of the server's own mount.
    pub(crate) fn cache(&self) -> Option<&Arc<dyn LocalCache>> {
        self.cache.get()
    }

    /// Begins a session; one that has begun stays as it is.
    pub(crate) fn begin(&self, session: SessionId) {
        let mut state = self.state.lock();
        let was_alone = state.sessions.is_empty() && state.running == 0;
        if state.sessions.insert(session)
            && was_alone
            && let Some(cache) = self.cache.get()
        {
            cache.set_shared(true);
        }
    }

    /// Ends a session. Returns the inodes that it has open for writing: their changes end once the
    /// files are released, by [`OtherSessions::ended`].
    pub(crate) fn end(&self, session: SessionId) -> Vec<InodeId> {
        let mut state = self.state.lock();
        if !state.sessions.remove(&session) {
            return Vec::new();
        }
        // This counts as a change until all is released.
        state.running += 1;
        let written = state.writes.extract_if(|open, _| open.session == session);
        written.map(|(_, ino)| ino).collect()
    }

    /// Ends the changes of the inodes that a session had open for writing.
    pub(crate) fn ended(&self, written: &[InodeId]) {
        if let Some(cache) = self.cache.get() {
            for ino in written {
                cache.end(&[Touched::Node(*ino), Touched::Bytes(*ino)]);
            }
        }
        self.changed();
    }

    /// Counts a change that is about to be announced.
    pub(crate) fn changing(&self) {
        self.state.lock().running += 1;
    }

    /// Counts the end of a change. After the last one of the last session the cache is alone again.
    pub(crate) fn changed(&self) {
        let mut state = self.state.lock();
        assert!(state.running > 0, "each change that ends was counted when it began");
        state.running -= 1;
        if state.running == 0
            && state.sessions.is_empty()
            && let Some(cache) = self.cache.get()
        {
            cache.set_shared(false);
        }
    }

    /// Returns whether a session has begun and not ended.
    pub(crate) fn has(&self, session: SessionId) -> bool {
        self.state.lock().sessions.contains(&session)
    }

    /// Returns all sessions.
    pub(crate) fn all(&self) -> HashSet<SessionId> {
        self.state.lock().sessions.clone()
    }

    /// Notes an open for writing, whose change of the inode has begun.
    pub(crate) fn opened(&self, open: OpenKey, ino: InodeId) -> Noted {
        let mut state = self.state.lock();
        if !state.sessions.contains(&open.session) {
            return Noted::Ended;
        }
        match state.writes.insert(open, ino) {
            None => Noted::New,
            Some(_) => Noted::Known,
        }
    }

    /// Forgets an open for writing; its change ends once the file is released. Returns the inode.
    pub(crate) fn closed(&self, open: OpenKey) -> Option<InodeId> {
        self.state.lock().writes.remove(&open)
    }
}
