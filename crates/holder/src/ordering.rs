//! The order between requests and dirty bytes: which requests wait until the server has them, which
//! end the lease on them, and which report that they were lost.

use pelago_wire::{Code, Error, InodeId, OpenId, Reply, Request, Tells, Touched, Touches};

use crate::reply_facts::{SentRequest, ShowsDirty};
use crate::state::State;

impl State {
    /// Returns the files of which the server must have all bytes before it gets a request: those
    /// that the request names or changes; all dirty files if it removes an unknown one.
    pub(crate) fn dirty_before(&self, request: &Request, sent: &SentRequest) -> Vec<InodeId> {
        let mut all = self.dirty.all();
        if all.is_empty() || sent.removes_unknown {
            return all;
        }
        let subjects = request.describe().subjects;
        let opened: Vec<InodeId> =
            subjects.each_open().filter_map(|open| self.opens.inode_of(open)).collect();
        all.retain(|ino| {
            subjects.each_inode().any(|named| named == *ino)
                || opened.contains(ino)
                || sent.touched.contains(&Touched::Node(*ino))
        });
        all
    }

    /// Returns the dirty files, if the reply to a request may show some that the request does not
    /// name.
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

    /// Returns the files that a reply may show as they were before bytes that were dirty when its
    /// request was sent: those whose size is not known here any more.
    pub(crate) fn old_files(
        &self,
        dirty_then: &[InodeId],
        result: &mut Result<Reply, Error>,
    ) -> Vec<InodeId> {
        let is_old = |ino: &InodeId| dirty_then.contains(ino) && self.dirty.size(*ino).is_none();
        result.iter_mut().flat_map(Reply::attrs_mut).map(|attr| attr.ino).filter(is_old).collect()
    }

    /// Ends the lease on the bytes of a file that a request changes otherwise than by a buffered
    /// write: the size is not known here after it.
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
            self.end_bytes(ino);
        }
    }

    /// Returns the error of bytes that an open has written, for a request that reports it. POSIX
    /// names these requests: `write`, `fsync`, and `close`, which is a flush. A flush does not
    /// count as the report: a process that forks and executes another program flushes what that
    /// does not inherit, and looks at no result.
    pub(crate) fn write_error(&mut self, request: &Request) -> Option<Code> {
        match request {
            Request::Write { open, .. }
            | Request::Fsync { open, .. }
            | Request::FsyncAt { open, .. } => self.opens.take_error(*open),
            Request::Flush { open, .. } => self.opens.error(*open),
            _ => None,
        }
    }

    /// Has the commit of a file go with its dirty bytes, if one request carries all of them.
    /// Returns the file and the open if so.
    pub(crate) fn commit_with_bytes(&mut self, request: &Request) -> Option<(InodeId, OpenId)> {
        let Request::Flush { open, owner: None } = request else { return None };
        let ino = self.opens.inode_of(*open)?;
        self.dirty.commit(ino, *open).then_some((ino, *open))
    }
}
