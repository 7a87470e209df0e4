//! The open file table: the opens by session and number, and the inodes that they share.
//!
//! Each method takes one short lock. An open of a file without bytes costs two small entries. The
//! lock is a leaf lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pelago_store::sync::Mutex;
use pelago_wire::id_map::{IdMap, KeyedMap};
use pelago_wire::{Code, Error, InodeId, OpenFlags, RecordedPeer, SessionId};

use crate::inode::Inode;
use crate::open_key::OpenKey;

/// All opens, and the inodes that they share.
pub(crate) struct OpenTable {
    state: Mutex<State>,
    limit: OpenLimit,
}

/// The limits of opens at the same time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenLimit {
    /// The limit of all sessions.
    pub(crate) total: usize,
    /// The limit of all sessions but the server's own.
    pub(crate) others: usize,
    /// The limit of all sessions of one peer.
    pub(crate) share: usize,
}

#[derive(Default)]
struct State {
    opens: KeyedMap<OpenKey, Opened>,
    /// The opens of the server's own session.
    own: usize,
    /// The opens of each other session that has a peer or an open.
    by_session: IdMap<SessionId, SessionOpens>,
    /// The number of opens of all sessions of each peer. The count is changed only under this lock.
    by_peer: HashMap<RecordedPeer, Arc<AtomicUsize>>,
    inodes: IdMap<InodeId, Shared>,
    /// The number of inodes in the table without an open.
    closed: usize,
}

/// The number of opens of a session, and of its peer.
struct SessionOpens {
    count: usize,
    /// The number of opens of all sessions of its peer. A session with an unknown peer has a count
    /// of its own.
    of_peer: Arc<AtomicUsize>,
    /// True until the session ends.
    has_peer: bool,
}

/// The size of the open file table at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// The number of opens.
    pub opens: usize,
    /// The number of inodes in use without an open: a program may still write their content file,
    /// or they are being opened or released.
    pub closed: usize,
}

/// One open of an inode.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) inode: Arc<Inode>,
    pub(crate) flags: OpenFlags,
    pub(crate) path: PathKind,
    /// The count of errors of the inode that this open has reported or may ignore.
    errors_seen: u64,
}

/// The kind of data path of an open. For an inode the kernel of a mount accepts only one of the
/// last two kinds at a time: it fails an open of the other kind with `EIO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathKind {
    /// By requests, from a caller that is no kernel.
    Direct,
    /// By requests of a kernel that may cache pages.
    Cached,
    /// By a descriptor of the content file in the kernel.
    Passthrough,
}

impl PathKind {
    /// Returns the path by requests for an open with these flags.
    pub(crate) const fn by_requests(flags: OpenFlags) -> Self {
        if flags.passthrough { Self::Cached } else { Self::Direct }
    }
}

/// An inode and the number of its openers, including operations without an open.
struct Shared {
    inode: Arc<Inode>,
    openers: u32,
    writers: u32,
    /// The number of opens with an id.
    opens: u32,
    /// The number of opens by [`PathKind::Cached`].
    cached: u32,
    /// The number of opens by [`PathKind::Passthrough`]. The kernel ends an open before it sends
    /// the release, so neither count is ever lower than the kernel's.
    passthrough: u32,
    /// The session of all opens since there last was none; `None` if they have several sessions.
    user: Option<SessionId>,
}

impl Shared {
    /// Returns whether another open may have this path now.
    const fn admits(&self, path: PathKind) -> bool {
        match path {
            PathKind::Direct => true,
            PathKind::Cached => self.passthrough == 0,
            PathKind::Passthrough => self.cached == 0,
        }
    }

    const fn count_mut(&mut self, path: PathKind) -> Option<&mut u32> {
        match path {
            PathKind::Direct => None,
            PathKind::Cached => Some(&mut self.cached),
            PathKind::Passthrough => Some(&mut self.passthrough),
        }
    }
}

impl OpenTable {
    /// Returns an empty table with these limits.
    pub(crate) fn new(limit: OpenLimit) -> Self {
        Self { state: Mutex::default(), limit }
    }

