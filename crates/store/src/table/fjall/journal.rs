//! Reads of the engine's journal files, before the engine reads them and while it writes them.
//!
//! A journal is a sequence of batches: `1, items u32, seqno u64`, then each item (`2`, kind,
//! compression, keyspace u64, key length u16, value length u32, stored length u32, key, value),
//! then `3, XXH3 of all items, "FJL", 3`; little-endian. The checksum does not cover the sequence
//! number, so we also check that it rises from batch to batch. The engine preallocates files: zeros
//! may follow the last batch.
//!
//! The engine stops its replay at the first invalid byte and truncates the file there, without an
//! error, be it the torn end of a crash or damage in the middle. So we read the files first.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::table::Change;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const TRAILER: &[u8; 4] = b"FJL\x03";

const START_BYTES: u64 = 13;
const ITEM_BYTES: u64 = 21;
const END_BYTES: u64 = 13;

/// Size of one read, in bytes.
const CHUNK_BYTES: usize = 128 * 1024;

/// A position in the journals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    /// The id of the journal. Ids count up.
    pub(super) journal: u64,
    /// The offset in the journal, in bytes.
    pub(super) bytes: u64,
}

/// The extent of the batches in a journal file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// The end of the last whole batch, in bytes.
    pub(super) valid: u64,
    /// True if other bytes than zeros follow.
    pub(super) torn: bool,
    /// The least sequence number that the next batch may have.
    pub(super) next_seqno: u64,
}

/// Returns the bytes that the engine appends to the journal for a batch of `changes`.
pub(super) fn batch_bytes<'a>(changes: impl Iterator<Item = &'a Change>) -> u64 {
    let items: u64 = changes
        .map(|change| match change {
            Change::Put(key, value) => ITEM_BYTES + (key.len() + value.len()) as u64,
            Change::Delete(key) => ITEM_BYTES + key.len() as u64,
        })
        .sum();
    START_BYTES + items + END_BYTES
}

/// Returns the path of a journal.
pub(super) fn path(folder: &Path, id: u64) -> PathBuf {
    folder.join(format!("{id}.jnl"))
}

/// Returns the ids of all journals in `folder`, lowest first.
pub(super) fn list(folder: &Path) -> io::Result<Vec<u64>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let id = name.to_str().and_then(|name| name.strip_suffix(".jnl"));
        if let Some(id) = id.and_then(|id| id.parse().ok()) {
            ids.push(id);
        }
    }
    ids.sort_unstable();
    Ok(ids)
}

/// Reads a journal from the offset `from`, at which a batch begins or the last one ended. The next
/// sequence number must be at least `next_seqno`.
pub(super) fn read(file: &File, from: u64, next_seqno: u64) -> io::Result<Extent> {
    let end = file.metadata()?.len();
    let mut reader = file;
    reader.seek(SeekFrom::Start(from))?;
    let mut cursor =
        Cursor { reader: BufReader::with_capacity(CHUNK_BYTES, reader), at: from, end };
    let mut extent = Extent { valid: from, torn: false, next_seqno };
    loop {
        match cursor.batch()? {
            Step::Batch(seqno) if seqno >= extent.next_seqno && seqno < u64::MAX => {
                extent.valid = cursor.at;
                extent.next_seqno = seqno + 1;
            }
            Step::End => return Ok(extent),
            Step::Batch(_) | Step::Torn => return Ok(Extent { torn: true, ..extent }),
        }
    }
}

/// The result of reading one batch.
enum Step {
    /// A whole batch with this sequence number.
    Batch(u64),
    /// Zeros, or nothing.
    End,
    /// Anything else.
    Torn,
}

struct Cursor<'a> {
    reader: BufReader<&'a File>,
    at: u64,
    end: u64,
}

impl Cursor<'_> {
    /// Reads one batch.
    fn batch(&mut self) -> io::Result<Step> {
        let Some(head) = self.take::<{ START_BYTES as usize }>()? else {
            return self.zeros_from_here(&[]);
        };
        if head[0] != START {
            return self.zeros_from_here(&head);
        }
        let items = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
        let mut seqno = [0; 8];
        seqno.copy_from_slice(&head[5..]);
        let mut hash = Xxh3::new();
        for _ in 0..items {
            if !self.item(&mut hash)? {
                return Ok(Step::Torn);
            }
        }
        let Some(tail) = self.take::<{ END_BYTES as usize }>()? else {
            return Ok(Step::Torn);
        };
        let whole =
            tail[0] == END && tail[1..9] == hash.digest().to_le_bytes() && tail[9..] == TRAILER[..];
        Ok(if whole { Step::Batch(u64::from_le_bytes(seqno)) } else { Step::Torn })
    }

    /// Reads one item and updates `hash` with it. Returns false if there is no item here.
    fn item(&mut self, hash: &mut Xxh3) -> io::Result<bool> {
        let Some(head) = self.take::<{ ITEM_BYTES as usize }>()? else {
            return Ok(false);
        };
        let key = u64::from(u16::from_le_bytes([head[11], head[12]]));
        let value = u64::from(u32::from_le_bytes([head[17], head[18], head[19], head[20]]));
        if head[0] != ITEM || key + value > self.end - self.at {
            return Ok(false);
        }
        hash.update(&head);
        let mut left = key + value;
        let mut chunk = [0; 4096];
        while left > 0 {
            let part = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.reader.read_exact(&mut chunk[..part])?;
            hash.update(&chunk[..part]);
            left -= part as u64;
        }
        self.at += key + value;
        Ok(true)
    }

    /// Takes the next `N` bytes. Returns `None` if the file is too short.
    fn take<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>> {
        if self.end - self.at < N as u64 {
            return Ok(None);
        }
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(Some(bytes))
    }

    /// Checks that `read` and the rest of the file are zeros.
    fn zeros_from_here(&mut self, read: &[u8]) -> io::Result<Step> {
        let mut chunk = [0; 4096];
        let mut bytes = read;
        loop {
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(Step::Torn);
            }
            let count = self.reader.read(&mut chunk)?;
            if count == 0 {
                return Ok(Step::End);
            }
            bytes = &chunk[..count];
        }
    }
}

