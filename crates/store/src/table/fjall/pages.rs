//! Reads of files past pages that the disk cannot read.

use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that are given up together if the disk cannot read them.
const PAGE_BYTES: u64 = 4096;
/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// The result of a read past pages that the disk cannot read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PagesRead {
    /// Bytes of the buffer that are filled: all, unless the file ended before.
    pub(super) bytes: usize,
    /// Bytes of these that the disk could not read. They are zeros.
    pub(super) unreadable: usize,
}

/// Fills a buffer, which has no more bytes than the file from that offset on.
pub(super) fn read_at(file: &impl FileExt, buffer: &mut [u8], from: u64) -> PagesRead {
    let mut read = PagesRead { bytes: 0, unreadable: 0 };
    while read.bytes < buffer.len() {
        let at = from + read.bytes as u64;
        let rest = &mut buffer[read.bytes..];
        let chunk = rest.len().min(CHUNK_BYTES);
        let page = rest.len().min((PAGE_BYTES - at % PAGE_BYTES) as usize);
        let tried = match uninterrupted(file, &mut rest[..chunk], at) {
            Err(_) => uninterrupted(file, &mut rest[..page], at),
            tried => tried,
        };
        match tried {
            Ok(0) => break,
            Ok(bytes) => read.bytes += bytes,
            Err(_) => {
                rest[..page].fill(0);
                read.bytes += page;
                read.unreadable += page;
            }
        }
    }
    read
}

fn uninterrupted(file: &impl FileExt, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::ops::Range;

    use super::*;

    /// A file with a page that the disk cannot read: all reads that touch it fail.
    pub(in super::super) struct BadPage<'a> {
        pub(in super::super) bytes: &'a [u8],
        pub(in super::super) bad: Range<u64>,
    }

    impl<'a> BadPage<'a> {
        pub(in super::super) fn new(bytes: &'a [u8], page: u64) -> Self {
            Self { bytes, bad: page * PAGE_BYTES..(page + 1) * PAGE_BYTES }
        }
    }

    impl FileExt for BadPage<'_> {
        fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
            let rest = self.bytes.get(at as usize..).unwrap_or_default();
            let bytes = rest.len().min(buffer.len());
            if at < self.bad.end && self.bad.start < at + bytes as u64 {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            buffer[..bytes].copy_from_slice(&rest[..bytes]);
            Ok(bytes)
        }

        fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    #[test]
    fn a_page_that_cannot_be_read_costs_its_own_bytes() {
        let good: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8 | 1).collect();
        for page in [0, 1, 15, 16, 17, 30, 48] {
            let file = BadPage::new(&good, page);
            for from in [0, 1, 5_000, 65_536] {
                let mut buffer = vec![9; good.len() - from];
                let read = read_at(&file, &mut buffer, from as u64);
                let mut wanted = good.clone();
                let bad = file.bad.start as usize..(file.bad.end as usize).min(good.len());
                wanted[bad.clone()].fill(0);
                assert_eq!(read.bytes, good.len() - from);
                assert_eq!(read.unreadable, bad.end.saturating_sub(bad.start.max(from)));
                assert!(buffer[..read.bytes] == wanted[from..], "page {page}, from {from}");
            }
        }
    }
}
