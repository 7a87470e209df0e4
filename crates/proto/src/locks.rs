//! All file locks of a server in one table: `flock`, `fcntl` and open-file-description locks of
//! every session.
//!
//! A lock is set at once, refused, or its request waits. Requests that wait for locks of a file are
//! queued in the order of their arrival. When a lock is removed, the queue is read from its front,
//! and each request that conflicts with no lock any more is granted.
//!
//! As in Linux, a request waits for locks only, never for another request: a newcomer that
//! conflicts with no lock is granted, even if an older request for the same bytes waits. Otherwise
//! a program that is correct on a local disk could deadlock: A has a read lock and waits for C
//! elsewhere, B waits to write, and C, which reads, would wait for B.
//!
//! Always true after a call:
//!
//! 1. Two holders have no overlapping locks of which one is a write lock.
//! 2. A request waits only if it conflicts with a lock of another holder.
//!
//! A request for an `fcntl` lock of a process is refused if it would have to wait for a process
//! that waits, directly or through others, for the caller. Each process counts as waiting for all
//! it has requested, also if it has several threads: as in Linux, such a program may be refused a
//! lock that another of its threads would have freed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use pelago_wire::{
    Code, FileLock, InodeId, LockKind, LockMode, LockOwner, LockRange, OpenId, RequestId,
    SessionId, limits,
};

use ranges::RangeLocks;
use waiters::{Waiter, Waiters};

pub use client::{ClientLocks, OwnedLock};
pub use pending::GivenUp;
pub use waiters::WaiterId;

mod client;
mod pending;
mod ranges;
#[cfg(test)]
mod tests;
mod waiters;

/// The holders that the search for a deadlock looks at. After that the request waits: the table is
/// locked during the search.
const DEADLOCK_HOLDERS: usize = 4096;

/// The holder of locks: an owner of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder {
    /// The session.
    pub session: SessionId,
    /// The process or the open file description within the session.
    pub owner: LockOwner,
}

impl Holder {
    /// The lowest holder.
    const FIRST: Self = Self { session: SessionId(0), owner: LockOwner(0) };
    /// The highest holder.
    const LAST: Self = Self { session: SessionId(u64::MAX), owner: LockOwner(u64::MAX) };

    /// Returns the lowest and the highest holder of a session.
    const fn all_of(session: SessionId) -> (Self, Self) {
        (Self { session, ..Self::FIRST }, Self { session, ..Self::LAST })
    }
}

/// A lock to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRequest {
    /// The file.
    pub ino: InodeId,
    /// The open through which the lock is set. It is of the holder's session.
    pub open: OpenId,
    /// The owner that is to hold the lock.
    pub holder: Holder,
    /// The lock.
    pub lock: FileLock,
}

/// The result of a request for a lock that may wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetLock {
    /// It is set, or removed.
    Granted,
    /// It waits, and is granted or cancelled by a later call.
    Waiting(WaiterId),
}

/// Requests that do not wait any more.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Their locks are set, in this order.
    pub granted: Vec<WaiterId>,
    /// Their open or their session has ended.
    pub cancelled: Vec<WaiterId>,
}

/// Bounds of what one session may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockLimits {
    /// Ranges of its locks.
    pub locks: usize,
    /// Requests that wait.
    pub waiters: usize,
}

impl Default for LockLimits {
    fn default() -> Self {
        Self { locks: limits::LOCKS, waiters: limits::LOCK_WAITERS }
    }
}

/// The counts of a table.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct LockCounts {
    /// Ranges of locks.
    pub locks: usize,
    /// Requests that wait.
    pub waiters: usize,
}

/// The locks of all files and sessions.
#[derive(Debug, Default)]
pub struct LockTable {
    limits: LockLimits,
    /// Files with a lock or a request that waits.
    files: BTreeMap<FileKey, LockedFile>,
    /// The open through which each holder has set its last lock of a file, for holders with locks.
    opens: BTreeMap<(Holder, FileKey), OpenId>,
    /// The same, by the open.
    holders: BTreeSet<(SessionOpen, Holder, FileKey)>,
    waiters: Waiters,
    /// Sessions with locks or waiters.
    sessions: BTreeMap<SessionId, LockCounts>,
    total: LockCounts,
}

/// An open: each session numbers its own.
type SessionOpen = (SessionId, OpenId);

/// The locks of a file that can conflict with each other: those of one system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FileKey {
    ino: InodeId,
    is_flock: bool,
}

