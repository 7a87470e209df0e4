//! The spool of a mirror: a file with one group of its primary, which is safe here before rows and
//! content files change.
//!
//! The file has a head of 64 bytes, and then records: the bodies of the parts, as they came over
//! the wire. A group is complete if its first part is a `Begin` and its last one an `End` whose sum
//! fits; anything else is no group. `docs/format.md`, 6.2, has the tables.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use pelago_wire::mirror::{GroupKind, GroupPart, PrimaryRun};
use pelago_wire::{Time, limits};
use rustix::fs::OFlags;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use crate::folder::{Folder, FolderError};
use crate::volume::VolumeId;

pub use read::Bodies;

use read::Records;

mod read;

const MAGIC: [u8; 8] = *b"PELSPOO\n";
const VERSION: u32 = 1;
/// Bytes of the head.
const HEAD_BYTES: usize = 64;
/// Bytes in front of a body: its length, and the low half of its XXH3.
const RECORD_HEAD_BYTES: usize = 8;
/// Bytes of records that are written together.
const BUFFER_BYTES: usize = 1 << 20;

/// The volume whose group a spool has, and the primary that sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoolHead {
    /// The volume.
    pub volume: VolumeId,
    /// The reign of the primary.
    pub reign: u64,
    /// Its run.
    pub run: PrimaryRun,
}

/// A complete group in a spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpooledGroup {
    /// Its volume and primary.
    pub head: SpoolHead,
    /// Its number in the run.
    pub number: u64,
    /// Its kind.
    pub kind: GroupKind,
    /// The time at which it was cut, by the clock of the primary.
    pub cut: Time,
}

/// The sum of the bodies of a group's parts, which its `End` has.
#[derive(Clone, Default)]
pub struct GroupSum {
    hash: Xxh3Default,
}

/// A failure to write or read a spool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpoolError {
    /// The file cannot be opened or named.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Another system call failed.
    #[error("{doing} {} failed", path.display())]
    Io {
        /// The operation, for a message: "writing".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// A body is longer than any frame.
    #[error("a part of a group has {bytes} bytes, the limit is {}", limits::FRAME_BODY_BYTES)]
    TooLong {
        /// Bytes of the body.
        bytes: usize,
    },
}

/// A file for one group at a time.
#[derive(Debug)]
pub struct Spool {
    folder: Folder,
    name: String,
    file: File,
    /// The bytes of the file, without those of `buffer`.
    written: u64,
    /// Bytes that are not written yet.
    buffer: Vec<u8>,
    /// True if the name of the file is safe.
    is_named: bool,
}

impl SpoolHead {
    fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut out = [0; HEAD_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        // Bytes 12 to 15 stay zero.
        out[16..32].copy_from_slice(&self.volume.0);
        out[32..40].copy_from_slice(&self.reign.to_le_bytes());
        out[40..56].copy_from_slice(&self.run);
        let sum = xxh3_64(&out[..56]);
        out[56..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Decodes the head; `None` if it is damaged, or of another version.
    fn decode(bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let (written, sum) = bytes.split_last_chunk::<8>()?;
        let rest = written.strip_prefix(&MAGIC)?.strip_prefix(&VERSION.to_le_bytes())?;
        let (volume, rest) = rest.strip_prefix(&[0; 4])?.split_first_chunk()?;
        let (reign, run) = rest.split_first_chunk()?;
        let run = run.try_into().ok()?;
        let head = Self { volume: VolumeId(*volume), reign: u64::from_le_bytes(*reign), run };
        (u64::from_le_bytes(*sum) == xxh3_64(written)).then_some(head)
    }
}

impl GroupSum {
    /// Adds the body of the next part.
    pub fn add(&mut self, body: &[u8]) {
        self.hash.update(body);
    }

    /// Returns the sum of all bodies that were added.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.hash.digest()
    }
}

impl std::fmt::Debug for GroupSum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("GroupSum").field(&self.value()).finish()
    }
}

