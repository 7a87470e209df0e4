//! The calls and transfers, and what Ringer's paper says of each.

use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::{self, Errno};

use super::probe::Probe;

/// Turns of a folder for all calls of a kind.
const CALL_TURNS: u32 = 20;
/// Bytes of a file that is only looked at or opened.
pub(super) const SMALL_BYTES: u64 = 2;

/// The figures of the paper for a row (I. Pye, S. Brandt, C. Maltzahn, "Ringer: A Global-Scale
/// Lightweight P2P File Service", 2008).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RingerPaper {
    /// Means of a thousand calls, in microseconds.
    Micros {
        /// The metadata server is on this machine.
        local: u32,
        /// It is behind a switch with 1 Gbit/s.
        gige: u32,
        /// It is behind an ADSL line, with 30 ms for a round trip.
        dsl: u32,
        /// There is one here and one behind the ADSL line; `None` if that was not measured.
        mixed: Option<u32>,
    },
    /// Words: its figures of transfers are lost.
    Words(&'static str),
}

const PUT_RNODE: RingerPaper =
    RingerPaper::Micros { local: 223, gige: 746, dsl: 14_575, mixed: None };
const GET_RNODE: RingerPaper =
    RingerPaper::Micros { local: 472, gige: 724, dsl: 35_308, mixed: None };
const GET_READ: RingerPaper =
    RingerPaper::Micros { local: 413, gige: 501, dsl: 31_103, mixed: Some(33_000) };
const GET_WRITE: RingerPaper =
    RingerPaper::Micros { local: 791, gige: 524, dsl: 4_403, mixed: Some(786) };
const END_READ: RingerPaper =
    RingerPaper::Micros { local: 498, gige: 530, dsl: 33_471, mixed: Some(57_000) };
const END_WRITE: RingerPaper =
    RingerPaper::Micros { local: 874, gige: 525, dsl: 5_403, mixed: Some(829) };
const WRITE: RingerPaper = RingerPaper::Words("flat, to the local disk; SSHFS grows with the size");
const FIRST_READ: RingerPaper =
    RingerPaper::Words("grows with the size, in line with SSHFS, if another client has the data");
const SECOND_READ: RingerPaper =
    RingerPaper::Words("flat; over DSL about 75 % more than SSHFS with its cache");

/// A row of the report.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RowHead {
    pub(super) step: String,
    pub(super) paper: RingerPaper,
}

/// Work on one file. Parts of it are timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Job {
    /// Creates and closes an empty file.
    Create,
    /// Sets the mode of a file.
    SetMode,
    /// Looks at a file.
    Stat,
    /// Opens a file, reads a byte, which is not timed, and closes it.
    OpenToRead,
    /// Opens a file, writes a byte, which is not timed, and closes it.
    OpenToWrite,
    /// Creates a file, writes all bytes, and closes it.
    Write,
    /// Opens a file, reads all bytes, and closes it.
    Read,
}

/// A job on each file of a group in turn.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pass {
    pub(super) job: Job,
    /// A row for each part that is timed.
    pub(super) rows: Vec<RowHead>,
}

/// Passes over the same files.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Group {
    /// A part of the names of its files.
    pub(super) name: String,
    pub(super) passes: Vec<Pass>,
    /// Files that are measured.
    pub(super) count: u32,
    /// Files of a turn.
    pub(super) block: u32,
    /// Bytes of each file.
    pub(super) bytes: u64,
}

impl Pass {
    fn new(job: Job, rows: &[(String, RingerPaper)]) -> Self {
        let rows = rows.iter().map(|(step, paper)| RowHead { step: step.clone(), paper: *paper });
        Self { job, rows: rows.collect() }
    }
}

impl Group {
    /// Returns the groups of calls, each with so many of a kind.
    pub(super) fn of_calls(calls: u32) -> Vec<Self> {
        let row = |step: &str, paper| (step.to_owned(), paper);
        let group = |name: &str, passes| Self {
            name: name.to_owned(),
            passes,
            count: calls,
            block: calls.div_ceil(CALL_TURNS).max(1),
            bytes: SMALL_BYTES,
        };
        let put = vec![
            Pass::new(Job::Create, &[row("put rnode: create and close", PUT_RNODE)]),
            Pass::new(Job::SetMode, &[row("put rnode: set the mode", PUT_RNODE)]),
        ];
        let get = ["first", "again"]
            .map(|time| Pass::new(Job::Stat, &[row(&format!("get rnode, {time}"), GET_RNODE)]));
        let read = ["first", "again"].map(|time| {
            let rows = [
                row(&format!("get read lease, {time}"), GET_READ),
                row(&format!("end read, {time}"), END_READ),
            ];
            Pass::new(Job::OpenToRead, &rows)
        });
        let write = ["first", "again"].map(|time| {
            let rows = [
                row(&format!("get write lease, {time}"), GET_WRITE),
                row(&format!("end write, {time}"), END_WRITE),
            ];
            Pass::new(Job::OpenToWrite, &rows)
        });
        vec![
            group("put", put),
            group("get", get.to_vec()),
            group("read", read.to_vec()),
            group("write", write.to_vec()),
        ]
    }

