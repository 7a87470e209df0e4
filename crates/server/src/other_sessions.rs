//! The sessions besides that of the server's own mount, their opens for writing and write eras, and
//! the cache of that mount, which must be notified of their changes.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use pelago_data::OpenKey;
use pelago_wire::id_map::{IdSet, KeyedMap};
use pelago_wire::{InodeId, LocalCache, SessionId, Touched, WriteEra};

/// The sessions besides [`SessionId::DIRECT`].
#[derive(Default)]
pub(crate) struct OtherSessions {
    cache: OnceLock<Arc<dyn LocalCache>>,
    /// Under this lock the cache is called only by `set_shared`, which takes no other lock of this
    /// crate.
    state: Mutex<State>,
    /// True if there is another session, or a change of one is not answered yet.
    any: AtomicBool,
    /// Number of changes of the server's own mount that began while there was no other session, and
    /// so are not announced.
    unannounced: Arc<AtomicUsize>,
}

/// A running change of the server's own mount that is not announced.
pub(crate) struct Unannounced(Arc<AtomicUsize>);

impl Drop for Unannounced {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[derive(Default)]
struct State {
    sessions: IdSet<SessionId>,
    /// The inodes that these sessions have open for writing.
    writes: KeyedMap<OpenKey, InodeId>,
    /// Number of changes that were announced and are not answered; they may outlast their session.
    running: usize,
    /// True if every change that runs was announced, so that leases can be granted.
    grants: bool,
    /// The write eras of sessions that have lost leases on bytes; all others are in the first era.
    eras: HashMap<SessionId, WriteEra>,
}

/// The state in which [`OtherSessions::opened`] finds an open for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriterState {
    /// It was not recorded before.
    New,
    /// It was recorded before: its file was opened again under the same number.
    OpenedAgain,
    /// It is not recorded, because its session has ended meanwhile.
    SessionEnded,
}

impl State {
    fn era(&self, session: SessionId) -> WriteEra {
        self.eras.get(&session).copied().unwrap_or(WriteEra::FIRST)
    }
}

impl OtherSessions {
    /// Sets the cache of the server's own mount; a second one is ignored. Returns whether this was
    /// the first call.
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
        if state.sessions.insert(session) && was_alone {
            state.grants = false;
            self.any.store(true, Ordering::SeqCst);
            if let Some(cache) = self.cache.get() {
                cache.set_shared(true);
            }
        }
    }

    /// Ends a session. Returns the inodes that it has open for writing: the caller releases the
    /// files, and then ends their changes by [`OtherSessions::ended`].
    pub(crate) fn end(&self, session: SessionId) -> Vec<InodeId> {
        let mut state = self.state.lock();
        if !state.sessions.remove(&session) {
            return Vec::new();
        }
        // The end counts as a change until all files are released.
        state.running += 1;
        state.eras.remove(&session);
        let written = state.writes.extract_if(|open, _| open.session == session);
        written.map(|(_, ino)| ino).collect()
    }

    /// Ends the changes of the inodes that an ended session had open for writing.
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

    /// Counts the end of a change. After the last change of the last session the cache is not
    /// shared any more.
    pub(crate) fn changed(&self) {
        let mut state = self.state.lock();
        assert!(state.running > 0, "each change that ends was counted when it began");
        state.running -= 1;
        if state.running == 0 && state.sessions.is_empty() {
            state.grants = false;
            self.any.store(false, Ordering::SeqCst);
            if let Some(cache) = self.cache.get() {
                cache.set_shared(false);
            }
        }
    }

    /// Returns whether there are other sessions, so that each change is announced.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::SeqCst)
    }

    /// Counts a change that is not announced.
    pub(crate) fn unannounced(&self) -> Unannounced {
        self.unannounced.fetch_add(1, Ordering::AcqRel);
        Unannounced(Arc::clone(&self.unannounced))
    }

    /// Returns whether a session can be granted leases: it has not ended, and every change that
    /// runs was announced. `is_quiet` returns whether no request runs on the thread of its caller;
    /// such a request may have begun before there was another session.
    pub(crate) fn may_grant(&self, session: SessionId, is_quiet: impl FnOnce() -> bool) -> bool {
        let mut state = self.state.lock();
        if !state.sessions.contains(&session) {
            return false;
        }
        if !state.grants {
            state.grants = is_quiet() && self.unannounced.load(Ordering::Acquire) == 0;
        }
        state.grants
    }

    /// Returns the era of a session's leases on bytes.
    pub(crate) fn era(&self, session: SessionId) -> WriteEra {
        self.state.lock().era(session)
    }

    /// Begins the next era of a session, which has lost leases under which its client may have held
    /// back bytes. Returns the era.
    pub(crate) fn begin_era(&self, session: SessionId) -> WriteEra {
        let mut state = self.state.lock();
        let era = state.era(session).next();
        state.eras.insert(session, era);
        era
    }

    /// Returns all sessions with the eras that follow theirs.
    pub(crate) fn next_eras(&self) -> Vec<(SessionId, WriteEra)> {
        let state = self.state.lock();
        state.sessions.iter().map(|session| (*session, state.era(*session).next())).collect()
    }

    /// Sets eras: those of the last run, or those that begin now.
    pub(crate) fn set_eras(&self, eras: impl IntoIterator<Item = (SessionId, WriteEra)>) {
        let mut state = self.state.lock();
        for (session, era) in eras {
            if state.sessions.contains(&session) {
                state.eras.insert(session, era);
            }
        }
    }

    /// Returns whether a session has begun and not ended.
    pub(crate) fn has(&self, session: SessionId) -> bool {
        self.state.lock().sessions.contains(&session)
    }

    /// Returns all sessions.
    pub(crate) fn all(&self) -> HashSet<SessionId> {
        self.state.lock().sessions.iter().copied().collect()
    }

    /// Records an open for writing, whose change of the inode has begun.
    pub(crate) fn opened(&self, open: OpenKey, ino: InodeId) -> WriterState {
        let mut state = self.state.lock();
        if !state.sessions.contains(&open.session) {
            return WriterState::SessionEnded;
        }
        match state.writes.insert(open, ino) {
            None => WriterState::New,
            Some(_) => WriterState::OpenedAgain,
        }
    }

    /// Forgets an open for writing, whose change ends with the release of the file. Returns the
    /// inode.
    pub(crate) fn closed(&self, open: OpenKey) -> Option<InodeId> {
        self.state.lock().writes.remove(&open)
    }
}