impl FileKey {
    const fn of(ino: InodeId, kind: LockKind) -> Self {
        Self { ino, is_flock: matches!(kind, LockKind::Flock) }
    }
}

#[derive(Debug, Default)]
struct LockedFile {
    locks: RangeLocks,
    /// In the order of arrival, which is that of the ids.
    queue: BTreeMap<WaiterId, LockRequest>,
}

impl LockTable {
    /// Returns an empty table.
    #[must_use]
    pub fn new(limits: LockLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Returns how many locks and waiters there are.
    #[must_use]
    pub const fn counts(&self) -> LockCounts {
        self.total
    }

    /// Returns the lock that conflicts with this one and begins first; `None` if this one could be
    /// set. The lock has the number of its process only for the process's own session.
    #[must_use]
    pub fn test(&self, ino: InodeId, holder: Holder, lock: &FileLock) -> Option<FileLock> {
        let file = self.files.get(&FileKey::of(ino, lock.kind))?;
        let (other, found) = file.locks.conflict(holder, lock)?;
        let is_known = other.session == holder.session && found.kind != LockKind::OpenFile;
        Some(FileLock { pid: if is_known { found.pid } else { 0 }, ..found })
    }

    /// Sets or removes a lock without waiting. Returns the requests that are granted by it.
    ///
    /// A refused `flock` leaves the holder without the lock it had, as in Linux: to convert a lock
    /// is to remove it and to set another. No waiter comes in between if the new one can be set.
    ///
    /// # Errors
    /// `LockHeld`; `NoLocks`; `Invalid` for a range that is none. The requests that were granted
    /// nevertheless, because the holder has lost its `flock`.
    pub fn set(&mut self, request: &LockRequest) -> (Result<(), Code>, Vec<WaiterId>) {
        if let Err(code) = self.check(request) {
            return (Err(code), Vec::new());
        }
        if self.is_free(request) {
            return (Ok(()), self.grant(request));
        }
        (Err(Code::LockHeld), self.drop_converted(request))
    }

    /// Sets a lock, or lets its request wait under the number by which [`LockTable::cancel`] finds
    /// it, unless that is 0. Returns the other requests that are granted by it.
    ///
    /// # Errors
    /// `Deadlock`; `NoLocks`; `Invalid` for a range that is none, or if a request with this number
    /// waits. As for [`LockTable::set`], a holder that has to wait has lost its `flock`.
    pub fn set_or_wait(
        &mut self,
        request: &LockRequest,
        number: RequestId,
    ) -> (Result<SetLock, Code>, Vec<WaiterId>) {
        if let Err(code) = self.check(request) {
            return (Err(code), Vec::new());
        }
        if self.is_free(request) {
            return (Ok(SetLock::Granted), self.grant(request));
        }
        if let Err(code) = self.check_wait(request, number) {
            return (Err(code), Vec::new());
        }
        let granted = self.drop_converted(request);
        (Ok(SetLock::Waiting(self.enqueue(*request, number))), granted)
    }

    /// Returns whether a lock would have to wait for others.
    #[must_use]
    pub fn would_wait(&self, request: &LockRequest) -> bool {
        !self.is_free(request)
    }

    /// Removes the locks that a holder has of a file by `fcntl`, or by `flock`. Returns the
    /// requests that are granted by it.
    pub fn drop_owner(&mut self, ino: InodeId, holder: Holder, kind: LockKind) -> Vec<WaiterId> {
        self.drop_locks(holder, FileKey::of(ino, kind))
    }

    /// Removes the locks of each holder that has set its last one of the file through this open,
    /// and cancels the requests that wait by it.
    pub fn drop_open(&mut self, session: SessionId, open: OpenId) -> Ended {
        let open = (session, open);
        let waiters = self.waiters.of_open(open);
        let first = FileKey { ino: InodeId::from_raw(0), is_flock: false };
        let from = self.holders.range((open, Holder::FIRST, first)..);
        let locks: Vec<_> = from
            .take_while(|(other, ..)| *other == open)
            .map(|(_, holder, file)| (*holder, *file))
            .collect();
        self.end(waiters, locks)
    }

    /// Cancels the requests of a session that wait.
    pub fn cancel_session(&mut self, session: SessionId) -> Ended {
        let waiters = self.waiters.of_session(session);
        self.end(waiters, Vec::new())
    }

    /// Removes the locks of a session, and cancels its requests that wait.
    pub fn drop_session(&mut self, session: SessionId) -> Ended {
        let waiters = self.waiters.of_session(session);
        let first = FileKey { ino: InodeId::from_raw(0), is_flock: false };
        let from = self.opens.range((Holder::all_of(session).0, first)..);
        let locks: Vec<_> =
            from.map(|(key, _)| *key).take_while(|(holder, _)| holder.session == session).collect();
        self.end(waiters, locks)
    }

    /// Cancels a request that waits. `None` means that it does not wait: it was granted, or is
    /// unknown.
    pub fn cancel(&mut self, session: SessionId, number: RequestId) -> Option<WaiterId> {
        let waiter = *self.waiters.by_request.get(&(session, number))?;
        self.dequeue(waiter)?;
        Some(waiter)
    }

    fn check(&self, request: &LockRequest) -> Result<(), Code> {
        if !request.lock.range().is_valid() {
            return Err(Code::Invalid);
        }
        let file = self.files.get(&FileKey::of(request.ino, request.lock.kind));
        let growth = match file {
            Some(file) => file.locks.growth(request.holder, &request.lock),
            None => usize::from(request.lock.mode != LockMode::Unlock),
        };
        let has = self.session(request.holder.session).locks;
        if growth > 0 && has + growth > self.limits.locks { Err(Code::NoLocks) } else { Ok(()) }
    }

    fn check_wait(&self, request: &LockRequest, number: RequestId) -> Result<(), Code> {
        let session = request.holder.session;
        if self.waiters.by_request.contains_key(&(session, number)) {
            return Err(Code::Invalid);
        }
        if self.session(session).waiters >= self.limits.waiters {
            return Err(Code::NoLocks);
        }
        let is_deadlock = request.lock.kind == LockKind::Posix && self.closes_circle(request);
        if is_deadlock { Err(Code::Deadlock) } else { Ok(()) }
    }

    /// Returns whether a holder that this request would wait for waits for the holder of the
    /// request, directly or through others.
    fn closes_circle(&self, request: &LockRequest) -> bool {
        let mut seen = self.blockers(request);
        let mut next: Vec<Holder> = seen.iter().copied().collect();
        while let Some(holder) = next.pop() {
            if holder == request.holder {
                return true;
            }
            if seen.len() > DEADLOCK_HOLDERS {
                return false;
            }
            for waiting in self.waiting(holder).filter(|other| other.lock.kind == LockKind::Posix) {
                next.extend(self.blockers(waiting).into_iter().filter(|other| seen.insert(*other)));
            }
        }
        false
    }

    /// Returns the holders of the locks that conflict with a request.
    fn blockers(&self, request: &LockRequest) -> BTreeSet<Holder> {
        let file = self.files.get(&FileKey::of(request.ino, request.lock.kind));
        file.map(|file| file.locks.conflicting(request.holder, &request.lock)).unwrap_or_default()
    }

    /// Returns the requests of a holder that wait.
    fn waiting(&self, holder: Holder) -> impl Iterator<Item = &LockRequest> {
        let ids = self.waiters.of_holders(holder, holder);
        ids.filter_map(|id| self.files.get(&self.waiters.all.get(&id)?.file)?.queue.get(&id))
    }

    fn is_free(&self, request: &LockRequest) -> bool {
        let file = self.files.get(&FileKey::of(request.ino, request.lock.kind));
        file.is_none_or(|file| file.locks.conflict(request.holder, &request.lock).is_none())
    }

    /// Sets a lock that conflicts with none, then grants the waiting requests that have become
    /// free.
    fn grant(&mut self, request: &LockRequest) -> Vec<WaiterId> {
        let file = FileKey::of(request.ino, request.lock.kind);
        let freed = request.lock.range();
        if self.apply(request) { self.grant_waiters(file, freed) } else { Vec::new() }
    }

    /// Removes the `flock` that a refused request was to convert.
    fn drop_converted(&mut self, request: &LockRequest) -> Vec<WaiterId> {
        match request.lock.kind {
            LockKind::Flock => self.drop_owner(request.ino, request.holder, LockKind::Flock),
            LockKind::Posix | LockKind::OpenFile => Vec::new(),
        }
    }

    fn drop_locks(&mut self, holder: Holder, file: FileKey) -> Vec<WaiterId> {
        let Some(open) = self.opens.get(&(holder, file)).copied() else { return Vec::new() };
        let kind = if file.is_flock { LockKind::Flock } else { LockKind::Posix };
        let mode = LockMode::Unlock;
        let lock = FileLock { kind, mode, start: 0, end: FileLock::TO_END, pid: 0 };
        self.grant(&LockRequest { ino: file.ino, open, holder, lock })
    }

    fn end(&mut self, waiters: Vec<WaiterId>, locks: Vec<(Holder, FileKey)>) -> Ended {
        // First the waiters, so that none of them is granted.
        let cancelled = waiters.into_iter().filter(|id| self.dequeue(*id).is_some()).collect();
        let granted =
            locks.into_iter().flat_map(|(holder, file)| self.drop_locks(holder, file)).collect();
        Ended { granted, cancelled }
    }

    /// Sets a lock that conflicts with none. Returns whether a byte is locked less than before.
    fn apply(&mut self, request: &LockRequest) -> bool {
        let LockRequest { ino, open, holder, lock } = *request;
        let key = FileKey::of(ino, lock.kind);
        let file = self.files.entry(key).or_default();
        assert!(file.locks.conflict(holder, &lock).is_none(), "no two locks conflict");
        let change = file.locks.set(holder, &lock);
        self.forget_if_unused(key);
        let old = match change.after {
            0 => self.opens.remove(&(holder, key)),
            _ if lock.mode == LockMode::Unlock => None,
            _ => self.opens.insert((holder, key), open),
        };
        if let Some(old) = old {
            self.holders.remove(&((holder.session, old), holder, key));
        }
        if change.after > 0 && lock.mode != LockMode::Unlock {
            self.holders.insert(((holder.session, open), holder, key));
        }
        self.count(holder.session, |counts| {
            counts.locks = counts.locks + change.after - change.before;
        });
        change.weakened
    }

    /// Grants the requests of a file that conflict with no lock any more, the oldest first, after a
    /// range was freed. The limit of locks was checked when they came.
    fn grant_waiters(&mut self, key: FileKey, mut freed: LockRange) -> Vec<WaiterId> {
        let mut granted = Vec::new();
        let mut after = WaiterId::NONE;
        while let Some((id, request)) = self.next_free(key, after, freed) {
            self.dequeue(id);
            granted.push(id);
            after = id;
            if self.apply(&request) {
                // The holder had a stronger lock: older requests may be free too.
                freed = freed.hull(request.lock.range());
                after = WaiterId::NONE;
            }
        }
        granted
    }

    /// Returns the oldest request after `after` that overlaps a freed range and conflicts with no
    /// lock.
    fn next_free(
        &self,
        key: FileKey,
        after: WaiterId,
        freed: LockRange,
    ) -> Option<(WaiterId, LockRequest)> {
        let file = self.files.get(&key)?;
        let mut younger = file.queue.range((Bound::Excluded(after), Bound::Unbounded));
        let is_free = |request: &LockRequest| {
            request.lock.range().overlaps(freed)
                && file.locks.conflict(request.holder, &request.lock).is_none()
        };
        younger.find(|(_, request)| is_free(request)).map(|(id, request)| (*id, *request))
    }

    fn enqueue(&mut self, request: LockRequest, number: RequestId) -> WaiterId {
        let LockRequest { ino, open, holder, lock } = request;
        let file = FileKey::of(ino, lock.kind);
        let id = self.waiters.add(Waiter { file, holder, open, request: number });
        self.files.entry(file).or_default().queue.insert(id, request);
        self.count(holder.session, |counts| counts.waiters += 1);
        id
    }

    fn dequeue(&mut self, id: WaiterId) -> Option<LockRequest> {
        let Waiter { file: key, holder, .. } = self.waiters.remove(id)?;
        let request = self.files.get_mut(&key)?.queue.remove(&id);
        self.forget_if_unused(key);
        self.count(holder.session, |counts| counts.waiters -= 1);
        request
    }

    fn forget_if_unused(&mut self, key: FileKey) {
        if self.files.get(&key).is_some_and(|file| file.locks.is_empty() && file.queue.is_empty()) {
            self.files.remove(&key);
        }
    }

    fn session(&self, session: SessionId) -> LockCounts {
        self.sessions.get(&session).copied().unwrap_or_default()
    }

    /// Changes the counts of a session, and the total alike.
    fn count(&mut self, session: SessionId, change: impl Fn(&mut LockCounts)) {
        change(&mut self.total);
        let counts = self.sessions.entry(session).or_default();
        change(counts);
        if *counts == LockCounts::default() {
            self.sessions.remove(&session);
        }
    }
}