    /// Returns the group of the transfers of so many bytes.
    pub(super) fn of_transfer(bytes: u64, runs: u32) -> Self {
        let size = shown(bytes);
        let pass = |job, step: &str, paper| Pass::new(job, &[(format!("{step} {size}"), paper)]);
        Self {
            name: bytes.to_string(),
            passes: vec![
                pass(Job::Write, "write", WRITE),
                pass(Job::Read, "first read", FIRST_READ),
                pass(Job::Read, "second read", SECOND_READ),
            ],
            count: runs,
            block: 1,
            bytes,
        }
    }

    /// Returns the numbers of the files of each turn.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Range<u32>> {
        let Self { count, block, .. } = *self;
        (0..count.div_ceil(block)).map(move |turn| turn * block..count.min((turn + 1) * block))
    }
}

impl Job {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::SetMode => "chmod",
            Self::Stat => "stat",
            Self::OpenToRead => "open for read",
            Self::OpenToWrite => "open for write",
            Self::Write => "write",
            Self::Read => "read",
        }
    }

    /// Returns whether the file was made before, by the other mount.
    pub(super) const fn needs_file(self) -> bool {
        match self {
            Self::Stat | Self::OpenToRead | Self::OpenToWrite | Self::Read => true,
            Self::Create | Self::SetMode | Self::Write => false,
        }
    }

    /// Does the work on a file, and returns the bytes that it has read.
    pub(super) fn run(
        self,
        dir: &OwnedFd,
        name: &str,
        content: &[u8],
        probe: &mut Probe<'_>,
    ) -> Result<Vec<u8>, Errno> {
        match self {
            Self::Create => probe.part(|| make(dir, name).map(drop))?,
            Self::SetMode => {
                probe.part(|| fs::chmodat(dir, name, Mode::RUSR | Mode::WUSR, AtFlags::empty()))?
            }
            Self::Stat => {
                probe.part(|| fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW))?;
            }
            Self::OpenToRead => {
                let file = probe.part(|| open(dir, name, OFlags::RDONLY))?;
                io::read(&file, &mut [0])?;
                probe.part(|| drop(file));
            }
            Self::OpenToWrite => {
                let file = probe.part(|| open(dir, name, OFlags::WRONLY))?;
                io::write(&file, b"!")?;
                probe.part(|| drop(file));
            }
            Self::Write => probe.part(|| write_all(&make(dir, name)?, content))?,
            Self::Read => {
                // One more, so that a file that is longer is found out.
                let mut buffer = vec![0; content.len() + 1];
                let count = probe.part(|| read_all(&open(dir, name, OFlags::RDONLY)?, &mut buffer));
                buffer.truncate(count?);
                return Ok(buffer);
            }
        }
        Ok(Vec::new())
    }
}

fn make(dir: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH)
}

fn open(dir: &OwnedFd, name: &str, how: OFlags) -> Result<OwnedFd, Errno> {
    fs::openat(dir, name, how | OFlags::CLOEXEC, Mode::empty())
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let count = io::write(file, bytes)?;
        bytes = &bytes[count..];
    }
    Ok(())
}

/// Reads to the end of the file, or of the buffer, and returns the number of bytes.
fn read_all(file: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < buffer.len() {
        match io::read(file, &mut buffer[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// Returns a size in words.
fn shown(bytes: u64) -> String {
    match bytes {
        0 => "0 B".to_owned(),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turns_of_a_group_have_all_its_files_once() {
        for calls in [1, 7, 20, 45, 1000] {
            let group = &Group::of_calls(calls)[0];
            let blocks: Vec<Range<u32>> = group.blocks().collect();
            assert!(blocks.len() <= 20, "{blocks:?}");
            let numbers: Vec<u32> = blocks.into_iter().flatten().collect();
            assert_eq!(numbers, (0..calls).collect::<Vec<_>>());
        }
        assert_eq!(Group::of_transfer(2, 50).blocks().count(), 50);
    }

    #[test]
    fn a_row_names_its_size() {
        let names = [2, 512, 1024, 3000, 65_536, 2 << 20].map(shown);
        assert_eq!(names, ["2 B", "512 B", "1 KiB", "3000 B", "64 KiB", "2 MiB"]);
    }
}
