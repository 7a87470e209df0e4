//! Whose the changes are that are done and not safe.
//!
//! A client that lives repeats what a loss of power takes, if what it builds on is there. So a
//! change of one session that builds on one of another is answered only once that is safe: the
//! other client may not come back. The server's own mount counts as a session, which never comes
//! back. (Lustre calls it commit on sharing.)

use std::hash::{Hash, Hasher};

use pelago_wire::id_map::KeyedMap;
use pelago_wire::{InodeId, NameHash, SessionId, limits};

/// What a change changes, or builds on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// An inode: it was made or removed, or its names or its attributes changed.
    Inode(InodeId),
    /// The names with this hash in a directory.
    Name(InodeId, NameHash),
    /// That a directory has fewer names than it had. The removal of a directory builds on it.
    FewerNames(InodeId),
    /// Which directory is below which. A move of a directory builds on it: none may be moved below
    /// itself.
    Tree,
}

/// What a change does with a [`Subject`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// It builds on it.
    Read,
    /// It builds on it, and changes it.
    Write,
    /// It changes it, and would do so whatever others have changed.
    BlindWrite,
}

impl Hash for Subject {
    /// Each change of the server's own mount is noted too, so that this must be cheap.
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Inode(ino) => state.write_u64(ino.raw()),
            Self::Name(dir, hash) => state.write_u64(dir.raw().rotate_left(32) ^ hash.0),
            Self::FewerNames(dir) => state.write_u64(!dir.raw()),
            Self::Tree => state.write_u64(0),
        }
    }
}

/// The changes that are not safe, while there are sessions of other processes.
#[derive(Debug, Default)]
pub(crate) struct UnsafeChanges {
    newest: Period,
    /// What `newest` was before: nothing may walk over so many changes under the lock of all names
    /// to forget some of them.
    older: Period,
    /// The newest batch of each session that builds on an unsafe change of another one, or that
    /// has its row.
    shared: KeyedMap<SessionId, u64>,
    /// Any session may have made the changes up to this sequence.
    unknown: u64,
}

/// The newest change of a subject.
#[derive(Debug, Clone, Copy)]
struct Newest {
    /// Its session; `None` if unsafe changes of several sessions do not build on each other.
    author: Option<SessionId>,
    /// The sequence of its batch.
    sequence: u64,
}

/// The changes of some time, which are forgotten together.
#[derive(Debug, Default)]
struct Period {
    changes: KeyedMap<Subject, Newest>,
    /// The sequence of the newest of them.
    last: u64,
}

impl Newest {
    /// Returns whether it, or one before it, is unsafe and of another session.
    fn is_of_other(self, session: SessionId, safe: u64) -> bool {
        self.author != Some(session) && self.sequence > safe
    }
}

impl UnsafeChanges {
    /// Begins to track changes; those up to this sequence were not.
    pub(crate) fn begin(&mut self, sequence: u64) {
        self.unknown = sequence;
    }

    /// The row of a session is in this batch: without it the next run does not know the session,
    /// and its client can repeat nothing.
    pub(crate) fn begin_session(&mut self, session: SessionId, sequence: u64) {
        self.shared.insert(session, sequence);
    }

    /// Ends to track changes.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    /// Notes what the batch `sequence` of a session does with this. Batches up to the sequence
    /// `safe` are safe.
    pub(crate) fn note(
        &mut self,
        session: SessionId,
        sequence: u64,
        subject: Subject,
        access: Access,
        safe: u64,
    ) {
        if access != Access::BlindWrite && self.is_of_other(session, subject, safe) {
            self.shared.insert(session, sequence);
        }
        if access == Access::Read {
            return;
        }
        if self.tracked() >= limits::UNSAFE_CHANGES {
            self.newest.changes.clear();
            self.older.changes.clear();
            self.unknown = sequence;
        }
        let before = self.newest_of(subject).filter(|_| access == Access::BlindWrite);
        let is_mixed = before.is_some_and(|before| before.is_of_other(session, safe));
        let author = (!is_mixed).then_some(session);
        self.newest.changes.insert(subject, Newest { author, sequence });
        self.newest.last = sequence;
    }

    fn newest_of(&self, subject: Subject) -> Option<&Newest> {
        let Self { newest, older, .. } = self;
        newest.changes.get(&subject).or_else(|| older.changes.get(&subject))
    }

    /// Returns how many changes take memory.
    fn tracked(&self) -> usize {
        self.newest.changes.len() + self.older.changes.len()
    }

    /// Returns whether an unsafe change of another session has changed this.
    pub(crate) fn is_of_other(&self, session: SessionId, subject: Subject, safe: u64) -> bool {
        let newest = self.newest_of(subject);
        self.unknown > safe || newest.is_some_and(|newest| newest.is_of_other(session, safe))
    }

    /// Returns whether an unsafe batch of this session builds on one of another session, or has its
    /// row.
    pub(crate) fn is_shared(&self, session: SessionId, safe: u64) -> bool {
        self.shared.get(&session).is_some_and(|sequence| *sequence > safe)
    }

