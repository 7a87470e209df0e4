//! The file `flushed`: the position up to which the journals are synced.
//!
//! It has two slots, each with a checksum, which are written in turn: a torn write leaves the other
//! slot. A slot is written after the sync that it records and is not synced itself. If it is lost,
//! the older slot records an earlier position, which is true as well.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::journal::Position;
use crate::table::Error;

const MAGIC: &[u8; 8] = b"flushed1";
const SLOT_BYTES: usize = 40;
/// The distance of the slots. Each has a sector, so that a torn write of one leaves the other.
const SLOT_STEP: u64 = 512;

/// The open file `flushed`.
#[derive(Debug)]
pub(super) struct SyncRecord {
    file: File,
    /// The number of the last write.
    sequence: u64,
    position: Position,
}

impl SyncRecord {
    /// Returns the path of the file in the folder of the table.
    pub(super) fn path(home: &Path) -> PathBuf {
        home.join("flushed")
    }

    /// Returns the position that the record in the folder `home` has, without a change of anything;
    /// `None` if there is none that is whole.
    pub(super) fn read(home: &Path) -> Option<Position> {
        let file = File::open(Self::path(home)).ok()?;
        newest_slot(&file).map(|(_, position)| position)
    }

    /// Opens the record in the folder `home`. Returns `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if neither slot is whole.
    pub(super) fn open(home: &Path) -> Result<Option<Self>, Error> {
        let path = Self::path(home);
        let file = match File::options().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::from_io("opening the table's sync record", error)),
        };
        let Some((sequence, position)) = newest_slot(&file) else {
            let what = "neither of its two slots is whole".to_owned();
            return Err(Error::Corrupt { path, what });
        };
        Ok(Some(Self { file, sequence, position }))
    }

    /// Creates the record of a new table, atomically.
    pub(super) fn create(home: &Path, position: Position) -> io::Result<Self> {
        let new = home.join("flushed.new");
        let mut file =
            File::options().read(true).write(true).create(true).truncate(true).open(&new)?;
        file.write_all(&slot(0, position))?;
        file.sync_all()?;
        fs::rename(&new, Self::path(home))?;
        File::open(home)?.sync_all()?;
        Ok(Self { file, sequence: 0, position })
    }

    /// Returns the position up to which the journals are synced.
    pub(super) fn position(&self) -> Position {
        self.position
    }

    /// Records an earlier position, in both slots and synced, before the journals are truncated.
    pub(super) fn rewind(&mut self, position: Position) -> io::Result<()> {
        for _ in 0..2 {
            self.write(position)?;
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// Records that the journals are synced up to `position`.
    pub(super) fn advance(&mut self, position: Position) -> io::Result<()> {
        if position == self.position { Ok(()) } else { self.write(position) }
    }

    fn write(&mut self, position: Position) -> io::Result<()> {
        let sequence = self.sequence + 1;
        self.file.write_all_at(&slot(sequence, position), sequence % 2 * SLOT_STEP)?;
        self.sequence = sequence;
        self.position = position;
        Ok(())
    }
}

fn slot(sequence: u64, position: Position) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&sequence.to_le_bytes());
    bytes[16..24].copy_from_slice(&position.journal.to_le_bytes());
    bytes[24..32].copy_from_slice(&position.bytes.to_le_bytes());
    let sum = xxh3_64(&bytes[..32]);
    bytes[32..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn newest_slot(file: &File) -> Option<(u64, Position)> {
    [0, SLOT_STEP].into_iter().filter_map(|at| read_slot(file, at)).max()
}

fn read_slot(file: &File, at: u64) -> Option<(u64, Position)> {
    let mut bytes = [0; SLOT_BYTES];
    file.read_exact_at(&mut bytes, at).ok()?;
    let number = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    let is_whole = bytes[..8] == MAGIC[..] && xxh3_64(&bytes[..32]) == number(32);
    is_whole.then(|| (number(8), Position { journal: number(16), bytes: number(24) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A torn write of one slot leaves the position before it.
    #[test]
    fn a_torn_slot_leaves_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let position = |bytes| Position { journal: 3, bytes };
        let mut record = SyncRecord::create(folder.path(), position(1)).unwrap();
        record.advance(position(2)).unwrap();
        record.advance(position(3)).unwrap();
        record.advance(position(4)).unwrap();
        let open = || SyncRecord::open(folder.path()).map(|record| record.unwrap().position());
        assert_eq!(open().unwrap(), position(4));
        let file = File::options().write(true).open(SyncRecord::path(folder.path())).unwrap();
        file.write_all_at(&[9; 7], SLOT_STEP + 20).unwrap();
        assert_eq!(open().unwrap(), position(3));
        file.set_len(30).unwrap();
        assert!(matches!(open(), Err(Error::Corrupt { .. })));
    }
}
