//! Reads of extents of a content file into the server's own cache.
//!
//! An extent that is in the page cache is copied from there. Another one is read into it and stays
//! there ([`Caching::Keep`]), or is read past it (`O_DIRECT`). If the file system has no direct
//! reads, the extent is read through the page cache and then dropped from it: bytes that are cached
//! twice take the room of others.

use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use pelago_wire::limits::BLOCK_BYTES;
use pelago_wire::{Backing, Caching};
use rustix::fs::{Advice, CWD, Mode, OFlags, fadvise, openat};
use rustix::io::{Errno, preadv};

use crate::os;

/// The alignment of memory that every disk can read to.
pub(super) const PAGE_BYTES: u64 = 4096;

/// A file of which extents are read. It never changes while this exists.
#[derive(Debug)]
pub struct ExtentFile {
    buffered: Backing,
    /// Reads past the page cache; `None` if the file system cannot.
    direct: Option<OwnedFd>,
}

/// A block of an extent.
#[derive(Debug)]
pub struct ExtentBlock {
    memory: Box<Aligned>,
    len: usize,
}

/// The source of the bytes of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFrom {
    /// The page cache.
    Cache,
    /// The disk, past the page cache.
    Disk,
    /// The disk, through the page cache.
    DiskThroughCache,
}

#[derive(Debug)]
#[repr(align(4096))]
struct Aligned([u8; BLOCK_BYTES]);

impl ExtentFile {
    /// Prepares a file that is open for reading. This takes a second descriptor, if one is left.
    #[must_use]
    pub fn new(file: Backing) -> Self {
        // A flag of the open file, not of the descriptor: other readers of it must not get it.
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let direct = openat(CWD, path, flags, Mode::empty()).ok();
        Self { buffered: file, direct }
    }

    /// Prepares a file that is read through the page cache, without a second descriptor.
    #[must_use]
    pub const fn through_cache(file: Backing) -> Self {
        Self { buffered: file, direct: None }
    }

    /// Reads so many bytes from an offset, which is a multiple of a block. All blocks but the last
    /// one are whole. `caching` decides on what is not in the page cache.
    ///
    /// # Errors
    /// Those of the disk; `UnexpectedEof` if the file ends before.
    pub fn read(
        &self,
        offset: u64,
        len: usize,
        caching: Caching,
    ) -> io::Result<(Vec<ExtentBlock>, ReadFrom)> {
        debug_assert!(offset.is_multiple_of(BLOCK_BYTES as u64), "extents begin with a block");
        let mut blocks: Vec<ExtentBlock> = (0..len.div_ceil(BLOCK_BYTES))
            .map(|block| ExtentBlock::new((len - block * BLOCK_BYTES).min(BLOCK_BYTES)))
            .collect();
        let pages = (len as u64).div_ceil(PAGE_BYTES);
        // If the kernel does not report it, nothing is taken for cached, and nothing is dropped.
        let cached = os::cached_pages(&self.buffered, offset, len as u64);
        if cached.as_ref().is_ok_and(|cached| *cached >= pages) {
            self.read_buffered(&mut blocks, offset, len)?;
            return Ok((blocks, ReadFrom::Cache));
        }
        let range = NonZeroU64::new(len as u64);
        if caching == Caching::Keep {
            // This much and no more: many readers share the descriptor, so that what the kernel
            // reads ahead of one is not what comes next. Without it the read is slower, nothing
            // else.
            let _begun = fadvise(&self.buffered, offset, range, Advice::WillNeed);
            self.read_buffered(&mut blocks, offset, len)?;
            return Ok((blocks, ReadFrom::DiskThroughCache));
        }
        if let Some(direct) = &self.direct {
            match fill(direct, &mut blocks, offset, len) {
                Ok(()) => return Ok((blocks, ReadFrom::Disk)),
                // A file system may refuse it for this file or this place.
                Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {}
                Err(error) => return Err(error),
            }
        }
        self.read_buffered(&mut blocks, offset, len)?;
        if cached.is_ok_and(|cached| cached == 0) {
            // It costs memory if they stay, nothing else.
            let _kept = fadvise(&self.buffered, offset, range, Advice::DontNeed);
        }
        Ok((blocks, ReadFrom::DiskThroughCache))
    }

    fn read_buffered(&self, to: &mut [ExtentBlock], offset: u64, len: usize) -> io::Result<()> {
        fill(&self.buffered, to, offset, len)
    }
}

impl ExtentBlock {
    fn new(len: usize) -> Self {
        Self { memory: Box::new(Aligned([0; BLOCK_BYTES])), len }
    }
}

impl AsRef<[u8]> for ExtentBlock {
    fn as_ref(&self) -> &[u8] {
        &self.memory.0[..self.len]
    }
}

