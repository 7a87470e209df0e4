//! Reads of files on whose bytes the session has the lease, and the end of that lease.

use pelago_wire::{Error, InodeId, OpenId, Reply, Request, WriteEra};

use crate::clock;
use crate::read_ahead::LargerRead;
use crate::state::State;

impl State {
    /// Returns the bytes of a read, if all of them were read ahead under the lease on the bytes of
    /// the file.
    pub(crate) fn bytes_ahead(&mut self, open: OpenId, offset: u64, size: u32) -> Option<&[u8]> {
        let ino = self.opens.read_ahead_inode(open)?;
        self.dirty.leased_size(ino)?;
        self.read_ahead.take(ino, offset, usize::try_from(size).ok()?)
    }

    /// Has a read ask for more than the program wants, if it continues the one before, and its file
    /// is under the lease on its bytes. Returns the larger read.
    pub(crate) fn read_bytes_ahead(&mut self, request: &mut Request) -> Option<LargerRead> {
        let Request::Read { open, offset, size } = request else { return None };
        let ino = self.opens.read_ahead_inode(*open)?;
        self.dirty.leased_size(ino)?;
        let wanted = usize::try_from(*size).ok()?;
        let now = clock::monotonic();
        let (number, asked) = self.read_ahead.plan(ino, *offset, wanted, now)?;
        *size = u32::try_from(asked).unwrap_or(u32::MAX);
        Some(LargerRead { ino, open: *open, offset: *offset, wanted, number })
    }

    /// Ends a larger read, and keeps the bytes of its reply, if there are any.
    pub(crate) fn end_read(&mut self, read: &LargerRead, bytes: Option<Vec<u8>>) {
        let is_leased = self.dirty.leased_size(read.ino).is_some();
        self.read_ahead.end_read(read, bytes.filter(|_| is_leased), clock::monotonic());
    }

    /// Changes bytes that were read ahead as a buffered write does.
    pub(crate) fn write_ahead(&mut self, ino: InodeId, offset: u64, bytes: &[u8]) {
        self.fetched.end(ino);
        self.read_ahead.write(ino, offset, bytes);
    }

    /// Removes an open that ends.
    pub(crate) fn remove_open(&mut self, open: OpenId) {
        if let Some(ino) = self.opens.inode_of(open) {
            self.fetched.close(ino, open);
        }
        self.opens.remove(open);
    }

    /// Returns the file whose size a request sets, and the era of the lease on its bytes, if the
    /// server has all bytes of it: the server does not end the lease of the author of a change.
    pub(crate) fn lease_to_cut(&self, request: &Request) -> Option<(InodeId, WriteEra)> {
        let Request::SetAttr { node, set, .. } = request else { return None };
        set.size?;
        self.dirty.clean_lease(node.ino).map(|era| (node.ino, era))
    }

    /// Goes on with the lease on the bytes of a file that has another size now. Does nothing if it
    /// was recalled meanwhile, or if the file may have been changed otherwise.
    pub(crate) fn lease_again(&mut self, ino: InodeId, result: &Result<Reply, Error>) {
        if let (Some(era), Ok(Reply::Attr(attr))) = (self.cut.remove(&ino), result) {
            self.dirty.lease(ino, era, attr.size);
        }
    }

    /// Ends each lease on the bytes of a file.
    pub(crate) fn end_bytes(&mut self, ino: InodeId) {
        self.dirty.end_lease(ino);
        self.cut.remove(&ino);
        self.read_ahead.end(ino);
        self.fetched.end(ino);
    }

    /// Ends the leases on the bytes of all files.
    pub(crate) fn end_all_bytes(&mut self) {
        self.dirty.end_all();
        self.cut.clear();
        self.read_ahead.end_all();
        self.fetched.end_all();
    }
}
