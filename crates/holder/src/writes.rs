//! Which writes are kept back, and what waits until they were sent.

use std::time::Duration;

use pelago_wire::{
    Code, Error, Granted, InodeId, OpenId, Reply, Request, Tells, Then, Touched, Touches, limits,
};

use crate::clock;
use crate::dirty::{Kept, Writer};
use crate::state::{FullWrite, State};
use crate::told::ShowsDirty;

/// Files with lost bytes that are remembered.
const LOST_FILES: usize = 16;

/// What becomes of a write.
pub(crate) enum Written {
    /// It is answered.
    Here(Reply),
    /// It waits for room.
    Full,
    /// The server is asked.
    Through,
}

impl State {
    /// Keeps the bytes of a write; `None` if it is not for a file on whose bytes the session has
    /// the lease, or must be safe when it is answered, or has failed before.
    pub(crate) fn keep_write(
        &mut self,
        caller: (u32, u32),
        request: &Request,
        bytes: &[u8],
    ) -> Option<Kept> {
        let Request::Write { open, offset, flags } = request else { return None };
        let ino = self.opens.held_inode(*open)?;
        let size = self.dirty.leased_size(ino)?;
        let offset = if flags.append { size } else { *offset };
        let end = offset.checked_add(bytes.len() as u64)?;
        if !self.keeps_writes
            || bytes.is_empty()
            || end > limits::FILE_BYTES
            || self.opens.error(*open).is_some()
        {
            return None;
        }
        let by = Writer { open: *open, caller, kill_privileges: flags.kill_privileges };
        self.opens.note_write(*open);
        let kept = self.dirty.write(ino, by, offset, bytes, clock::monotonic());
        if matches!(kept, Kept::New { .. }) {
            // What the server says of the file is old until it has the bytes.
            let touched = [Touched::Node(ino)];
            self.changes.begin(&touched);
            self.kept.drop_touched(&touched);
        }
        Some(kept)
    }

    /// A request with dirty bytes is answered. Returns what waited for that.
    pub(crate) fn dirty_answered(
        &mut self,
        (ino, number): (InodeId, u64),
        (failed, granted): (Option<Code>, Granted),
        now: Duration,
    ) -> (Vec<Then>, Vec<FullWrite>) {
        // If it may still be carried out, the attributes are not kept again.
        if !granted.may_be_done {
            self.changes.end(&[Touched::Node(ino)]);
        }
        if let Some(code) = failed {
            self.opens.note_error(ino, code);
            if self.lost_files.len() < LOST_FILES && !self.lost_files.contains(&ino) {
                self.lost_files.push(ino);
            }
        }
        (self.dirty.answered(ino, number, now), self.take_full())
    }

    pub(crate) fn take_full(&mut self) -> Vec<FullWrite> {
        std::mem::take(&mut self.full)
    }

    /// Returns the files of which the server must have all bytes before it gets a request: those
    /// that the request names or changes, or all, if it is not known what it changes.
    pub(crate) fn dirty_before(
        &self,
        request: &Request,
        (touched, is_blind): (&[Touched], bool),
    ) -> Vec<InodeId> {
        let mut all = self.dirty.all();
        if all.is_empty() || is_blind {
            return all;
        }
        let subjects = request.describe().subjects;
        let opened: Vec<InodeId> =
            subjects.each_open().filter_map(|open| self.opens.inode_of(open)).collect();
        all.retain(|ino| {
            subjects.each_inode().any(|named| named == *ino)
                || opened.contains(ino)
                || touched.contains(&Touched::Node(*ino))
        });
        all
    }

    /// Returns the dirty files, if a request may show some of them that it does not name.
    pub(crate) fn shows_dirty(&self, request: &Request) -> Option<ShowsDirty> {
        let shows = match request.tells() {
            Tells::Name(_) | Tells::Parent(_) => true,
            Tells::Names { .. } => matches!(request, Request::List { attributes: true, .. }),
            Tells::Attributes => matches!(request, Request::Find { .. }),
            Tells::Nothing
            | Tells::NewName(_)
            | Tells::NewDir(_)
            | Tells::OldName(_)
            | Tells::Target(_)
            | Tells::Xattrs(_)
            | Tells::Xattr { .. } => false,
        };
        let files = if shows { self.dirty.all() } else { Vec::new() };
        (!files.is_empty()).then(|| ShowsDirty { files, request: request.clone() })
    }

    /// Returns the files that an answer may show as they were before bytes that were dirty when the
    /// request was sent: those whose size is not known here any more.
    pub(crate) fn old_files(
        &self,
        dirty_then: &[InodeId],
        result: &mut Result<Reply, Error>,
    ) -> Vec<InodeId> {
        let is_old = |ino: &InodeId| dirty_then.contains(ino) && self.dirty.size(*ino).is_none();
        result.iter_mut().flat_map(Reply::attrs_mut).map(|attr| attr.ino).filter(is_old).collect()
    }

    /// Has the lease on the bytes of a file end that a request changes in another way than by a
    /// write that is kept: its size is not known here afterwards.
    pub(crate) fn end_changed_bytes(&mut self, touches: Touches<'_>) {
        let ino = match touches {
            Touches::Contents(ino) => Some(ino),
            Touches::Bytes(open) | Touches::Release(open) => self.opens.written_inode(open),
            Touches::Nothing
            | Touches::Node(_)
            | Touches::NewName { .. }
            | Touches::OldName(_)
            | Touches::Move { .. } => None,
        };
        if let Some(ino) = ino {
            self.dirty.end_lease(ino);
        }
    }

    /// Returns the error of bytes that an open has written, to a request that reports it. A flush
    /// does not count as the report: a process that forks and executes another program flushes what
    /// that does not inherit, and looks at no result.
    pub(crate) fn write_error(&mut self, request: &Request) -> Option<Code> {
        match request {
            Request::Write { open, .. } | Request::Fsync { open, .. } => {
                self.opens.take_error(*open)
            }
            Request::Flush { open, .. } => self.opens.error(*open),
            _ => None,
        }
    }

    /// Has the commit of a file go with the bytes that are dirty. Returns the file if it does.
    pub(crate) fn commit_with_bytes(&mut self, request: &Request) -> Option<(InodeId, OpenId)> {
        let Request::Flush { open, owner: None } = request else { return None };
        let ino = self.opens.inode_of(*open)?;
        self.dirty.commit(ino, *open).then_some((ino, *open))
    }
}