/// A whole batch in the bytes of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    /// The offset of its first item.
    first: usize,
    items: u32,
    /// The offset after it.
    pub(super) end: usize,
    /// Its sequence number, which no checksum covers.
    pub(super) number: u64,
}

/// Returns the batch that begins at an offset, if it is whole.
pub(super) fn batch_at(bytes: &[u8], at: usize) -> Option<Found> {
    let head = bytes.get(at..)?.first_chunk::<{ START_BYTES as usize }>()?;
    if head[0] != START {
        return None;
    }
    let items = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
    let number = u64::from_le_bytes(*head.last_chunk()?);
    let first = at + START_BYTES as usize;
    let mut end = first;
    for _ in 0..items {
        end = item_at(bytes, end)?.end;
    }
    let tail = bytes.get(end..)?.first_chunk::<{ END_BYTES as usize }>()?;
    let sum = xxh3_64(bytes.get(first..end)?).to_le_bytes();
    let is_whole = tail[0] == END && tail[1..9] == sum && tail[9..] == TRAILER[..];
    is_whole.then_some(Found { first, items, end: end + END_BYTES as usize, number })
}

/// A row that a batch changes.
pub(super) struct JournalRow<'a> {
    pub(super) key: &'a [u8],
    /// `None`: it is deleted.
    pub(super) value: Option<&'a [u8]>,
}

/// Calls `visit` with each row of a batch.
pub(super) fn rows<E>(
    bytes: &[u8],
    batch: &Found,
    visit: &mut dyn FnMut(JournalRow<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = batch.first;
    for _ in 0..batch.items {
        let Some(item) = item_at(bytes, at) else { return Ok(()) };
        if item.keyspace == ROWS {
            visit(JournalRow { key: item.key, value: item.value })?;
        }
        at = item.end;
    }
    Ok(())
}

/// The number of the keyspace of the rows.
const ROWS: u64 = 1;
/// The kind of an item with a value.
const VALUE: u8 = 0;

struct Item<'a> {
    keyspace: u64,
    key: &'a [u8],
    value: Option<&'a [u8]>,
    end: usize,
}

fn item_at(bytes: &[u8], at: usize) -> Option<Item<'_>> {
    let head = bytes.get(at..)?.first_chunk::<{ ITEM_BYTES as usize }>()?;
    if head[0] != ITEM {
        return None;
    }
    let keyspace = u64::from_le_bytes(*head[3..].first_chunk()?);
    let key_len = usize::from(u16::from_le_bytes([head[11], head[12]]));
    let value_len = u32::from_le_bytes([head[17], head[18], head[19], head[20]]) as usize;
    let key_at = at + ITEM_BYTES as usize;
    let value_at = key_at + key_len;
    let end = value_at.checked_add(value_len)?;
    let key = bytes.get(key_at..value_at)?;
    let value = bytes.get(value_at..end)?;
    Some(Item { keyspace, key, value: (head[1] == VALUE).then_some(value), end })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a batch as the engine writes it.
    pub(in super::super) fn batch(seqno: u64, changes: &[Change]) -> Vec<u8> {
        let mut items = Vec::new();
        for change in changes {
            let (kind, key, value) = match change {
                Change::Put(key, value) => (0, key, value.as_slice()),
                Change::Delete(key) => (1, key, &[][..]),
            };
            items.extend([ITEM, kind, 0]);
            items.extend(1_u64.to_le_bytes());
            items.extend(u16::try_from(key.len()).unwrap().to_le_bytes());
            let length = u32::try_from(value.len()).unwrap();
            items.extend(length.to_le_bytes());
            items.extend(length.to_le_bytes());
            items.extend(key);
            items.extend(value);
        }
        let mut bytes = vec![START];
        bytes.extend(u32::try_from(changes.len()).unwrap().to_le_bytes());
        bytes.extend(seqno.to_le_bytes());
        bytes.extend(&items);
        bytes.push(END);
        bytes.extend(xxh3_64(&items).to_le_bytes());
        bytes.extend(TRAILER);
        assert_eq!(bytes.len() as u64, batch_bytes(changes.iter()));
        bytes
    }

    /// Reading a journal of any bytes ends, and never after the end of the file.
    #[test]
    fn any_bytes_are_read_to_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path(), 0);
        let whole = batch(7, &[Change::Put(vec![1; 5], vec![2; 70])]);
        for at in 0..whole.len() {
            for byte in [0, 1, 2, 3, 0x7f, 0xff] {
                let mut bytes = [whole.clone(), whole.clone()].concat();
                bytes[at] = byte;
                fs::write(&path, &bytes).unwrap();
                let file = File::open(&path).unwrap();
                assert!(read(&file, 0, 0).unwrap().valid <= bytes.len() as u64);
            }
            fs::write(&path, &whole[..at]).unwrap();
            let extent = read(&File::open(&path).unwrap(), 0, 0).unwrap();
            assert_eq!((extent.valid, extent.torn), (0, at > 0));
        }
    }
}