    /// Counts the opens.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().opens.len()
    }

    /// Counts the opens, and the inodes without an open.
    pub(crate) fn counts(&self) -> Counts {
        let state = self.state.lock();
        Counts { opens: state.opens.len(), closed: state.closed }
    }

    /// Begins a session of this peer: its opens are counted in the share of the peer.
    pub(crate) fn begin_session(&self, session: SessionId, peer: RecordedPeer) {
        let mut state = self.state.lock();
        let State { by_session, by_peer, .. } = &mut *state;
        let of_peer = Arc::clone(by_peer.entry(peer).or_default());
        let begun = SessionOpens { count: 0, of_peer, has_peer: true };
        by_session.entry(session).or_insert(begun);
    }

    /// Ends a session, which has released its opens.
    pub(crate) fn end_session(&self, session: SessionId) {
        let mut state = self.state.lock();
        if let Some(ended) = state.by_session.get_mut(&session) {
            ended.has_peer = false;
        }
        state.forget_if_over(session);
        state.by_peer.retain(|_, opens| Arc::strong_count(opens) > 1);
    }

    /// Checks that another open is allowed, and that its number is free.
    ///
    /// # Errors
    /// `TooManyOpen`, `Invalid`.
    pub(crate) fn check_room(&self, open: OpenKey) -> Result<(), Error> {
        let state = self.state.lock();
        let has_share = open.session != SessionId::DIRECT && {
            let of_peer = state.by_session.get(&open.session);
            of_peer.is_some_and(|it| it.of_peer.load(Ordering::Relaxed) >= self.limit.share)
                || state.opens.len() - state.own >= self.limit.others
        };
        if state.opens.len() >= self.limit.total || has_share {
            return Err(Code::TooManyOpen.into());
        }
        state.check_free(open)
    }

    /// Adds an opener to an inode. `make` creates the inode if it is not in the table; it stays the
    /// only [`Inode`] of its id until the last [`OpenTable::leave`].
    pub(crate) fn enter(
        &self,
        ino: InodeId,
        writes: bool,
        make: impl FnOnce() -> Inode,
    ) -> Arc<Inode> {
        self.state.lock().enter(ino, writes, make)
    }

    /// Adds an open whose opener has entered. Returns false, and adds nothing, if the path is not
    /// possible beside those of other opens of the inode.
    ///
    /// # Errors
    /// `Invalid` if the number is in use.
    pub(crate) fn insert(
        &self,
        open: OpenKey,
        inode: &Arc<Inode>,
        flags: OpenFlags,
        path: PathKind,
    ) -> Result<bool, Error> {
        self.state.lock().insert(open, inode, flags, path)
    }

    /// Does [`OpenTable::enter`] and [`OpenTable::insert`] for a file that was just created and is
    /// reached by requests.
    ///
    /// # Errors
    /// `Invalid` if the number is in use; the caller must release the opener.
    pub(crate) fn insert_created(
        &self,
        open: OpenKey,
        inode: Inode,
        flags: OpenFlags,
    ) -> (Arc<Inode>, Result<bool, Error>) {
        let mut state = self.state.lock();
        let inode = state.enter(inode.handle.ino, flags.write, || inode);
        let inserted = state.insert(open, &inode, flags, PathKind::by_requests(flags));
        (inode, inserted)
    }

    /// Returns all opens of a session.
    pub(crate) fn opens_of(&self, session: SessionId) -> Vec<OpenKey> {
        let state = self.state.lock();
        state.opens.keys().filter(|key| key.session == session).copied().collect()
    }

    /// Returns the open with this key.
    ///
    /// # Errors
    /// `BadOpen`.
    pub(crate) fn get(&self, open: OpenKey) -> Result<Opened, Error> {
        self.state.lock().opens.get(&open).cloned().ok_or_else(|| Code::BadOpen.into())
    }

    /// Checks that an open was not released since [`OpenTable::get`].
    ///
    /// # Errors
    /// `BadOpen`.
    pub(crate) fn check_open(&self, open: OpenKey) -> Result<(), Error> {
        match self.state.lock().opens.contains_key(&open) {
            true => Ok(()),
            false => Err(Code::BadOpen.into()),
        }
    }

    /// Returns the newest writeback error of the inode if this open has not reported it; it counts
    /// as reported now.
    pub(crate) fn check_errors(&self, open: OpenKey) -> Option<Error> {
        let mut state = self.state.lock();
        let opened = state.opens.get_mut(&open)?;
        opened.inode.errors.check(&mut opened.errors_seen)
    }

    /// Removes an open. Returns whether it was in the table. The opener stays until
    /// [`OpenTable::leave`].
    pub(crate) fn remove(&self, open: OpenKey) -> bool {
        let mut state = self.state.lock();
        let Some(opened) = state.opens.remove(&open) else { return false };
        state.count_out(open.session);
        let Some(shared) = state.inodes.get_mut(&opened.inode.handle.ino) else { return true };
        if let Some(count) = shared.count_mut(opened.path) {
            assert!(*count > 0, "each open is counted on its path until its id is removed");
            *count -= 1;
        }
        assert!(shared.opens > 0, "each id of an inode is counted until it is removed");
        shared.opens -= 1;
        let closed = shared.opens == 0;
        state.closed += usize::from(closed);
        true
    }

    /// Removes an opener. With the last opener the inode leaves the table; `keep` is called before
    /// that, under the lock, so that the next opener finds the error that it records.
    pub(crate) fn leave(&self, ino: InodeId, writes: bool, keep: impl FnOnce(&Inode)) {
        let mut state = self.state.lock();
        let Some(shared) = state.inodes.get_mut(&ino) else { return };
        let writers = u32::from(writes);
        assert!(
            shared.openers > 0 && shared.writers >= writers,
            "each opener leaves once, as what it entered: a reader or a writer"
        );
        shared.openers -= 1;
        shared.writers -= writers;
        assert!(shared.writers <= shared.openers, "each writer is an opener");
        if shared.openers == 0 {
            keep(&shared.inode);
            let gone = state.inodes.remove(&ino);
            state.closed -= usize::from(gone.is_some_and(|gone| gone.opens == 0));
        }
    }

    /// Returns whether an inode has exactly one opener.
    pub(crate) fn has_one_opener(&self, ino: InodeId) -> bool {
        self.state.lock().inodes.get(&ino).is_some_and(|shared| shared.openers == 1)
    }

    /// Returns whether an inode has opens of this session, and no other opener.
    pub(crate) fn is_used_only_by(&self, session: SessionId, ino: InodeId) -> bool {
        let is_alone = |shared: &Shared| {
            shared.user == Some(session) && shared.opens > 0 && shared.openers == shared.opens
        };
        self.state.lock().inodes.get(&ino).is_some_and(is_alone)
    }

    /// Counts the openers of an inode that may write it.
    pub(crate) fn writers(&self, ino: InodeId) -> u32 {
        self.state.lock().inodes.get(&ino).map_or(0, |shared| shared.writers)
    }

    /// Counts the opens of an inode by passthrough.
    pub(crate) fn passthrough_opens(&self, ino: InodeId) -> u32 {
        self.state.lock().inodes.get(&ino).map_or(0, |shared| shared.passthrough)
    }

    /// Returns an inode if it is open.
    pub(crate) fn inode(&self, ino: InodeId) -> Option<Arc<Inode>> {
        self.state.lock().inodes.get(&ino).map(|shared| Arc::clone(&shared.inode))
    }

    /// Returns all inodes that are open.
    pub(crate) fn inodes(&self) -> Vec<Arc<Inode>> {
        self.state.lock().inodes.values().map(|shared| Arc::clone(&shared.inode)).collect()
    }
}

