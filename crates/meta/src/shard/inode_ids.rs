//! Numbers for new inodes: never one twice, not even over a crash of the machine.
//!
//! Numbers come from blocks of [`ID_BLOCK`]. That a block is taken is written and made safe before
//! its first number is used: at the first create of a life that costs one wait for the disk, later
//! blocks are written when the one before is half used, and are safe long before they are needed.

use pelago_wire::limits::ID_BLOCK;
use pelago_wire::{Code, Error, InodeId};

/// The numbers of one shard.
#[derive(Debug)]
pub struct Ids {
    site: u16,
    shard: u16,
    next: u64,
    /// Numbers below are this life's to use.
    ready: u64,
    /// Numbers below are written as used; safe once the sequence beside it is.
    written: u64,
    written_at: u64,
}

/// What must happen before [`Ids::take`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// Write this mark, in any batch from now on.
    Write(u64),
    /// Write this mark in a batch and make it safe before the number is taken.
    WriteAndWait(u64),
    /// Make the batch with this sequence safe before the number is taken.
    Wait(u64),
}

impl Ids {
    /// The numbers from `next` on, none of them reserved yet.
    #[must_use]
    pub(crate) fn new(site: u16, shard: u16, next: u64) -> Self {
        let next = next.max(InodeId::ROOT.counter() + 1);
        Self { site, shard, next, ready: next, written: next, written_at: 0 }
    }

    /// What must happen before the next number can be taken, where everything to sequence `safe` is
    /// safe.
    #[must_use]
    pub(crate) fn need(&self, safe: u64) -> Need {
        if self.next < self.ready {
            let half_used = self.ready - self.next < ID_BLOCK / 2;
            if half_used && self.written == self.ready {
                return Need::Write(self.written + ID_BLOCK);
            }
            return Need::Nothing;
        }
        if self.written == self.ready {
            return Need::WriteAndWait(self.written + ID_BLOCK);
        }
        if self.written_at > safe { Need::Wait(self.written_at) } else { Need::Nothing }
    }

    /// The mark `to` was written by the batch with this sequence.
    pub(crate) fn wrote(&mut self, to: u64, sequence: u64) {
        self.written = to;
        self.written_at = sequence;
    }

    /// The next number, after everything that [`Ids::need`] named has happened.
    ///
    /// # Errors
    /// [`Code::NoSpace`] when a shard has used all of its 2³⁶ numbers.
    pub(crate) fn take(&mut self) -> Result<InodeId, Error> {
        if self.next == self.ready {
            self.ready = self.written;
        }
        let id = InodeId::new(self.site, self.shard, self.next).ok_or(Code::NoSpace)?;
        self.next += 1;
        Ok(id)
    }

    /// The table was opened again and may have lost the last mark. Numbers that are in use are not
    /// in doubt: their mark was safe before the first of them was taken.
    pub(crate) fn doubt(&mut self) {
        self.written = self.ready;
    }

    /// The mark [`Ids::next`] was written: the next number needs a mark of its own.
    pub(crate) fn gave_back(&mut self) {
        (self.ready, self.written) = (self.next, self.next);
    }

    /// The number that the next life begins with, where this one ends cleanly.
    #[must_use]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_safe_before_its_first_number_is_used() {
        let mut ids = Ids::new(0, 0, 0);
        assert_eq!(ids.need(0), Need::WriteAndWait(2 + ID_BLOCK));
        ids.wrote(2 + ID_BLOCK, 1);
        assert_eq!(ids.need(0), Need::Wait(1));
        assert_eq!(ids.need(1), Need::Nothing);
        assert_eq!(ids.take().unwrap().raw(), 2);
        for _ in 0..ID_BLOCK / 2 {
            ids.take().unwrap();
        }
        assert_eq!(ids.need(1), Need::Write(2 + 2 * ID_BLOCK));
        ids.wrote(2 + 2 * ID_BLOCK, 9);
        while ids.need(1) == Need::Nothing {
            ids.take().unwrap();
        }
        assert_eq!((ids.need(1), ids.next()), (Need::Wait(9), 2 + ID_BLOCK));
        assert_eq!(ids.need(9), Need::Nothing);
        assert_eq!(ids.take().unwrap().raw(), 2 + ID_BLOCK);
    }

    /// Neither a mark that may be lost nor one that was given back lets a number be used.
    #[test]
    fn a_mark_in_doubt_is_written_again() {
        let mut ids = Ids::new(0, 0, 0);
        ids.wrote(2 + ID_BLOCK, 1);
        ids.doubt();
        assert_eq!(ids.need(1), Need::WriteAndWait(2 + ID_BLOCK));
        ids.wrote(2 + ID_BLOCK, 2);
        ids.take().unwrap();
        ids.doubt();
        assert_eq!(ids.need(2), Need::Nothing);
        ids.gave_back();
        assert_eq!((ids.next(), ids.need(2)), (3, Need::WriteAndWait(3 + ID_BLOCK)));
    }
}
