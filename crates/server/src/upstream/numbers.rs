//! The numbers that the open files of all sessions here, and the owners of their locks, have in the
//! one session at another site.

use std::collections::{HashMap, HashSet};

use pelago_data::OpenKey;
use pelago_wire::{Code, Error, LockOwner, OpenEffect, OpenId, Request, SessionId, limits};

/// The numbers of open files, and of the owners of locks on them.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    opens: HashMap<OpenKey, Open>,
    owners: HashMap<Owner, OwnerThere>,
    /// Number of requests of each session that wait for locks.
    waits: HashMap<SessionId, usize>,
    /// The last number that was given.
    last: u64,
}

/// An open at the other site.
#[derive(Debug)]
struct Open {
    there: OpenId,
    /// The owners that have set locks through it.
    owners: HashSet<LockOwner>,
}

/// An owner of locks, in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Owner {
    session: SessionId,
    owner: LockOwner,
}

#[derive(Debug)]
struct OwnerThere {
    there: LockOwner,
    /// Number of opens through which it has set locks.
    opens: usize,
}

/// An open that a request makes, with its number at each site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Made {
    here: OpenKey,
    there: OpenId,
}

impl Numbers {
    pub(super) fn has(&self, here: OpenKey) -> bool {
        self.opens.contains_key(&here)
    }

    /// Returns the number of an open at the other site.
    pub(super) fn there(&self, here: OpenKey) -> Option<OpenId> {
        self.opens.get(&here).map(|open| open.there)
    }

    /// Adds an open that the other site has made.
    pub(super) fn add(&mut self, Made { here, there }: Made) {
        self.opens.insert(here, Open { there, owners: HashSet::new() });
    }

    /// Ends the opens of a session. Returns their numbers at the other site.
    pub(super) fn end_session(&mut self, session: SessionId) -> Vec<OpenId> {
        let here = self.opens.keys().filter(|here| here.session == session).copied();
        let here: Vec<OpenKey> = here.collect();
        here.into_iter().filter_map(|here| self.remove(here)).collect()
    }

    /// Ends an open. Returns its number at the other site.
    fn remove(&mut self, here: OpenKey) -> Option<OpenId> {
        let Open { there, owners } = self.opens.remove(&here)?;
        for owner in owners {
            let owner = Owner { session: here.session, owner };
            let Some(known) = self.owners.get_mut(&owner) else { continue };
            known.opens -= 1;
            if known.opens == 0 {
                self.owners.remove(&owner);
            }
        }
        Some(there)
    }

    /// Replaces the numbers in a request of this session by those of the other site. Returns the
    /// open that the request makes.
    ///
    /// # Errors
    /// `BadOpen`; `NoLocks` if too many requests of the session wait for locks.
    pub(super) fn map(
        &mut self,
        session: SessionId,
        request: &mut Request,
    ) -> Result<Option<Made>, Error> {
        self.map_owner(session, request)?;
        let effect = request.opens();
        let made = effect.made().map(|(open, _)| OpenKey { session, open });
        let mut is_unknown = false;
        let mut number_made = None;
        request.each_open_mut(&mut |open| {
            let here = OpenKey { session, open: *open };
            let known = self.opens.get(&here).map(|open| open.there);
            *open = match (known, made == Some(here)) {
                (Some(there), _) => there,
                (None, true) => {
                    self.last += 1;
                    OpenId(self.last)
                }
                (None, false) => {
                    is_unknown = true;
                    *open
                }
            };
            if made == Some(here) {
                number_made = Some(Made { here, there: *open });
            }
        });
        if let OpenEffect::Ends(open) = effect {
            self.remove(OpenKey { session, open });
        }
        if is_unknown {
            return Err(Code::BadOpen.into());
        }
        if let Request::SetLock { wait: true, .. } = request {
            let waits = self.waits.entry(session).or_default();
            if *waits >= limits::SITE_LOCK_WAITERS {
                return Err(Code::NoLocks.into());
            }
            *waits += 1;
        }
        Ok(number_made)
    }

    /// Records the end of a request of a session that has waited for a lock.
    pub(super) fn end_wait(&mut self, session: SessionId) {
        if let Some(waits) = self.waits.get_mut(&session) {
            *waits -= 1;
            if *waits == 0 {
                self.waits.remove(&session);
            }
        }
    }