impl State {
    fn enter(&mut self, ino: InodeId, writes: bool, make: impl FnOnce() -> Inode) -> Arc<Inode> {
        let shared = self.inodes.entry(ino).or_insert_with(|| {
            self.closed += 1;
            let openers = 0;
            let writers = 0;
            let opens = 0;
            let inode = Arc::new(make());
            Shared { inode, openers, writers, opens, cached: 0, passthrough: 0, user: None }
        });
        shared.openers += 1;
        shared.writers += u32::from(writes);
        Arc::clone(&shared.inode)
    }

    fn check_free(&self, open: OpenKey) -> Result<(), Error> {
        match self.opens.contains_key(&open) {
            false => Ok(()),
            true => Err(Code::Invalid.into()),
        }
    }

    fn insert(
        &mut self,
        open: OpenKey,
        inode: &Arc<Inode>,
        flags: OpenFlags,
        path: PathKind,
    ) -> Result<bool, Error> {
        self.check_free(open)?;
        let shared = self.inodes.get_mut(&inode.handle.ino).ok_or(Code::Bug)?;
        if !shared.admits(path) {
            return Ok(false);
        }
        if let Some(count) = shared.count_mut(path) {
            *count += 1;
        }
        self.closed -= usize::from(shared.opens == 0);
        let is_alone = shared.opens == 0 || shared.user == Some(open.session);
        shared.user = is_alone.then_some(open.session);
        shared.opens += 1;
        let errors_seen = inode.errors.sample();
        let inode = Arc::clone(inode);
        self.opens.insert(open, Opened { inode, flags, path, errors_seen });
        self.count_in(open.session);
        Ok(true)
    }