/// Fills blocks from a file. The last one is read as if it were whole: a read past the page cache
/// has a length that the disk can read.
fn fill(file: impl AsFd, to: &mut [ExtentBlock], offset: u64, len: usize) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        let block = done / BLOCK_BYTES;
        let within = done % BLOCK_BYTES;
        let rest = to[block..].iter_mut().map(|block| &mut block.memory.0[..]);
        let mut parts: Vec<IoSliceMut<'_>> = rest.map(IoSliceMut::new).collect();
        let mut parts = &mut parts[..];
        IoSliceMut::advance_slices(&mut parts, within);
        match preadv(&file, parts, offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use rustix::fs::fdatasync;

    use super::*;

    const LEN: usize = 5 * BLOCK_BYTES + 777;

    fn file(folder: &tempfile::TempDir) -> (File, Vec<u8>) {
        let path = folder.path().join("f");
        let bytes: Vec<u8> = (0..LEN).map(|at| (at / 7 % 251) as u8).collect();
        let made = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        made.write_all_at(&bytes, 0).unwrap();
        (made, bytes)
    }

    fn backing(file: &File) -> Backing {
        Backing::new(OwnedFd::from(file.try_clone().unwrap()))
    }

    fn bytes_of(blocks: &[ExtentBlock]) -> Vec<u8> {
        blocks.iter().flat_map(|block| block.as_ref().iter().copied()).collect()
    }

    /// On a disk, which the folder of the build is: what is cached is copied, and what is not stays
    /// out of the cache.
    #[test]
    fn an_extent_is_read_past_the_cache_unless_it_is_there() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (made, bytes) = file(&folder);
        let reader = ExtentFile::new(backing(&made));
        let (blocks, from) = reader.read(0, LEN, Caching::Bypass).unwrap();
        assert!(bytes_of(&blocks) == bytes);
        if os::cached_pages(&made, 0, LEN as u64).is_err() {
            return println!("skipped: not here: the kernel does not tell what is cached");
        }
        assert_eq!(from, ReadFrom::Cache);
        fdatasync(&made).unwrap();
        fadvise(&made, 0, None, Advice::DontNeed).unwrap();
        if os::cached_pages(&made, 0, LEN as u64).unwrap() > 0 {
            return println!("skipped: not here: the file system has no disk");
        }
        let (blocks, from) = reader.read(0, LEN, Caching::Bypass).unwrap();
        assert!(bytes_of(&blocks) == bytes);
        assert_ne!(from, ReadFrom::Cache);
        assert_eq!(os::cached_pages(&made, 0, LEN as u64).unwrap(), 0);
        // A part of the file, with and without its end.
        let at = 3 * BLOCK_BYTES;
        for end in [LEN, 4 * BLOCK_BYTES, 5 * BLOCK_BYTES + 1] {
            let (blocks, _) = reader.read(at as u64, end - at, Caching::Bypass).unwrap();
            assert!(bytes_of(&blocks) == bytes[at..end], "{end}");
        }
        let error = reader.read(at as u64, LEN - at + 1, Caching::Bypass).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    /// What is to be kept is in the page cache afterwards, and nothing behind it.
    #[test]
    fn an_extent_that_is_kept_is_in_the_cache_alone() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (made, bytes) = file(&folder);
        fdatasync(&made).unwrap();
        fadvise(&made, 0, None, Advice::DontNeed).unwrap();
        match os::cached_pages(&made, 0, LEN as u64) {
            Ok(0) => {}
            _ => return println!("skipped: not here: the cache cannot be emptied or seen"),
        }
        let reader = ExtentFile::new(backing(&made));
        let (blocks, from) = reader.read(0, 2 * BLOCK_BYTES, Caching::Keep).unwrap();
        assert!(bytes_of(&blocks) == bytes[..2 * BLOCK_BYTES]);
        assert_eq!(from, ReadFrom::DiskThroughCache);
        let pages = 2 * BLOCK_BYTES as u64 / PAGE_BYTES;
        assert_eq!(os::cached_pages(&made, 0, LEN as u64).unwrap(), pages);
        let (_, from) = reader.read(0, 2 * BLOCK_BYTES, Caching::Bypass).unwrap();
        assert_eq!(from, ReadFrom::Cache);
    }

    #[test]
    fn without_direct_reads_the_cache_is_left_as_it_was() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (made, bytes) = file(&folder);
        let reader = ExtentFile::through_cache(backing(&made));
        fdatasync(&made).unwrap();
        fadvise(&made, 0, None, Advice::DontNeed).unwrap();
        match os::cached_pages(&made, 0, LEN as u64) {
            Ok(0) => {}
            _ => return println!("skipped: not here: the cache cannot be emptied or seen"),
        }
        let (blocks, from) = reader.read(0, LEN, Caching::Bypass).unwrap();
        assert!(bytes_of(&blocks) == bytes);
        assert_eq!(from, ReadFrom::DiskThroughCache);
        assert_eq!(os::cached_pages(&made, 0, LEN as u64).unwrap(), 0);
    }
}
