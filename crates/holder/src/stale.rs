//! Answers while the server is silent, from what was cached when the leases ended.
//!
//! All of these facts were under leases at that moment, so together they are the state of one
//! moment. Their answers are stale: the server may have changed since. Nothing is changed here
//! meanwhile, and the first answer of the server ends it. Only a holder below which nothing is
//! cached has stale answers: a cache below would keep them. Its user asks for them: no change may
//! build on one.
//!
//! The bytes of files are those of the copies on the disk that have the version of the facts.

use std::time::Duration;

use pelago_wire::{Buffer, Context, Error, FileKind, InodeId, Reply, Request, Then, limits};

use crate::copies::FileVersion;
use crate::holder::Holder;
use crate::state::State;

/// The shortest silence after which a server may be away: one that is idle and well sends signs of
/// life three times in a term.
pub const SILENT: Duration = Duration::from_secs(limits::TERM_SECONDS / 2);

impl Holder {
    /// Returns whether the server has been silent for so long that it may be away.
    pub(crate) fn is_silent(&self) -> bool {
        self.service.silence().is_some_and(|silence| silence >= SILENT)
    }

    /// Returns whether an answer that has come ends what was known before the silence: something of
    /// that may be used, and the answer is one of the server, which was heard then.
    pub(crate) fn ends_stale(&self) -> bool {
        let is_used = !self.state.lock().stale.is_empty()
            || self.cache.get().is_some_and(|cache| cache.may_be_stale());
        is_used && !self.is_silent()
    }

    /// Forgets what was known before the silence. Calls `then` once the cache below has dropped it:
    /// an answer of the server is passed on, and others are cached, only after it.
    pub(crate) fn end_stale(&self, then: Then) {
        self.state.lock().end_stale();
        match self.cache.get() {
            Some(cache) => cache.end_stale(then),
            None => then(),
        }
    }

    /// Answers a request that changes nothing, if the server is silent and what was cached before
    /// suffices. May read copies from the disk.
    #[must_use]
    pub fn answer_stale(
        &self,
        context: &Context,
        request: &Request,
    ) -> Option<Result<Reply, Error>> {
        if !self.may_answer_stale() {
            return None;
        }
        let mut state = self.state.lock();
        if !state.is_only_cache || state.stale.is_empty() {
            return None;
        }
        let Request::Read { open, .. } = request else {
            return state.answer_stale(context, request);
        };
        let read = state.stale_read(request)?;
        drop(state);
        if self.service.has_lost_lock(*open) {
            return None;
        }
        Some(Ok(Reply::Data(Buffer::new(self.stale_bytes(&read)?))))
    }

    /// Returns whether all leases have ended, and the server is silent.
    #[must_use]
    pub fn may_answer_stale(&self) -> bool {
        self.service.lease_left().is_zero() && self.is_silent()
    }

    /// Returns the bytes of a read, if there are copies of all of them.
    fn stale_bytes(&self, read: &StaleRead) -> Option<Vec<u8>> {
        let StaleRead { version, offset, end } = *read;
        let block_bytes = limits::FETCH_BLOCK_BYTES as u64;
        let mut bytes = Vec::new();
        let mut at = offset;
        while at < end {
            let block = at / block_bytes;
            let start = block * block_bytes;
            let length = usize::try_from(block_bytes.min(version.size - start)).ok()?;
            let copy = self.copies.get()?.block(&version, block, length)?;
            let upto = end.min(start + length as u64);
            let range = usize::try_from(at - start).ok()?..usize::try_from(upto - start).ok()?;
            bytes.extend_from_slice(copy.get(range)?);
            at = upto;
        }
        Some(bytes)
    }
}

/// A read of bytes of one version of a file.
struct StaleRead {
    version: FileVersion,
    /// The range of the bytes, which ends at the end of the file at the latest.
    offset: u64,
    end: u64,
}

impl State {
    /// Keeps what is cached when all leases end: perhaps the server is silent. Files that were
    /// being written here are left out: not all of their bytes are at the server.
    pub(crate) fn keep_stale(&mut self) {
        if self.cached.is_empty() {
            // They had ended before.
            return;
        }
        self.stale = self.cached.take().with_old_access_times();
        let written: Vec<InodeId> = [self.dirty.all(), self.opens.written()].concat();
        written.into_iter().for_each(|ino| self.stale.drop_attr(ino));
    }

    /// Forgets what was cached before: the server answers again.
    pub(crate) fn end_stale(&mut self) {
        if !self.stale.is_empty() {
            self.stale.drop_all();
        }
    }

    /// Returns the read that a request asks for, if it is through an open that only reads and the
    /// version of the file is known.
    fn stale_read(&self, request: &Request) -> Option<StaleRead> {
        let Request::Read { open, offset, size } = *request else { return None };
        let ino = self.opens.fetch_inode(open)?;
        let attr = self.stale.attr(ino)?;
        let is_readable = attr.kind == FileKind::Regular
            && !self.changes.is_node_changing(ino)
            && self.opens.failure(open).is_none()
            && size as usize <= limits::IO_BYTES;
        let offset = offset.min(attr.size);
        let end = offset.saturating_add(u64::from(size)).min(attr.size);
        is_readable.then(|| StaleRead { version: FileVersion::from(&attr), offset, end })
    }
}
