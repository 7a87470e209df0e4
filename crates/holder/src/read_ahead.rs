//! Bytes that are read ahead, for opens that bypass the pages of the kernel.
//!
//! An open that writes bypasses those pages, so that each read of a program comes here. While the
//! session has the lease on the bytes of a file, no other session changes them. Then a read that
//! continues the one before asks for more than the program wants, and the reads after it are
//! answered from the rest. Own writes change the rest too; the end of the lease drops it.

use pelago_wire::{InodeId, limits};

/// Files that are read ahead at a time, with [`limits::IO_BYTES`] each at most.
const FILES: usize = limits::READ_AHEAD_FILES;
/// The first read that continues another asks for so many times its bytes.
const FIRST: usize = 4;

/// The bytes of all files that were read ahead.
#[derive(Default)]
pub(crate) struct ReadAhead {
    /// The file that was read last is the last one.
    windows: Vec<Window>,
    last_number: u64,
}

/// The bytes of one file that were read ahead, and the course of its reads.
struct Window {
    ino: InodeId,
    /// The number of the last read that was sent, or of the last write. The reply to an older read
    /// may be older than that write.
    number: u64,
    /// The end of the last read of a program.
    next: u64,
    /// The bytes that the last read has asked for.
    asked: usize,
    /// The first byte that is here.
    offset: u64,
    bytes: Vec<u8>,
}

/// A read that asks for more than the program wants.
#[derive(Clone, Copy)]
pub(crate) struct LargerRead {
    pub(crate) ino: InodeId,
    pub(crate) offset: u64,
    /// The bytes that the program wants.
    pub(crate) most: usize,
    pub(crate) number: u64,
}

impl Window {
    /// Returns the bytes of a range, if all of them are here.
    fn range(&self, offset: u64, size: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..start.checked_add(size)?)
    }
}

impl ReadAhead {
    /// Returns the bytes of a read, if all of them are here.
    pub(crate) fn take(&mut self, ino: InodeId, offset: u64, size: usize) -> Option<&[u8]> {
        let window = self.windows.iter_mut().find(|window| window.ino == ino)?;
        window.range(offset, size)?;
        window.next = offset + size as u64;
        window.range(offset, size)
    }

    /// Records a read that is about to be sent. Returns a number for it and the bytes that it shall
    /// ask for, if these are more than the program wants.
    pub(crate) fn plan(&mut self, ino: InodeId, offset: u64, size: usize) -> Option<(u64, usize)> {
        self.last_number += 1;
        let number = self.last_number;
        let known = self.windows.iter().position(|window| window.ino == ino);
        let mut window = match known {
            Some(at) => self.windows.remove(at),
            None => {
                if self.windows.len() == FILES {
                    self.windows.remove(0);
                }
                Window { ino, number, next: u64::MAX, asked: 0, offset: 0, bytes: Vec::new() }
            }
        };
        let continues = window.next == offset;
        window.asked = match continues {
            true => (2 * window.asked).max(FIRST * size).min(limits::IO_BYTES),
            false => 0,
        };
        window.number = number;
        window.next = offset.saturating_add(size as u64);
        window.bytes = Vec::new();
        let asked = window.asked;
        self.windows.push(window);
        (asked > size).then_some((number, asked))
    }

    /// Keeps the bytes of a reply, if nothing was written to the file since its request was sent,
    /// and no other read was sent.
    pub(crate) fn keep(&mut self, read: &LargerRead, bytes: Vec<u8>) {
        let is_its = |window: &&mut Window| window.ino == read.ino && window.number == read.number;
        if let Some(window) = self.windows.iter_mut().find(is_its) {
            window.offset = read.offset;
            window.bytes = bytes;
        }
    }

    /// Changes the bytes that are here as a write of the program does.
    pub(crate) fn write(&mut self, ino: InodeId, offset: u64, bytes: &[u8]) {
        let Some(window) = self.windows.iter_mut().find(|window| window.ino == ino) else {
            return;
        };
        self.last_number += 1;
        window.number = self.last_number;
        let window_end = window.offset + window.bytes.len() as u64;
        let start = offset.max(window.offset);
        let end = offset.saturating_add(bytes.len() as u64).min(window_end);
        if start >= end {
            return;
        }
        let at = |from: u64| usize::try_from(start - from).unwrap_or(usize::MAX);
        let length = usize::try_from(end - start).unwrap_or_default();
        let new = &bytes[at(offset)..at(offset) + length];
        let old = at(window.offset);
        window.bytes[old..old + length].copy_from_slice(new);
    }