impl Spool {
    /// Opens the spool with this name in `folder`, or creates it. Its group stays.
    ///
    /// # Errors
    /// [`SpoolError`].
    pub fn open(folder: &Folder, name: &str) -> Result<Self, SpoolError> {
        let file = folder.open_file(name, OFlags::RDWR | OFlags::CREATE)?;
        let folder = folder.clone();
        let name = name.to_owned();
        Ok(Self { folder, name, file, written: 0, buffer: Vec::new(), is_named: false })
    }

    /// Begins a group in the place of the last one.
    ///
    /// # Errors
    /// [`SpoolError`].
    pub fn begin(&mut self, head: SpoolHead) -> Result<(), SpoolError> {
        self.clear()?;
        self.buffer.extend_from_slice(&head.encode());
        Ok(())
    }

    /// Adds the body of a part.
    ///
    /// # Errors
    /// [`SpoolError`]; the group is of no use then.
    pub fn append(&mut self, body: &[u8]) -> Result<(), SpoolError> {
        let length = u32::try_from(body.len()).ok();
        let length = length.filter(|_| body.len() <= limits::FRAME_BODY_BYTES);
        let length = length.ok_or(SpoolError::TooLong { bytes: body.len() })?;
        if self.buffer.len() + body.len() > BUFFER_BYTES {
            self.flush()?;
        }
        self.buffer.extend_from_slice(&length.to_le_bytes());
        self.buffer.extend_from_slice(&checksum(body).to_le_bytes());
        self.buffer.extend_from_slice(body);
        Ok(())
    }

    /// Returns the bytes of the group.
    #[must_use]
    pub fn bytes_of_group(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Makes the group safe.
    ///
    /// # Errors
    /// [`SpoolError`]. Whether the group is safe is unknown then.
    pub fn finish(&mut self) -> Result<(), SpoolError> {
        self.flush()?;
        self.file.sync_all().map_err(|source| self.failed("syncing", source))?;
        if !self.is_named {
            self.folder.sync()?;
            self.is_named = true;
        }
        Ok(())
    }

    /// Forgets the group. It may be there again after a loss of power.
    ///
    /// # Errors
    /// [`SpoolError`].
    pub fn clear(&mut self) -> Result<(), SpoolError> {
        self.buffer.clear();
        self.written = 0;
        self.file.set_len(0).map_err(|source| self.failed("truncating", source))
    }

    /// Reads the spool; `None` if it has no complete group.
    ///
    /// # Errors
    /// [`SpoolError`].
    pub fn group(&mut self) -> Result<Option<SpooledGroup>, SpoolError> {
        self.flush()?;
        let read = Records::open(&self.file).and_then(|records| match records {
            Some(records) => records.group(),
            None => Ok(None),
        });
        read.map_err(|source| self.failed("reading", source))
    }

    /// Returns the bodies of the parts of the group, from `Begin` to `End`.
    ///
    /// # Errors
    /// [`SpoolError`], also as an item: the group is not whole then.
    pub fn bodies(&mut self) -> Result<Bodies<'_>, SpoolError> {
        self.flush()?;
        let records = match Records::open(&self.file) {
            Ok(Some(records)) => records,
            Ok(None) => return Err(self.failed("reading", io::ErrorKind::InvalidData.into())),
            Err(source) => return Err(self.failed("reading", source)),
        };
        Ok(Bodies::new(records, self.folder.path().join(&self.name)))
    }

    fn flush(&mut self) -> Result<(), SpoolError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let written = self.file.write_all_at(&self.buffer, self.written);
        written.map_err(|source| self.failed("writing", source))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> SpoolError {
        SpoolError::Io { doing, path: self.folder.path().join(&self.name), source }
    }
}

/// Returns the checksum of a record.
fn checksum(body: &[u8]) -> u32 {
    // XXH3 mixes every bit of the input into the low half too.
    xxh3_64(body) as u32
}

/// Reads a group that is complete from `Begin` to `End`.
fn group_of(head: SpoolHead, first: &[u8]) -> Option<SpooledGroup> {
    match GroupPart::decode(first) {
        Ok(GroupPart::Begin { number, kind, cut }) => {
            Some(SpooledGroup { head, number, kind, cut })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
