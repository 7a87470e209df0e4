//! One content file, open.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use pelago_wire::{AllocateMode, Backing, Generation, InodeId, Time, Whence};
use rustix::fs::{
    Advice, FallocateFlags, SeekFrom, Stat, Timespec, Timestamps, UTIME_OMIT, copy_file_range,
    fadvise, fallocate, fdatasync, fstat, fsync, ftruncate, futimens, seek,
};
use rustix::io::{Errno, ReadWriteFlags, pread, pwrite, pwritev2};

use super::{Error, Root, name_of};
use crate::os;

/// A content file, open until dropped. Reads and writes may go on at the same time.
#[derive(Debug)]
pub struct ContentFile {
    fd: Arc<OwnedFd>,
    root: Arc<Root>,
    ino: InodeId,
    generation: Generation,
    /// Its name's place among those made in its folder.
    number: u64,
}

/// What the medium says of a content file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    /// Last read.
    pub atime: Time,
    /// Last change of the bytes.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
}

impl Measured {
    pub(super) fn of(stat: &Stat) -> Self {
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
        made: bool,
    ) -> Self {
        let number = root.number(ino, made);
        Self { fd: Arc::new(fd), root, ino, generation, number }
    }

    /// Whose bytes it holds.
    #[must_use]
    pub const fn ino(&self) -> InodeId {
        self.ino
    }

    /// Which of the content files of its inode it is.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Its descriptor, for who reads and writes it alone. One that is open to read only, and stays
    /// so, lets [`ContentFile::has_writers`] tell when they have ended.
    #[must_use]
    pub fn backing(&self) -> Backing {
        Backing::from(Arc::clone(&self.fd))
    }

    /// Whether anybody may still write it: by another descriptor, or a shared mapping. This one is
    /// open to read only.
    ///
    /// # Errors
    /// [`Error`] where the medium cannot tell.
    pub fn has_writers(&self) -> Result<bool, Error> {
        os::has_writers(&*self.fd)
            .map_err(|error| Error::from_io("looking for writers of", self.path(), error))
    }

    /// Reads from `offset` on; fewer bytes than the buffer has only at the end of the file.
    ///
    /// # Errors
    /// [`Error`] from the medium.
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

    /// Writes all bytes from `offset` on.
    ///
    /// # Errors
    /// [`Error`] from the medium; its `written` says how many bytes are in the file all the same.
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

    /// Writes bytes at the end of the file, wherever that is by then. Answers how many are in it.
    ///
    /// # Errors
    /// [`Error`] from the medium: nothing was written.
    pub fn append(&self, bytes: &[u8]) -> Result<usize, Error> {
        loop {
            match pwritev2(&self.fd, &[IoSlice::new(bytes)], 0, ReadWriteFlags::APPEND) {
                Err(Errno::INTR) => {}
                done => return done.map_err(|error| self.failed("writing", error)),
            }
        }
    }

    /// Cuts the file off at `size`, or extends it by a hole.
    ///
    /// # Errors
    /// [`Error`] from the medium.
    pub fn truncate(&self, size: u64) -> Result<(), Error> {
        ftruncate(&self.fd, size).map_err(|error| self.failed("truncating", error))
    }

    /// Sets the times that are given.
    ///
    /// # Errors
    /// [`Error`] from the medium.
    pub fn set_times(&self, atime: Option<Time>, mtime: Option<Time>) -> Result<(), Error> {
        let times =
            Timestamps { last_access: to_timespec(atime), last_modification: to_timespec(mtime) };
        futimens(&self.fd, &times).map_err(|error| self.failed("setting the times of", error))
    }

    /// Reserves or frees a range.
    ///
    /// # Errors
    /// [`Error`] from the medium; [`Error::is_unsupported`] where it cannot do that.
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
                done => return done.map_err(|error| self.failed("reserving space in", error)),
            }
        }
    }

    /// The next data or hole at or behind `offset`. `None`: there is none, or `offset` is not
    /// before the end.
    ///
    /// # Errors
    /// [`Error`] from the medium.
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

    /// Copies up to `length` bytes into another content file, or within this one where the ranges
    /// do not overlap, sharing blocks where the medium can. Answers how many; fewer only at the end
    /// of this file.
    ///
    /// # Errors
    /// [`Error`] from the medium; its `written` says how many bytes were copied all the same.
    pub fn copy_to(
        &self,
        offset: u64,
        to: &Self,
        to_offset: u64,
        length: usize,
    ) -> Result<usize, Error> {
        let (mut from_at, mut to_at) = (offset, to_offset);
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

    /// Size, blocks and times now.
    ///
    /// # Errors
    /// [`Error`] from the medium.
    pub fn measure(&self) -> Result<Measured, Error> {
        let stat = fstat(&self.fd).map_err(|error| self.failed("measuring", error))?;
        Ok(Measured::of(&stat))
    }

    /// Makes the bytes safe; the times too, unless `data_only`.
    ///
    /// # Errors
    /// [`Error`] from the medium: what was written since the last sync may be lost, and a later
    /// sync that succeeds says nothing about it.
    pub fn sync(&self, data_only: bool) -> Result<(), Error> {
        let synced = if data_only { fdatasync(&self.fd) } else { fsync(&self.fd) };
        synced.map_err(|error| self.failed("syncing", error))
    }

    /// Drops what the system has in memory of its bytes, as far as they are written back.
    ///
    /// # Errors
    /// [`Error`] from the medium.
    pub fn drop_cached(&self) -> Result<(), Error> {
        fadvise(&self.fd, 0, None, Advice::DontNeed)
            .map_err(|error| self.failed("dropping pages of", error))
    }

    /// Whether its name was made safe since it was made or found.
    #[must_use]
    pub fn has_safe_name(&self) -> bool {
        self.root.is_synced(self.ino, self.number)
    }

    /// Makes the file's name safe. Costs nothing where it is already.
    ///
    /// # Errors
    /// [`Error`] from the medium.
    pub fn sync_folder_once(&self) -> Result<(), Error> {
        self.root.sync_folder(self.ino, self.number)
    }

    fn failed(&self, doing: &'static str, error: Errno) -> Error {
        Error::new(doing, self.path(), error)
    }

    fn path(&self) -> PathBuf {
        self.root.path.join(name_of(self.ino, self.generation))
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