    /// Counts one more open of a session.
    fn count_in(&mut self, session: SessionId) {
        if session == SessionId::DIRECT {
            self.own += 1;
            return;
        }
        let alone = || SessionOpens { count: 0, of_peer: Arc::default(), has_peer: false };
        let opens = self.by_session.entry(session).or_insert_with(alone);
        opens.count += 1;
        opens.of_peer.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one open less of a session.
    fn count_out(&mut self, session: SessionId) {
        if session == SessionId::DIRECT {
            assert!(self.own > 0, "each open of the server is counted until it is removed");
            self.own -= 1;
            return;
        }
        let Some(opens) = self.by_session.get_mut(&session) else { return };
        assert!(opens.count > 0, "each open of a session is counted until it is removed");
        opens.count -= 1;
        opens.of_peer.fetch_sub(1, Ordering::Relaxed);
        if opens.count == 0 {
            self.forget_if_over(session);
        }
    }

    /// Forgets a session that has ended, if it has no opens.
    fn forget_if_over(&mut self, session: SessionId) {
        let is_over = |opens: &SessionOpens| opens.count == 0 && !opens.has_peer;
        if self.by_session.get(&session).is_some_and(is_over) {
            self.by_session.remove(&session);
        }
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::{Handle, OpenId};

    use super::*;
    use crate::memory::MemoryBudget;

    const INO: InodeId = InodeId::from_raw(7);
    const READ: OpenFlags = OpenFlags::READ;
    const LIMIT: OpenLimit = OpenLimit { total: 9, others: 6, share: 3 };

    fn key(session: u64, open: u64) -> OpenKey {
        OpenKey { session: SessionId(session), open: OpenId(open) }
    }

    fn inode() -> Inode {
        Inode::stored(Handle { ino: INO, ..Handle::ROOT }, &MemoryBudget::new(0, 0), None)
    }

    #[test]
    fn cached_and_passthrough_opens_of_an_inode_exclude_each_other() {
        let table = OpenTable::new(LIMIT);
        let shared = table.enter(INO, false, inode);
        let insert = |number, path| table.insert(key(1, number), &shared, READ, path);
        assert_eq!(insert(1, PathKind::Cached), Ok(true));
        assert_eq!(insert(2, PathKind::Passthrough), Ok(false));
        assert_eq!(insert(3, PathKind::Direct), Ok(true));
        assert!(table.remove(key(1, 1)) && !table.remove(key(1, 1)));
        assert_eq!(insert(4, PathKind::Passthrough), Ok(true));
        assert_eq!((insert(5, PathKind::Cached), table.passthrough_opens(INO)), (Ok(false), 1));
    }

    #[test]
    fn each_session_has_numbers_of_its_own() {
        let table = OpenTable::new(LIMIT);
        let shared = table.enter(INO, false, inode);
        let insert = |key| table.insert(key, &shared, READ, PathKind::Direct);
        assert_eq!((insert(key(1, 7)), insert(key(2, 7))), (Ok(true), Ok(true)));
        assert_eq!(insert(key(1, 7)), Err(Code::Invalid.into()));
        assert_eq!(table.check_room(key(2, 7)), Err(Code::Invalid.into()));
        assert_eq!(table.get(key(3, 7)).map(drop), Err(Code::BadOpen.into()));
        assert_eq!(table.opens_of(SessionId(2)), [key(2, 7)]);
        assert!(table.remove(key(1, 7)));
        assert_eq!((table.count(), insert(key(1, 7))), (1, Ok(true)));
    }

    #[test]
    fn an_inode_has_one_user_while_all_its_openers_are_opens_of_one_session() {
        let table = OpenTable::new(LIMIT);
        let is_used = |session| table.is_used_only_by(SessionId(session), INO);
        let shared = table.enter(INO, false, inode);
        assert!(!is_used(1), "its opener has no open yet");
        let insert = |key| table.insert(key, &shared, READ, PathKind::Direct);
        assert_eq!(insert(key(1, 1)), Ok(true));
        assert!(is_used(1) && !is_used(2));
        let _second = table.enter(INO, false, inode);
        assert!(!is_used(1), "a second opener, of a session that is not known yet");
        assert_eq!(insert(key(2, 1)), Ok(true));
        assert!(!is_used(1) && !is_used(2));
        for of in [1, 2] {
            assert!(table.remove(key(of, 1)));
            table.leave(INO, false, |_| {});
        }
        let shared = table.enter(INO, false, inode);
        assert_eq!(table.insert(key(2, 2), &shared, READ, PathKind::Direct), Ok(true));
        assert!(is_used(2));
    }

    #[test]
    fn a_peer_has_a_share_of_the_opens_and_the_servers_own_mount_a_reserve() {
        let table = OpenTable::new(LIMIT);
        let shared = table.enter(INO, false, inode);
        let open = |session, number| {
            table.check_room(key(session, number))?;
            table.insert(key(session, number), &shared, READ, PathKind::Direct)
        };
        let too_many = Err(Code::TooManyOpen.into());
        let peer = RecordedPeer::Machine([1; 32]);
        table.begin_session(SessionId(7), peer);
        table.begin_session(SessionId(8), peer);
        table.begin_session(SessionId(9), RecordedPeer::User(1));
        assert_eq!([open(7, 1), open(7, 2), open(8, 3)], [Ok(true); 3]);
        assert_eq!([open(7, 4), open(8, 4)], [too_many; 2], "two sessions have one share");
        assert_eq!([1, 2, 3].map(|number| open(9, number)), [Ok(true); 3], "another has its own");
        assert_eq!(open(10, 1), too_many, "the rest is for the server's own mount");
        assert!(table.remove(key(7, 2)));
        assert_eq!([open(8, 4), open(7, 4)], [Ok(true), too_many]);
        let own = SessionId::DIRECT.0;
        assert_eq!([1, 2, 3].map(|number| open(own, number)), [Ok(true); 3]);
        assert_eq!(open(own, 4), too_many, "the total is for all");
        for (session, number) in [(7, 1), (8, 3), (8, 4)] {
            assert!(table.remove(key(session, number)));
        }
        [7, 8].iter().for_each(|session| table.end_session(SessionId(*session)));
        let state = table.state.lock();
        assert_eq!((state.by_session.len(), state.by_peer.len(), state.own), (1, 1, 3));
    }

    #[test]
    fn an_inode_stays_in_the_table_until_its_last_opener_leaves() {
        let table = OpenTable::new(LIMIT);
        let first = table.enter(INO, true, inode);
        let second = table.enter(INO, false, || panic!("it is in the table"));
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(table.counts(), Counts { opens: 0, closed: 1 });
        table.leave(INO, true, |_| panic!("an opener is left"));
        assert!(table.has_one_opener(INO) && table.writers(INO) == 0);
        let mut kept = 0;
        table.leave(INO, false, |_| kept += 1);
        assert_eq!((kept, table.inode(INO).is_none()), (1, true));
        assert_eq!(table.counts(), Counts { opens: 0, closed: 0 });
    }

    #[test]
    #[should_panic(expected = "each opener leaves once")]
    fn a_reader_cannot_leave_as_a_writer() {
        let table = OpenTable::new(LIMIT);
        table.enter(INO, false, inode);
        table.leave(INO, true, |_| ());
    }
}
