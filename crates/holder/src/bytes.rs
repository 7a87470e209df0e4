//! Reads of files on whose bytes the session has a lease, and the end of that lease.
//!
//! Under a lease on a node no other session changes its bytes either. Such a lease is known by the
//! attributes, which are dropped earlier: a read may change the time of access. So bytes that are
//! here count as leased until the lease ends.

use pelago_wire::{InodeId, OpenId, Request};

use crate::clock;
use crate::read_ahead::LargerRead;
use crate::state::State;

impl State {
    /// Returns the bytes of a read, if all of them were read ahead under a lease on the bytes of
    /// the file.
    pub(crate) fn bytes_ahead(&mut self, open: OpenId, offset: u64, size: u32) -> Option<&[u8]> {
        let ino = self.opens.read_ahead_inode(open)?;
        if !self.has_leased_bytes(ino) {
            return None;
        }
        self.read_ahead.take(ino, offset, usize::try_from(size).ok()?)
    }

    /// Has a read ask for more than the program wants, if it continues the one before, and the
    /// bytes of its file are under a lease. Returns the larger read.
    pub(crate) fn read_bytes_ahead(&mut self, request: &mut Request) -> Option<LargerRead> {
        let Request::Read { open, offset, size } = request else { return None };
        let ino = self.opens.read_ahead_inode(*open)?;
        if !self.has_leased_bytes(ino) {
            return None;
        }
        let wanted = usize::try_from(*size).ok()?;
        let now = clock::monotonic();
        let (number, asked) = self.read_ahead.plan(ino, *offset, wanted, now)?;
        *size = u32::try_from(asked).unwrap_or(u32::MAX);
        Some(LargerRead { ino, open: *open, offset: *offset, wanted, number })
    }

    /// Ends a larger read, and keeps the bytes of its reply, if there are any.
    pub(crate) fn end_read(&mut self, read: &LargerRead, bytes: Option<Vec<u8>>) {
        let is_leased = self.has_leased_bytes(read.ino);
        self.read_ahead.end_read(read, bytes.filter(|_| is_leased), clock::monotonic());
    }

    /// Returns whether no other session may change the bytes of a file that is read ahead.
    fn has_leased_bytes(&self, ino: InodeId) -> bool {
        let is_node_leased = || {
            self.read_ahead.has(ino)
                || (self.cached.attr(ino).is_some() && !self.changes.is_node_changing(ino))
        };
        self.dirty.leased_size(ino).is_some() || (self.reads_ahead_in_all && is_node_leased())
    }

    /// Changes bytes that were read ahead as a buffered write does.
    pub(crate) fn write_ahead(&mut self, ino: InodeId, offset: u64, bytes: &[u8]) {
        self.read_ahead.write(ino, offset, bytes);
    }

    /// Ends each lease on the bytes of a file.
    pub(crate) fn end_bytes(&mut self, ino: InodeId) {
        self.dirty.end_lease(ino);
        self.read_ahead.end(ino);
    }

    /// Ends the leases on the bytes of all files.
    pub(crate) fn end_all_bytes(&mut self) {
        self.dirty.end_all();
        self.read_ahead.end_all();
    }
}
