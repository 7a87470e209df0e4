//! Leases on the bytes of files: one session writes, and no other one reads or writes.
//!
//! Such a lease is recalled with the node. The client sends its buffered writes before it answers
//! the recall. If the lease ends otherwise, a change waits for the requests under it that still
//! run, so that they do not overwrite later writes of others.

use pelago_wire::{InodeId, LeaseMoment, SessionId};

use super::grantor::Grantor;
use super::writer::Writer;
use super::{ChangeId, Leased};

impl Grantor {
    /// Grants the lease on the bytes of a file that the session has opened for writing, and whose
    /// attributes were read after `since`, unless others have leases on the file or change it, or
    /// there are too many leases. The caller makes sure that no other session has it open. Returns
    /// whether it is granted.
    pub fn grant_bytes(&mut self, session: SessionId, ino: InodeId, since: LeaseMoment) -> bool {
        let on = Leased::Node(ino);
        if self.recency.others_changed(on, session, since)
            || !self.has_settled_rights(session, since)
        {
            return false;
        }
        let is_full = self.is_full();
        let subject = self.subjects.entry(on).or_default();
        let is_own = |other: &SessionId| *other == session;
        let is_alone = subject.authors.iter().all(is_own)
            && subject.holders.iter().all(is_own)
            && subject.recalls.is_empty();
        let is_granted = match &subject.writer {
            Some(writer) => {
                writer.session == session && !writer.is_recalled && !writer.is_over && is_alone
            }
            None if is_alone && !is_full => {
                subject.writer = Some(Writer::new(session));
                self.writers += 1;
                self.sessions.entry(session).or_default().writes.insert(ino);
                true
            }
            None => false,
        };
        self.forget_empty(on);
        is_granted
    }

    /// Returns whether another session has the lease on the bytes of a file.
    #[must_use]
    pub fn is_written_by_other(&self, session: SessionId, ino: InodeId) -> bool {
        let subject = self.subjects.get(&Leased::Node(ino));
        let writer = subject.and_then(|subject| subject.writer.as_ref());
        writer.is_some_and(|writer| writer.session != session)
    }

    /// Returns whether a session has the lease on the bytes of a file.
    #[must_use]
    pub fn has_writes(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|holder| !holder.writes.is_empty())
    }

    /// Returns how many files there are on whose bytes a session has the lease.
    #[must_use]
    pub const fn writers(&self) -> usize {
        self.writers
    }

    /// Begins a buffered write of a session. Returns whether the session has the lease; then
    /// [`Grantor::end_write`] follows.
    pub fn begin_write(&mut self, session: SessionId, ino: InodeId) -> bool {
        let writer = self.writer_mut(session, ino).filter(|writer| !writer.is_over);
        writer.map(|writer| writer.running += 1).is_some()
    }

    /// Ends a buffered write. Returns the changes that wait no longer.
    pub fn end_write(&mut self, session: SessionId, ino: InodeId) -> Vec<ChangeId> {
        let Some(writer) = self.writer_mut(session, ino) else { return Vec::new() };
        writer.running -= 1;
        if writer.running > 0 || !writer.is_over {
            return Vec::new();
        }
        let waiting = std::mem::take(&mut writer.waiting);
        self.remove_writer(ino);
        self.wait_less(&waiting)
    }

    /// Ends the lease of a session that has closed the file.
    pub fn end_bytes(&mut self, session: SessionId, ino: InodeId) {
        if let Some(holder) = self.sessions.get_mut(&session) {
            holder.writes.remove(&ino);
        }
        self.end_writer(session, ino);
    }

    /// Ends the lease of a session on the bytes of a file, once no request under it runs.
    pub(super) fn end_writer(&mut self, session: SessionId, ino: InodeId) {
        let Some(writer) = self.writer_mut(session, ino) else { return };
        match writer.running {
            0 => self.remove_writer(ino),
            _ => writer.is_over = true,
        }
    }

    /// Handles the end of a recall of a node. If the lease on its bytes was recalled, it ends, too,
    /// and these changes wait for the requests under it that run.
    pub(super) fn end_recalled_writer(
        &mut self,
        session: SessionId,
        on: Leased,
        changes: &[ChangeId],
    ) {
        let Leased::Node(ino) = on else { return };
        let Some(writer) = self.writer_mut(session, ino).filter(|it| it.is_recalled) else {
            return;
        };
        if writer.running > 0 {
            writer.is_over = true;
            writer.waiting.extend(changes);
            for change in changes {
                if let Some(change) = self.changes.get_mut(change) {
                    change.waits += 1;
                }
            }
        }
        self.end_bytes(session, ino);
    }

    fn writer_mut(&mut self, session: SessionId, ino: InodeId) -> Option<&mut Writer> {
        let subject = self.subjects.get_mut(&Leased::Node(ino))?;
        subject.writer.as_mut().filter(|writer| writer.session == session)
    }

    fn remove_writer(&mut self, ino: InodeId) {
        let on = Leased::Node(ino);
        let writer = self.subjects.get_mut(&on).and_then(|subject| subject.writer.take());
        self.writers -= usize::from(writer.is_some());
        self.forget_empty(on);
    }
}