    /// Forgets the older changes once all of them are safe.
    pub(crate) fn forget_safe(&mut self, safe: u64) {
        if self.older.last <= safe {
            // Its memory is used again.
            self.older.changes.clear();
            std::mem::swap(&mut self.newest, &mut self.older);
        }
        self.shared.retain(|_, sequence| *sequence > safe);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId(1);
    const TWO: SessionId = SessionId(2);
    const DIR: Subject = Subject::Inode(InodeId::from_raw(7));
    const NAME: Subject = Subject::Name(InodeId::from_raw(7), NameHash(3));

    #[test]
    fn a_session_waits_for_what_another_one_changed() {
        let mut changes = UnsafeChanges::default();
        changes.note(ONE, 1, DIR, Access::Write, 0);
        changes.note(ONE, 2, DIR, Access::Read, 0);
        assert!(!changes.is_shared(ONE, 0), "it builds on its own change");
        changes.note(TWO, 3, NAME, Access::Write, 0);
        assert!(!changes.is_shared(TWO, 0), "it builds on no change of the other");
        changes.note(TWO, 4, DIR, Access::Read, 0);
        assert!(
            changes.is_shared(TWO, 3) && !changes.is_shared(TWO, 4) && !changes.is_shared(ONE, 0)
        );
        assert!(changes.is_of_other(TWO, DIR, 0) && !changes.is_of_other(TWO, DIR, 1));
    }

    #[test]
    fn what_is_safe_is_built_on_at_once() {
        let mut changes = UnsafeChanges::default();
        changes.note(ONE, 1, DIR, Access::Write, 0);
        changes.note(TWO, 2, DIR, Access::Write, 1);
        assert!(!changes.is_shared(TWO, 1));
        changes.forget_safe(1);
        changes.note(ONE, 3, DIR, Access::Read, 1);
        assert!(changes.is_shared(ONE, 1), "the newest change is the other's");
        changes.forget_safe(3);
        assert!(changes.tracked() == 0 && changes.shared.is_empty());
    }

    /// They are found while they may be unsafe, and are never gone through one by one.
    #[test]
    fn what_is_safe_is_forgotten_all_at_once() {
        let other = |number| Subject::Inode(InodeId::from_raw(number));
        let mut changes = UnsafeChanges::default();
        (1..=9).for_each(|number| changes.note(ONE, number, other(number), Access::Write, 0));
        changes.forget_safe(0);
        changes.note(ONE, 10, DIR, Access::Write, 0);
        changes.forget_safe(8);
        assert_eq!(changes.tracked(), 10, "the last of the first ones is not safe");
        assert!(changes.is_of_other(TWO, other(9), 8) && changes.is_of_other(TWO, DIR, 8));
        changes.forget_safe(9);
        assert_eq!(changes.tracked(), 1);
        assert!(changes.is_of_other(TWO, DIR, 9) && !changes.is_of_other(TWO, other(9), 9));
        changes.forget_safe(10);
        assert_eq!(changes.tracked(), 0);
    }

    /// They build on none of each other, but what builds on all of them builds on each.
    #[test]
    fn blind_changes_of_several_sessions_are_those_of_all() {
        const FEWER: Subject = Subject::FewerNames(InodeId::from_raw(7));
        let mut changes = UnsafeChanges::default();
        changes.note(ONE, 1, FEWER, Access::BlindWrite, 0);
        assert!(!changes.is_of_other(ONE, FEWER, 0));
        changes.note(TWO, 2, FEWER, Access::BlindWrite, 0);
        changes.note(TWO, 3, FEWER, Access::BlindWrite, 1);
        assert!(!changes.is_shared(ONE, 0) && !changes.is_shared(TWO, 0));
        assert!(changes.is_of_other(ONE, FEWER, 2) && changes.is_of_other(TWO, FEWER, 2));
        changes.note(TWO, 4, FEWER, Access::Read, 2);
        assert!(changes.is_shared(TWO, 3));
        changes.note(TWO, 5, FEWER, Access::BlindWrite, 4);
        assert!(!changes.is_of_other(TWO, FEWER, 4), "the others are safe");
    }

    /// What was done before the first session may be that of any session.
    #[test]
    fn changes_that_were_not_tracked_may_be_any_session_s() {
        let mut changes = UnsafeChanges::default();
        changes.begin(5);
        changes.note(ONE, 6, NAME, Access::Write, 4);
        assert!(changes.is_shared(ONE, 4) && !changes.is_shared(ONE, 6));
        changes.note(TWO, 7, DIR, Access::Write, 5);
        assert!(!changes.is_shared(TWO, 5));
    }

    #[test]
    fn the_number_of_tracked_changes_is_bounded() {
        let mut changes = UnsafeChanges::default();
        for number in 0..limits::UNSAFE_CHANGES as u64 + 10 {
            let subject = Subject::Inode(InodeId::from_raw(number));
            changes.note(ONE, number + 1, subject, Access::Write, 0);
        }
        assert!(changes.tracked() <= limits::UNSAFE_CHANGES);
        changes.note(TWO, 1 << 40, Subject::Inode(InodeId::from_raw(1)), Access::Read, 0);
        assert!(changes.is_shared(TWO, 0), "what was forgotten is not taken for safe");
    }
}
