//! Bytes that are read ahead, for opens that bypass the pages of the kernel.
//!
//! An open that writes bypasses those pages, so that each read of a program comes here. While the
//! session has the lease on the bytes of a file, no other session changes them. Then a read that
//! continues the one before asks for more than the program wants, and the reads after it are
//! answered from the rest. Own writes change the rest too; the end of the lease drops it.

use std::time::Duration;

use pelago_wire::{InodeId, OpenId, limits};

/// Files that are read ahead at a time, with [`limits::IO_BYTES`] each at most.
const FILES: usize = limits::READ_AHEAD_FILES;
/// The first read that continues another asks for so many times its bytes.
const FIRST: usize = 4;
/// A larger read that takes longer is followed by one of half its bytes: recalls and the answers
/// that lengthen leases come after its bytes.
const SLOW: Duration = Duration::from_millis(300);

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
    /// The end of the last read of a program.
    next: u64,
    /// The bytes that the last larger read has asked for; 0 if reads do not continue each other.
    asked: usize,
    /// The most bytes that a read may ask for.
    most: usize,
    /// The larger read that is under way.
    under_way: Option<UnderWay>,
    /// The first byte that is here.
    offset: u64,
    bytes: Vec<u8>,
}

/// A larger read that is not answered.
#[derive(Clone, Copy)]
struct UnderWay {
    number: u64,
    since: Duration,
    /// The program has written to the file since: the reply may be older.
    is_old: bool,
}

/// A read that asks for more than the program wants.
#[derive(Clone, Copy)]
pub(crate) struct LargerRead {
    pub(crate) ino: InodeId,
    pub(crate) open: OpenId,
    pub(crate) offset: u64,
    /// The bytes that the program wants.
    pub(crate) wanted: usize,
    pub(crate) number: u64,
}

impl Window {
    const fn new(ino: InodeId) -> Self {
        let most = limits::IO_BYTES;
        let bytes = Vec::new();
        Self { ino, next: u64::MAX, asked: 0, most, under_way: None, offset: 0, bytes }
    }

    /// Returns the bytes of a range, if all of them are here.
    fn range(&self, offset: u64, size: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..start.checked_add(size)?)
    }
}

impl ReadAhead {
    /// Returns the bytes of a read, if all of them are here.
    pub(crate) fn take(&mut self, ino: InodeId, offset: u64, size: usize) -> Option<&[u8]> {
        let at = self.windows.iter().position(|window| window.ino == ino)?;
        self.windows[at].range(offset, size)?;
        self.windows[at].next = offset.saturating_add(size as u64);
        // It is the last one from now on.
        self.windows[at..].rotate_left(1);
        self.windows.last()?.range(offset, size)
    }

    /// Records a read that is about to be sent. Returns a number for it and the bytes that it shall
    /// ask for, if these are more than the program wants.
    ///
    /// While a larger read of the file is under way, no other one is sent: of several only one
    /// would be kept.
    pub(crate) fn plan(
        &mut self,
        ino: InodeId,
        offset: u64,
        size: usize,
        now: Duration,
    ) -> Option<(u64, usize)> {
        let known = self.windows.iter().position(|window| window.ino == ino);
        let mut window = match known {
            Some(at) => self.windows.remove(at),
            None => {
                if self.windows.len() == FILES {
                    self.windows.remove(0);
                }
                Window::new(ino)
            }
        };
        let continues = window.next == offset;
        window.next = offset.saturating_add(size as u64);
        if window.under_way.is_none() {
            window.asked = match continues {
                true => (2 * window.asked).max(FIRST * size).min(window.most),
                false => 0,
            };
        }
        let larger = (window.under_way.is_none() && window.asked > size).then(|| {
            self.last_number += 1;
            window.bytes = Vec::new();
            let number = self.last_number;
            window.under_way = Some(UnderWay { number, since: now, is_old: false });
            (number, window.asked)
        });
        self.windows.push(window);
        larger
    }

    /// Ends a larger read, with the bytes of its reply if there are any. They are kept if the
    /// program has not written to the file since the request was sent.
    pub(crate) fn end_read(&mut self, read: &LargerRead, bytes: Option<Vec<u8>>, now: Duration) {
        let is_its = |window: &&mut Window| {
            let number = window.under_way.map(|under_way| under_way.number);
            window.ino == read.ino && number == Some(read.number)
        };
        let Some(window) = self.windows.iter_mut().find(is_its) else { return };
        let Some(UnderWay { since, is_old, .. }) = window.under_way.take() else { return };
        if now.saturating_sub(since) > SLOW {
            window.most = (window.asked / 2).max(limits::BLOCK_BYTES);
        }
        match bytes.filter(|_| !is_old) {
            Some(bytes) => {
                window.offset = read.offset;
                window.bytes = bytes;
            }
            None => window.asked = 0,
        }
    }

