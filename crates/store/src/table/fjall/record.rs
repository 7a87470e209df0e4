//! The file `flushed`: how much of which journal is known to be on stable storage.
//!
//! Two slots, written in turn and each with its checksum, so that a torn write leaves the other.
//! A slot is written after the sync it speaks of and not synced itself: an older one only proves
//! less.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::{Error, Position};

const MAGIC: &[u8; 8] = b"flushed1";
const SLOT_BYTES: usize = 40;
/// A sector each: a torn write of one does not touch the other.
const SLOT_STEP: u64 = 512;

/// The open file.
#[derive(Debug)]
pub(super) struct Record {
    file: File,
    turn: u64,
    position: Position,
}

impl Record {
    /// The file's path in the table's folder.
    pub(super) fn path(home: &Path) -> PathBuf {
        home.join("flushed")
    }

    /// Opens the record of `home`; nothing where there is none yet.
    pub(super) fn open(home: &Path) -> Result<Option<Self>, Error> {
        let path = Self::path(home);
        let file = match File::options().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::from_io("opening the table's record", error)),
        };
        let newest = [0, SLOT_STEP].into_iter().filter_map(|at| read_slot(&file, at)).max();
        let Some((turn, position)) = newest else {
            return Err(Error::Corrupt { place: path, what: "no slot is whole".to_owned() });
        };
        Ok(Some(Self { file, turn, position }))
    }

    /// Makes the record of a new table; it is there whole or not at all.
    pub(super) fn create(home: &Path, position: Position) -> io::Result<Self> {
        let made = home.join("flushed.new");
        let mut file =
            File::options().read(true).write(true).create(true).truncate(true).open(&made)?;
        file.write_all(&slot(0, position))?;
        file.sync_all()?;
        fs::rename(&made, Self::path(home))?;
        File::open(home)?.sync_all()?;
        Ok(Self { file, turn: 0, position })
    }

    /// What is known to be on stable storage.
    pub(super) fn position(&self) -> Position {
        self.position
    }

    /// Before the journals shrink: neither slot says more than `position` when this returns.
    pub(super) fn take_back(&mut self, position: Position) -> io::Result<()> {
        for _ in 0..2 {
            self.write(position)?;
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// `position` is on stable storage now.
    pub(super) fn set(&mut self, position: Position) -> io::Result<()> {
        if position == self.position { Ok(()) } else { self.write(position) }
    }

    fn write(&mut self, position: Position) -> io::Result<()> {
        let turn = self.turn + 1;
        self.file.write_all_at(&slot(turn, position), turn % 2 * SLOT_STEP)?;
        self.turn = turn;
        self.position = position;
        Ok(())
    }
}

fn slot(turn: u64, position: Position) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&turn.to_le_bytes());
    bytes[16..24].copy_from_slice(&position.journal.to_le_bytes());
    bytes[24..32].copy_from_slice(&position.bytes.to_le_bytes());
    let sum = xxh3_64(&bytes[..32]);
    bytes[32..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn read_slot(file: &File, at: u64) -> Option<(u64, Position)> {
    let mut bytes = [0; SLOT_BYTES];
    file.read_exact_at(&mut bytes, at).ok()?;
    let number = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    let whole = bytes[..8] == MAGIC[..] && xxh3_64(&bytes[..32]) == number(32);
    whole.then(|| (number(8), Position { journal: number(16), bytes: number(24) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A torn write of one slot leaves the position before it.
    #[test]
    fn a_torn_slot_leaves_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let position = |bytes| Position { journal: 3, bytes };
        let mut record = Record::create(folder.path(), position(1)).unwrap();
        record.set(position(2)).unwrap();
        record.set(position(3)).unwrap();
        record.set(position(4)).unwrap();
        let open = || Record::open(folder.path()).map(|record| record.unwrap().position());
        assert_eq!(open().unwrap(), position(4));
        let file = File::options().write(true).open(Record::path(folder.path())).unwrap();
        file.write_all_at(&[9; 7], SLOT_STEP + 20).unwrap();
        assert_eq!(open().unwrap(), position(3));
        file.set_len(30).unwrap();
        assert!(matches!(open(), Err(Error::Corrupt { .. })));
    }
}
