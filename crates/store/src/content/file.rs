//! An open content file.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use pelago_wire::{AllocateMode, Backing, Caching, Generation, InodeId, Time, Whence};
use rustix::fs::{
    Advice, FallocateFlags, SeekFrom, Stat, Timespec, Timestamps, UTIME_OMIT, copy_file_range,
    fadvise, fallocate, fdatasync, fstat, fsync, ftruncate, futimens, ioctl_ficlone, seek,
};
use rustix::io::{Errno, ReadWriteFlags, pread, pwrite, pwritev2};

use super::error::Error;
use super::extent::{ExtentBlock, ExtentFile, PAGE_BYTES};
use super::root::{Root, file_name};
use crate::os;

/// An open content file. Several threads may read and write it at the same time.
#[derive(Debug)]
pub struct ContentFile {
    fd: Arc<OwnedFd>,
    root: Arc<Root>,
    ino: InodeId,
    generation: Generation,
    /// The number of the file's name in its subfolder, see [`Root::name_number`].
    name_number: u64,
}

/// The size, blocks and times of a content file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentStat {
    /// Size in bytes.
    pub size: u64,
    /// Disk space in units of 512 bytes.
    pub blocks: u64,
    /// The time of the last read.
    pub atime: Time,
    /// The time of the last change of the bytes.
    pub mtime: Time,
    /// The time of the last change of bytes or attributes.
    pub ctime: Time,
}

impl From<Stat> for ContentStat {
    fn from(stat: Stat) -> Self {
        Self {
            size: stat.st_size as u64,
            blocks: stat.st_blocks as u64,
            atime: Time { seconds: stat.st_atime, nanos: stat.st_atime_nsec as u32 },
            mtime: Time { seconds: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 },
            ctime: Time { seconds: stat.st_ctime, nanos: stat.st_ctime_nsec as u32 },
        }
    }
}

impl ContentFile {
    pub(super) fn new(
        fd: OwnedFd,
        root: Arc<Root>,
        ino: InodeId,
        generation: Generation,
        is_new: bool,
    ) -> Self {
        let name_number = root.name_number(ino, is_new);
        Self { fd: Arc::new(fd), root, ino, generation, name_number }
    }

    /// Returns the inode whose bytes the file holds.
    #[must_use]
    pub const fn ino(&self) -> InodeId {
        self.ino
    }

    /// Returns the generation of the file.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the descriptor, with which a kernel reads and writes the file by itself. If this
    /// file is open for reading only, [`ContentFile::has_writers`] shows when that has ended.
    #[must_use]
    pub fn backing(&self) -> Backing {
        Backing::from(Arc::clone(&self.fd))
    }

    /// Returns whether a program can still write the file, through a descriptor or a shared
    /// mapping. This file must be open for reading only.
    ///
    /// # Errors
    /// [`Error`] if the file system does not report it, see
    /// [`super::ContentStore::can_detect_writers`].
    pub fn has_writers(&self) -> Result<bool, Error> {
        os::has_writers(&*self.fd)
            .map_err(|error| Error::from_io("looking for writers of", self.path(), error))
    }