    pub(crate) fn end(&mut self, ino: InodeId) {
        self.windows.retain(|window| window.ino != ino);
    }

    pub(crate) fn end_all(&mut self) {
        self.windows.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: InodeId = InodeId::from_raw(1);

    /// Asks for a read as a server does that has the bytes 0, 1, 2 and so on. Returns the bytes
    /// that the server is asked for, 0 if none.
    fn read(ahead: &mut ReadAhead, ino: InodeId, offset: u64, size: usize) -> usize {
        if ahead.take(ino, offset, size).is_some() {
            return 0;
        }
        let Some((number, asked)) = ahead.plan(ino, offset, size) else { return size };
        let bytes = (offset..).take(asked).map(|byte| byte as u8).collect();
        ahead.keep(&LargerRead { ino, offset, most: size, number }, bytes);
        asked
    }

    #[test]
    fn reads_that_continue_each_other_ask_for_more_and_more() {
        let mut ahead = ReadAhead::default();
        let asked: Vec<usize> = (0..512).map(|at| read(&mut ahead, ONE, at * 8192, 8192)).collect();
        assert_eq!(asked[..6], [8192, 32768, 0, 0, 0, 65536]);
        assert_eq!(asked.iter().max(), Some(&limits::IO_BYTES));
        assert_eq!(asked.iter().filter(|bytes| **bytes > 0).count(), 10);
        let at = 511 * 8192;
        assert_eq!(ahead.take(ONE, at, 4), Some(&[at as u8, at as u8 + 1, 2, 3][..]));
    }

    #[test]
    fn reads_at_random_ask_for_what_is_wanted() {
        let mut ahead = ReadAhead::default();
        for offset in [0, 40_960, 8192, 81_920, 0] {
            assert_eq!(read(&mut ahead, ONE, offset, 8192), 8192, "{offset}");
        }
    }

    #[test]
    fn own_writes_are_in_the_bytes_that_are_here() {
        let mut ahead = ReadAhead::default();
        read(&mut ahead, ONE, 0, 4);
        read(&mut ahead, ONE, 4, 4);
        // The bytes 4 to 20 are here.
        ahead.write(ONE, 0, b"12345");
        ahead.write(ONE, 10, b"ab");
        ahead.write(ONE, 19, b"zzz");
        ahead.write(ONE, 20, b"beyond");
        ahead.write(ONE, u64::MAX, b"");
        let expected = [b'5', 5, 6, 7, 8, 9, b'a', b'b', 12, 13, 14, 15, 16, 17, 18, b'z'];
        assert_eq!(ahead.take(ONE, 4, 16), Some(&expected[..]));
        assert_eq!(ahead.take(ONE, 4, 17), None);
        assert_eq!(ahead.take(ONE, 3, 2), None);
        assert_eq!(ahead.take(ONE, u64::MAX, 1), None);
    }

    /// The reply may be older than the write.
    #[test]
    fn a_reply_to_a_read_from_before_a_write_is_not_kept() {
        let mut ahead = ReadAhead::default();
        read(&mut ahead, ONE, 0, 4);
        let (number, asked) = ahead.plan(ONE, 4, 4).unwrap();
        assert_eq!(asked, 16);
        ahead.write(ONE, 100, b"elsewhere");
        let larger = LargerRead { ino: ONE, offset: 4, most: 4, number };
        ahead.keep(&larger, vec![0; 16]);
        assert_eq!(ahead.take(ONE, 8, 4), None);
        // Nor one from before the end of the lease.
        ahead.end(ONE);
        ahead.plan(ONE, 0, 4);
        ahead.keep(&larger, vec![0; 16]);
        assert_eq!(ahead.take(ONE, 8, 4), None);
    }

    #[test]
    fn the_files_that_were_read_last_are_kept() {
        let mut ahead = ReadAhead::default();
        let ino = |number: usize| InodeId::from_raw(1 + number as u64);
        for number in 0..=FILES {
            read(&mut ahead, ino(number), 0, 4);
            read(&mut ahead, ino(number), 4, 4);
        }
        assert_eq!(ahead.windows.len(), FILES);
        assert!(ahead.take(ino(0), 8, 4).is_none());
        assert!(ahead.take(ino(1), 8, 4).is_some());
        ahead.end_all();
        assert!(ahead.take(ino(1), 8, 4).is_none());
    }
}