    /// Changes the bytes that are here as a write of the program does.
    pub(crate) fn write(&mut self, ino: InodeId, offset: u64, bytes: &[u8]) {
        let Some(window) = self.windows.iter_mut().find(|window| window.ino == ino) else {
            return;
        };
        window.under_way.iter_mut().for_each(|under_way| under_way.is_old = true);
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
    const NOW: Duration = Duration::ZERO;

    fn larger(ino: InodeId, offset: u64, number: u64) -> LargerRead {
        LargerRead { ino, open: OpenId(1), offset, wanted: 4, number }
    }

    /// Asks for a read as a server does that has the bytes 0, 1, 2 and so on. Returns the bytes
    /// that the server is asked for, 0 if none.
    fn read(ahead: &mut ReadAhead, ino: InodeId, offset: u64, size: usize) -> usize {
        if ahead.take(ino, offset, size).is_some() {
            return 0;
        }
        let Some((number, asked)) = ahead.plan(ino, offset, size, NOW) else { return size };
        let bytes = (offset..).take(asked).map(|byte| byte as u8).collect();
        ahead.end_read(&larger(ino, offset, number), Some(bytes), NOW);
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

    /// A database reads the head of its file between the others.
    #[test]
    fn a_read_elsewhere_leaves_the_bytes_that_are_here() {
        let mut ahead = ReadAhead::default();
        let asked = [100, 104, 0, 108].map(|offset| read(&mut ahead, ONE, offset, 4));
        assert_eq!(asked, [4, 16, 4, 0]);
    }

    #[test]
    fn reads_that_are_under_way_together_ask_for_no_more_than_one_larger_read() {
        let mut ahead = ReadAhead::default();
        assert_eq!(ahead.plan(ONE, 0, 8192, NOW), None);
        let (number, asked) = ahead.plan(ONE, 8192, 8192, NOW).unwrap();
        assert_eq!(asked, 32768);
        for at in 2..20 {
            assert_eq!(ahead.plan(ONE, at * 8192, 8192, NOW), None, "{at}");
        }
        ahead.end_read(&larger(ONE, 8192, number), Some(vec![7; asked]), NOW);
        assert_eq!(ahead.take(ONE, 8192, 4), Some(&[7; 4][..]));
        assert_eq!(ahead.plan(ONE, 8196, 8192, NOW).map(|(_, asked)| asked), Some(65536));
    }

    #[test]
    fn a_slow_reply_is_followed_by_smaller_reads() {
        let mut ahead = ReadAhead::default();
        let size = limits::IO_BYTES / 4;
        ahead.plan(ONE, 0, size, NOW);
        let (number, asked) = ahead.plan(ONE, size as u64, size, NOW).unwrap();
        assert_eq!(asked, limits::IO_BYTES);
        let late = SLOW + Duration::from_millis(1);
        ahead.end_read(&larger(ONE, size as u64, number), Some(vec![0; asked]), late);
        let end = (size + asked) as u64;
        assert!(ahead.take(ONE, end - size as u64, size).is_some());
        let next = ahead.plan(ONE, end, size, late).map(|(_, asked)| asked);
        assert_eq!(next, Some(limits::IO_BYTES / 2));
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
        let (number, asked) = ahead.plan(ONE, 4, 4, NOW).unwrap();
        assert_eq!(asked, 16);
        ahead.write(ONE, 100, b"elsewhere");
        ahead.end_read(&larger(ONE, 4, number), Some(vec![0; 16]), NOW);
        assert_eq!(ahead.take(ONE, 8, 4), None);
        // The next one begins with few bytes again.
        let (number, asked) = ahead.plan(ONE, 8, 4, NOW).unwrap();
        assert_eq!(asked, 16);
        // Nor is one from before the end of the lease.
        ahead.end(ONE);
        ahead.plan(ONE, 0, 4, NOW);
        ahead.end_read(&larger(ONE, 8, number), Some(vec![0; 16]), NOW);
        assert_eq!(ahead.take(ONE, 8, 4), None);
    }

    #[test]
    fn the_files_that_were_read_last_are_kept() {
        let mut ahead = ReadAhead::default();
        let ino = |number: usize| InodeId::from_raw(1 + number as u64);
        for number in 0..=FILES {
            read(&mut ahead, ino(number), 0, 4);
            read(&mut ahead, ino(number), 4, 4);
            // Also one that is read from what is here.
            assert!(ahead.take(ino(usize::from(number > 0)), 8, 4).is_some());
        }
        assert_eq!(ahead.windows.len(), FILES);
        assert!(ahead.take(ino(0), 8, 4).is_none());
        assert!(ahead.take(ino(1), 8, 4).is_some());
        ahead.end_all();
        assert!(ahead.take(ino(1), 8, 4).is_none());
    }
}