    /// Reads bytes from `offset` on and returns their number. It fills the buffer unless the file
    /// ends before.
    ///
    /// # Errors
    /// [`Error`] if a system call fails.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error> {
        let mut done = 0;
        while done < buffer.len() {
            match pread(&self.fd, &mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed("reading", error)),
            }
        }
        Ok(done)
    }

    /// Writes all bytes, from `offset` on.
    ///
    /// # Errors
    /// [`Error`] if a system call fails. Its `written` is the number of bytes written before that.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        let mut written = 0;
        while written < bytes.len() {
            match pwrite(&self.fd, &bytes[written..], offset + written as u64) {
                Ok(0) => return Err(Error { written, ..self.failed("writing", Errno::IO) }),
                Ok(more) => written += more,
                Err(Errno::INTR) => {}
                Err(error) => return Err(Error { written, ..self.failed("writing", error) }),
            }
        }
        Ok(())
    }

    /// Writes bytes at the current end of the file, atomically (`RWF_APPEND`). Returns where that
    /// was, and the number of bytes written, which may be smaller than `bytes.len()`. One thread at
    /// a time may do so by one descriptor.
    ///
    /// # Errors
    /// [`Error`] if the system call fails. Nothing was written then.
    pub fn append(&self, bytes: &[u8]) -> Result<(u64, usize), Error> {
        loop {
            // Offset -1 moves the position of the descriptor to the end of what was written.
            match pwritev2(&self.fd, &[IoSlice::new(bytes)], u64::MAX, ReadWriteFlags::APPEND) {
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed("writing", error)),
                Ok(written) => {
                    let end = seek(&self.fd, SeekFrom::Current(0));
                    let end = end.map_err(|error| self.failed("writing", error))?;
                    return Ok((end.saturating_sub(written as u64), written));
                }
            }
        }
    }

    /// Truncates the file to `size` bytes, or extends it by a hole.
    ///
    /// # Errors
    /// [`Error`] if the system call fails.
    pub fn truncate(&self, size: u64) -> Result<(), Error> {
        ftruncate(&self.fd, size).map_err(|error| self.failed("truncating", error))
    }

    /// Sets the times that are not `None`.
    ///
    /// # Errors
    /// [`Error`] if the system call fails.
    pub fn set_times(&self, atime: Option<Time>, mtime: Option<Time>) -> Result<(), Error> {
        let times =
            Timestamps { last_access: to_timespec(atime), last_modification: to_timespec(mtime) };
        futimens(&self.fd, &times).map_err(|error| self.failed("setting the times of", error))
    }

    /// Allocates, zeroes or frees a range of bytes (`fallocate`).
    ///
    /// # Errors
    /// [`Error`] if the system call fails, [`Error::is_unsupported`] if the file system lacks it.
    pub fn allocate(&self, mode: AllocateMode, offset: u64, length: u64) -> Result<(), Error> {
        let flags = match mode {
            AllocateMode::Reserve { keep_size: false } => FallocateFlags::empty(),
            AllocateMode::Reserve { keep_size: true } => FallocateFlags::KEEP_SIZE,
            AllocateMode::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            AllocateMode::Zero { keep_size: false } => FallocateFlags::ZERO_RANGE,
            AllocateMode::Zero { keep_size: true } => {
                FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE
            }
        };
        loop {
            match fallocate(&self.fd, flags, offset, length) {
                Err(Errno::INTR) => {}
                done => return done.map_err(|error| self.failed("allocating space in", error)),
            }
        }
    }

    /// Returns the offset of the next data or hole at or after `offset`. Returns `None` if there is
    /// none, and if `offset` is not before the end of the file.
    ///
    /// # Errors
    /// [`Error`] if the system call fails.
    pub fn seek(&self, offset: u64, whence: Whence) -> Result<Option<u64>, Error> {
        let from = match whence {
            Whence::Data => SeekFrom::Data(offset),
            Whence::Hole => SeekFrom::Hole(offset),
        };
        match seek(&self.fd, from) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(self.failed("seeking in", error)),
        }
    }

    /// Copies `length` bytes to another content file, or within this one if the ranges do not
    /// overlap, and returns their number. It is smaller only if this file ends before. Files share
    /// blocks if the file system can.
    ///
    /// # Errors
    /// [`Error`] if a system call fails. Its `written` is the number of bytes copied before that.
    pub fn copy_to(
        &self,
        offset: u64,
        to: &Self,
        to_offset: u64,
        length: usize,
    ) -> Result<usize, Error> {
        let mut from_at = offset;
        let mut to_at = to_offset;
        let mut done = 0;
        while done < length {
            let left = length - done;
            match copy_file_range(&self.fd, Some(&mut from_at), &to.fd, Some(&mut to_at), left) {
                Ok(0) => break,
                Ok(copied) => done += copied,
                Err(Errno::INTR) => {}
                Err(error) => {
                    return Err(Error { written: done, ..to.failed("copying to", error) });
                }
            }
        }
        Ok(done)
    }

    /// Reads part of an extent through `by`, which was made of this file ([`ExtentFile::read`]).
    ///
    /// # Errors
    /// [`Error`] if a system call fails; its source is `UnexpectedEof` if the file ends before.
    pub fn read_extent(
        &self,
        by: &ExtentFile,
        offset: u64,
        len: usize,
        caching: Caching,
    ) -> Result<Vec<ExtentBlock>, Error> {
        match by.read(offset, len, caching) {
            Ok((blocks, _from)) => Ok(blocks),
            Err(error) => Err(Error::from_io("reading", self.path(), error)),
        }
    }

    /// Returns whether so many bytes from an offset are in the page cache; `false` if the kernel
    /// does not report it. It does not wait for the disk.
    #[must_use]
    pub fn is_cached(&self, offset: u64, len: u64) -> bool {
        let pages = len.div_ceil(PAGE_BYTES);
        os::cached_pages(&self.fd, offset, len).is_ok_and(|cached| cached >= pages)
    }

    /// Gives another file all bytes of this one, without a copy: they share blocks until one of
    /// them changes (`FICLONE`).
    ///
    /// # Errors
    /// [`Error`] if the system call fails, as it does on a file system that shares no blocks.
    pub fn clone_to(&self, to: &Self) -> Result<(), Error> {
        ioctl_ficlone(&to.fd, &self.fd).map_err(|error| to.failed("cloning to", error))
    }

    /// Returns size, blocks and times.
    ///
    /// # Errors
    /// [`Error`] if the system call fails.
    pub fn stat(&self) -> Result<ContentStat, Error> {
        let stat = fstat(&self.fd).map_err(|error| self.failed("examining", error))?;
        Ok(ContentStat::from(stat))
    }

    /// Makes the bytes safe, and the times too unless `data_only` is set.
    ///
    /// # Errors
    /// [`Error`] if the system call fails. Bytes written since the last sync may be lost, even if a
    /// later sync succeeds.
    pub fn sync(&self, data_only: bool) -> Result<(), Error> {
        let synced = if data_only { fdatasync(&self.fd) } else { fsync(&self.fd) };
        synced.map_err(|error| self.failed("syncing", error))
    }

    /// Drops the page cache of the file, but for pages that are not written back or are mapped.
    ///
    /// # Errors
    /// [`Error`] if the system call fails.
    pub fn drop_page_cache(&self) -> Result<(), Error> {
        fadvise(&self.fd, 0, None, Advice::DontNeed)
            .map_err(|error| self.failed("dropping the page cache of", error))
    }

    /// Returns whether the name of the file was made safe since the file was created or opened.
    #[must_use]
    pub fn has_safe_name(&self) -> bool {
        self.root.is_name_synced(self.ino, self.name_number)
    }

    /// Makes the name of the file safe. Does nothing if it is safe already.
    ///
    /// # Errors
    /// [`Error`] if a system call fails.
    pub fn sync_name(&self) -> Result<(), Error> {
        self.root.sync_name(self.ino, self.name_number)
    }

    fn failed(&self, doing: &'static str, error: Errno) -> Error {
        Error::new(doing, self.path(), error)
    }

    fn path(&self) -> PathBuf {
        self.root.path().join(file_name(self.ino, self.generation))
    }
}

impl AsFd for ContentFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn to_timespec(time: Option<Time>) -> Timespec {
    match time {
        Some(time) => Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() },
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    }
}
