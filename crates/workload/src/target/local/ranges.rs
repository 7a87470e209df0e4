//! Operations on ranges of open files, by system calls.

use std::os::fd::BorrowedFd;

use pelago_wire::{AllocateMode, SeekFrom, Whence};
use rustix::fs::{self, FallocateFlags};
use rustix::io::Errno;

use super::{LocalTarget, file_attr};
use crate::op::{Op, Range};
use crate::target::Outcome;

impl LocalTarget {
    pub(super) fn apply_to_ranges(&self, op: &Op) -> Result<Outcome, Errno> {
        match op {
            Op::Allocate { slot, range, mode } => {
                allocate(self.file(*slot)?, *range, *mode)?;
                Ok(Outcome::Done)
            }
            Op::Seek { slot, from } => match seek(self.file(*slot)?, *from) {
                Err(Errno::NXIO) => Ok(Outcome::Offset(None)),
                found => Ok(Outcome::Offset(Some(found?))),
            },
            Op::Copy { from, range, to, to_offset } => {
                let from = self.file(*from)?;
                let to = self.file(*to)?;
                let bytes = copy(from, *range, to, *to_offset)?;
                Ok(Outcome::Written { bytes, size: size(to)? })
            }
            _ => Err(Errno::NOSYS),
        }
    }
}

fn size(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    Ok(file_attr(&fs::fstat(file)?).size)
}

fn allocate(file: BorrowedFd<'_>, range: Range, mode: AllocateMode) -> Result<(), Errno> {
    let keep = |keep_size: bool| match keep_size {
        true => FallocateFlags::KEEP_SIZE,
        false => FallocateFlags::empty(),
    };
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let Range { offset, length } = range;
    match mode {
        AllocateMode::Reserve { keep_size } => fs::fallocate(file, keep(keep_size), offset, length),
        AllocateMode::PunchHole => fs::fallocate(file, punch, offset, length),
        AllocateMode::Zero { keep_size } => {
            let flags = FallocateFlags::ZERO_RANGE | keep(keep_size);
            match fs::fallocate(file, flags, offset, length) {
                // Not every file system supports it; a hole reads the same.
                Err(Errno::OPNOTSUPP) => {
                    fs::fallocate(file, punch, offset, length)?;
                    match keep_size || size(file)? >= range.end() {
                        true => Ok(()),
                        false => fs::ftruncate(file, range.end()),
                    }
                }
                done => done,
            }
        }
    }
}

fn seek(file: BorrowedFd<'_>, from: SeekFrom) -> Result<u64, Errno> {
    fs::seek(
        file,
        match from.whence {
            Whence::Data => fs::SeekFrom::Data(from.offset),
            Whence::Hole => fs::SeekFrom::Hole(from.offset),
        },
    )
}

/// Copies the whole range, in as many calls as needed. Returns the bytes copied.
fn copy(from: BorrowedFd<'_>, range: Range, to: BorrowedFd<'_>, at: u64) -> Result<u64, Errno> {
    let there = size(from)?.saturating_sub(range.offset).min(range.length);
    let mut from_at = range.offset;
    let mut to_at = at;
    let mut left = if there == 0 { range.length } else { there };
    while left > 0 {
        let count = usize::try_from(left).unwrap_or(usize::MAX);
        match fs::copy_file_range(from, Some(&mut from_at), to, Some(&mut to_at), count)? {
            0 => break,
            copied => left -= copied as u64,
        }
    }
    Ok(from_at - range.offset)
}