    /// Replaces the owner of locks in a request. One that sets none, and has none, gets a number
    /// for this request alone.
    fn map_owner(&mut self, session: SessionId, request: &mut Request) -> Result<(), Error> {
        let set_through = match request.opens() {
            OpenEffect::Locks { open, .. } => Some(OpenKey { session, open }),
            OpenEffect::Nothing
            | OpenEffect::UsesGuarded
            | OpenEffect::Makes { .. }
            | OpenEffect::MakesAgain { .. }
            | OpenEffect::Creates { .. }
            | OpenEffect::EndsLocks { .. }
            | OpenEffect::Ends(_) => None,
        };
        let Some(owner) = request.lock_owner_mut() else { return Ok(()) };
        let key = Owner { session, owner: *owner };
        self.last += 1;
        let new = LockOwner(self.last);
        *owner = match set_through {
            Some(here) => {
                let open = self.opens.get_mut(&here).ok_or(Code::BadOpen)?;
                let known = self.owners.entry(key).or_insert(OwnerThere { there: new, opens: 0 });
                known.opens += usize::from(open.owners.insert(key.owner));
                known.there
            }
            None => self.owners.get(&key).map_or(new, |known| known.there),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::{FileLock, Handle, LockKind, LockMode, OpenFlags};

    use super::*;

    const ONE: SessionId = SessionId(1);
    const TWO: SessionId = SessionId(2);
    const LOCK: FileLock =
        FileLock { kind: LockKind::Posix, mode: LockMode::Write, start: 0, end: 9, pid: 7 };

    /// Opens a file as this open of a session. Returns the number of the open at the other site.
    fn open(numbers: &mut Numbers, session: SessionId, open: u64) -> OpenId {
        let node = Handle::ROOT;
        let mut request = Request::Open { node, flags: OpenFlags::READ, open: OpenId(open) };
        let made = numbers.map(session, &mut request).unwrap().unwrap();
        numbers.add(made);
        made.there
    }

    /// Returns the owner of a lock at the other site.
    fn lock(numbers: &mut Numbers, session: SessionId, open: u64, owner: u64) -> LockOwner {
        let owner = LockOwner(owner);
        let mut request = Request::SetLock { open: OpenId(open), owner, lock: LOCK, wait: false };
        numbers.map(session, &mut request).unwrap();
        let Request::SetLock { owner, .. } = request else { panic!("{request:?}") };
        owner
    }

    /// Returns the owner whose locks end at the other site.
    fn flush(
        numbers: &mut Numbers,
        session: SessionId,
        open: u64,
        owner: u64,
    ) -> Option<LockOwner> {
        let mut request = Request::Flush { open: OpenId(open), owner: Some(LockOwner(owner)) };
        numbers.map(session, &mut request).unwrap();
        let Request::Flush { owner, .. } = request else { panic!("{request:?}") };
        owner
    }

    #[test]
    fn opens_of_two_sessions_with_one_number_are_two() {
        let mut numbers = Numbers::default();
        let first = open(&mut numbers, ONE, 5);
        assert_ne!(open(&mut numbers, TWO, 5), first);
        let mut read = Request::Read { open: OpenId(5), offset: 0, size: 1 };
        numbers.map(ONE, &mut read).unwrap();
        assert_eq!(read, Request::Read { open: first, offset: 0, size: 1 });
        assert_eq!(numbers.end_session(ONE), [first]);
        let mut release = Request::Release { open: OpenId(5) };
        assert_eq!(numbers.map(ONE, &mut release).unwrap_err().code, Code::BadOpen);
        numbers.map(TWO, &mut release).unwrap();
        assert!(!numbers.has(OpenKey { session: TWO, open: OpenId(5) }));
    }

    #[test]
    fn one_session_does_not_take_all_waits() {
        let mut numbers = Numbers::default();
        let wait = |numbers: &mut Numbers, session| {
            let owner = LockOwner(1);
            let mut wait = Request::SetLock { open: OpenId(5), owner, lock: LOCK, wait: true };
            numbers.map(session, &mut wait).map(drop).map_err(|error| error.code)
        };
        open(&mut numbers, ONE, 5);
        open(&mut numbers, TWO, 5);
        for _ in 0..limits::SITE_LOCK_WAITERS {
            assert_eq!(wait(&mut numbers, ONE), Ok(()));
        }
        assert_eq!(wait(&mut numbers, ONE), Err(Code::NoLocks));
        assert_eq!(wait(&mut numbers, TWO), Ok(()));
        numbers.end_wait(ONE);
        assert_eq!(wait(&mut numbers, ONE), Ok(()));
    }

    #[test]
    fn a_test_of_a_lock_leaves_nothing() {
        let mut numbers = Numbers::default();
        open(&mut numbers, ONE, 5);
        let test = |numbers: &mut Numbers| {
            let owner = LockOwner(77);
            let mut test = Request::GetLock { open: OpenId(5), owner, lock: LOCK };
            numbers.map(ONE, &mut test).unwrap();
            let Request::GetLock { owner, .. } = test else { panic!("{test:?}") };
            owner
        };
        assert_ne!(test(&mut numbers), test(&mut numbers));
        assert!(numbers.owners.is_empty());
        let owner = lock(&mut numbers, ONE, 5, 77);
        assert_eq!(test(&mut numbers), owner);
    }

    #[test]
    fn an_owner_has_one_number_for_all_its_opens_and_none_after_the_last() {
        let mut numbers = Numbers::default();
        open(&mut numbers, ONE, 5);
        open(&mut numbers, ONE, 6);
        open(&mut numbers, TWO, 5);
        let without_locks = flush(&mut numbers, ONE, 5, 77);
        let owner = lock(&mut numbers, ONE, 5, 77);
        assert_eq!(lock(&mut numbers, ONE, 5, 77), owner);
        assert_eq!(lock(&mut numbers, ONE, 6, 77), owner);
        assert_ne!(lock(&mut numbers, TWO, 5, 77), owner, "another session's");
        assert_ne!(lock(&mut numbers, ONE, 5, 78), owner);
        assert_ne!(without_locks, Some(owner));
        assert_eq!(flush(&mut numbers, ONE, 6, 77), Some(owner));
        numbers.map(ONE, &mut Request::Release { open: OpenId(5) }).unwrap();
        assert_eq!(lock(&mut numbers, ONE, 6, 77), owner);
        numbers.end_session(ONE);
        numbers.end_session(TWO);
        assert!(numbers.owners.is_empty() && numbers.opens.is_empty());
        let mut unknown =
            Request::SetLock { open: OpenId(5), owner: LockOwner(1), lock: LOCK, wait: true };
        assert_eq!(numbers.map(ONE, &mut unknown).unwrap_err().code, Code::BadOpen);
        assert!(numbers.owners.is_empty());
    }
}
