//! The sessions that made the changes which are done and not safe (commit on sharing).
//!
//! After a loss of power a client repeats its lost changes; that works only if the changes on which
//! they build are there. So if a change of one session builds on an unsafe change of another one,
//! its reply waits until that is safe: the other client may not come back. The server's own mount
//! counts as a session that never comes back. Lustre calls this commit on sharing.

use std::hash::{Hash, Hasher};

use pelago_wire::id_map::KeyedMap;
use pelago_wire::{InodeId, NameHash, SessionId, limits};

/// A thing that a change modifies, or builds on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// An inode: it was created or removed, or its names or attributes changed.
    Inode(InodeId),
    /// The names with this hash in a directory.
    Name(InodeId, NameHash),
    /// The removal of names from a directory. The removal of the directory builds on it.
    FewerNames(InodeId),
    /// The tree of all directories. A move of a directory builds on it: no directory may be moved
    /// below itself.
    Tree,
}

/// The relation of a change to a [`Subject`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// The change builds on the subject.
    Read,
    /// The change builds on the subject, and modifies it.
    Write,
    /// The change modifies the subject, whatever others have changed.
    BlindWrite,
}

impl Hash for Subject {
    /// Hashes cheaply: each change of the server's own mount is recorded too.
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Inode(ino) => state.write_u64(ino.raw()),
            Self::Name(dir, hash) => state.write_u64(dir.raw().rotate_left(32) ^ hash.0),
            Self::FewerNames(dir) => state.write_u64(!dir.raw()),
            Self::Tree => state.write_u64(0),
        }
    }
}

/// The changes that are not safe. Recorded only while there are sessions of other processes.
#[derive(Debug, Default)]
pub(crate) struct UnsafeChanges {
    newest: Period,
    /// The period before `newest`. Safe changes are forgotten by the period: a walk over single
    /// changes would take too long under the lock of all names.
    older: Period,
    /// For each session the newest batch that builds on an unsafe change of another session, or
    /// that has the row of the session.
    shared: KeyedMap<SessionId, u64>,
    /// The changes up to this sequence may be those of any session.
    unknown: u64,
}

/// The newest change of a subject.
#[derive(Debug, Clone, Copy)]
struct Newest {
    /// Its session; `None` if several sessions have unsafe changes of the subject that do not build
    /// on each other.
    author: Option<SessionId>,
    /// The sequence of its batch.
    sequence: u64,
}

/// The changes of a period, which are forgotten together.
#[derive(Debug, Default)]
struct Period {
    changes: KeyedMap<Subject, Newest>,
    /// The sequence of the newest change.
    last: u64,
}

impl Newest {
    /// Returns whether this change, or one before it, is unsafe and of another session.
    fn is_of_other(self, session: SessionId, safe: u64) -> bool {
        self.author != Some(session) && self.sequence > safe
    }
}

impl UnsafeChanges {
    /// Begins to record changes. Those up to this sequence were not recorded.
    pub(crate) fn begin(&mut self, sequence: u64) {
        self.unknown = sequence;
    }

    /// Records that the row of a session is in this batch. Without the row the next run does not
    /// know the session, and its client can repeat nothing.
    pub(crate) fn begin_session(&mut self, session: SessionId, sequence: u64) {
        self.shared.insert(session, sequence);
    }

    /// Ends the recording of changes.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    /// Records the access of the batch `sequence` of a session to a subject. Batches up to the
    /// sequence `safe` are safe.
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

    /// Returns the number of recorded changes.
    fn tracked(&self) -> usize {
        self.newest.changes.len() + self.older.changes.len()
    }

    /// Returns whether an unsafe change of another session has modified this subject.
    pub(crate) fn is_of_other(&self, session: SessionId, subject: Subject, safe: u64) -> bool {
        let newest = self.newest_of(subject);
        self.unknown > safe || newest.is_some_and(|newest| newest.is_of_other(session, safe))
    }

    /// Returns whether an unsafe batch of this session builds on a change of another session, or
    /// has the row of this session.
    pub(crate) fn is_shared(&self, session: SessionId, safe: u64) -> bool {
        self.shared.get(&session).is_some_and(|sequence| *sequence > safe)
    }

    /// Forgets the older period once all its changes are safe.
    pub(crate) fn forget_safe(&mut self, safe: u64) {
        if self.older.last <= safe {
            // The memory of the map is used again.
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
