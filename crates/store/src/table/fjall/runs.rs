//! Reads of the engine's sorted runs without the engine, block by block, past damage.
//!
//! A run is a sequence of blocks: `"LSM", 3, kind u8, XXH3-128 of the bytes, length u32, unpacked
//! length u32, low half of XXH3-128 of the header so far`, and the bytes; nothing is packed. Blocks
//! of kind 0 come first and have the rows, in the order of their keys; of one key the newest
//! version comes first. The bytes of such a block are items, a 255, an index, and 31 bytes about
//! both: the first of these says after how many items one has its whole key, the last four how many
//! there are. An item is its type, its sequence number, the length of its key (of what it shares
//! with the last whole key, and of the rest), the key, and for a value its length and bytes;
//! numbers are varints.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

use super::archive::{self, number, take};
use super::found::{FoundRow, LostRows};
use super::{manifest, pages};
use crate::table::Error;

const HEADER_BYTES: usize = 33;
const MAGIC: [u8; 4] = *b"LSM\x03";
const ROWS: u8 = 0;
const ABOUT_BYTES: usize = 31;
const VALUE: u8 = 0;
const DELETED: [u8; 2] = [1, 2];
/// Most bytes of a block: some rows of 4 KiB together, or one that is larger.
const BLOCK_BYTES: u64 = 4 << 20;
/// Bytes that are searched for the next block at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// A sorted run that the manifest lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ListedRun {
    pub(super) id: u64,
    /// The number to add to the sequence numbers in the file.
    pub(super) base: u64,
}

/// Returns the file of a run of the keyspace in `folder`.
pub(super) fn path(folder: &Path, id: u64) -> PathBuf {
    folder.join("tables").join(id.to_string())
}

/// Returns the runs that the manifest of the keyspace in `folder` lists.
///
/// # Errors
/// [`Error::Corrupt`] if the manifest, or the file that names it, is damaged.
pub(super) fn listed(folder: &Path) -> Result<Vec<ListedRun>, Error> {
    let manifest = manifest::check(&folder.join("current"))?;
    let what = "it does not list the sorted runs".to_owned();
    list_in(&manifest.bytes).ok_or(Error::Corrupt { path: manifest.path, what })
}

/// Returns the runs that the manifest lists, if one bit of it or of `current` is wrong and no more.
pub(super) fn listed_but_for_a_bit(folder: &Path) -> Option<Vec<ListedRun>> {
    list_in(&manifest::put_right(&folder.join("current"))?)
}

fn list_in(manifest: &[u8]) -> Option<Vec<ListedRun>> {
    let sections = archive::sections_in(manifest)?;
    let tables = sections.iter().find(|section| section.name == b"tables")?;
    parse_listed(manifest.get(tables.at as usize..tables.end() as usize)?)
}

fn parse_listed(bytes: &[u8]) -> Option<Vec<ListedRun>> {
    let mut rest = bytes;
    let mut runs = Vec::new();
    let [levels] = take(&mut rest)?;
    for _ in 0..levels {
        let [parts] = take(&mut rest)?;
        for _ in 0..parts {
            for _ in 0..u32::from_le_bytes(take(&mut rest)?) {
                let id = number(&mut rest)?;
                let _type_and_checksum = take::<17>(&mut rest)?;
                runs.push(ListedRun { id, base: number(&mut rest)? });
            }
        }
    }
    Some(runs)
}

/// Checks that the tables of contents of all runs of the keyspace in `folder` are whole.
///
/// # Errors
/// [`Error::Corrupt`] names the first that is not.
pub(super) fn check_contents(folder: &Path) -> Result<(), Error> {
    for run in listed(folder)? {
        let path = path(folder, run.id);
        let sections =
            File::open(&path).and_then(|file| archive::sections(&file, file.metadata()?.len()));
        let what = match sections {
            Ok(Some(_)) => continue,
            Ok(None) => "its table of contents is damaged",
            Err(error) if error.kind() == io::ErrorKind::NotFound => "it is missing",
            Err(error) => return Err(Error::from_io("reading the table's files", error)),
        };
        return Err(Error::Corrupt { path, what: what.to_owned() });
    }
    Ok(())
}

/// Calls `visit` with each row of a run of `len` bytes that is whole. Returns the ranges of keys in
/// which rows are lost: those of blocks that are damaged, or that the disk cannot read.
///
/// # Errors
/// Those of `visit`.
pub(super) fn read(
    file: &impl FileExt,
    len: u64,
    base: u64,
    visit: &mut dyn FnMut(FoundRow<'_>) -> Result<(), Error>,
) -> Result<Vec<LostRows>, Error> {
    // Without a table of contents the rows end where another block begins.
    let sections = archive::sections(file, len).ok().flatten().unwrap_or_default();
    let rows_end = sections.iter().find(|section| section.name == b"data");
    let end = rows_end.map_or(len, |section| section.end().min(len));
    let mut reading = Reading { base, last_key: Vec::new(), lost: Vec::new(), is_behind: false };
    let mut at = 0;
    while at < end {
        match header_at(file, at, end) {
            Some(header) if header.kind != ROWS => return Ok(reading.lost),
            Some(header) => {
                let mut bytes = vec![0; header.len as usize];
                let read = file.read_exact_at(&mut bytes, at + HEADER_BYTES as u64);
                let items = (read.is_ok() && xxh3_128(&bytes) == header.sum)
                    .then(|| parse_items(&bytes))
                    .flatten();
                match items {
                    Some(items) => reading.visit(&items, visit)?,
                    None => reading.lose(),
                }
                at += HEADER_BYTES as u64 + header.len;
            }
            None => {
                reading.lose();
                match next_header(file, at + 1, end) {
                    Some(next) => at = next,
                    None => return Ok(reading.lost),
                }
            }
        }
    }
    Ok(reading.lost)
}

/// The position in the reading of a run.
struct Reading {
    base: u64,
    /// The key of the last row that was read.
    last_key: Vec<u8>,
    lost: Vec<LostRows>,
    /// True if rows after `last_key` are lost.
    is_behind: bool,
}

impl Reading {
    /// Records that a block is lost.
    fn lose(&mut self) {
        if !self.is_behind {
            self.lost.push(LostRows { after: self.last_key.clone(), before: None });
        }
        self.is_behind = true;
    }

    fn visit(
        &mut self,
        items: &[Item<'_>],
        visit: &mut dyn FnMut(FoundRow<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if let Some(lost) = self.lost.last_mut().filter(|_| self.is_behind) {
            // A newer version of this very key may be in the lost block.
            lost.before = items.first().map(|first| [&first.key[..], &[0]].concat());
        }
        self.is_behind = false;
        for item in items {
            let number = item.number.saturating_add(self.base);
            visit(FoundRow { key: &item.key, value: item.value, number })?;
        }
        if let Some(last) = items.last() {
            self.last_key.clone_from(&last.key);
        }
        Ok(())
    }
}

struct Header {
    kind: u8,
    sum: u128,
    /// Bytes of the block after the header.
    len: u64,
}

/// Returns the header at an offset, if there is a whole one.
fn header_at(file: &impl FileExt, at: u64, end: u64) -> Option<Header> {
    let mut bytes = [0; HEADER_BYTES];
    file.read_exact_at(&mut bytes, at).ok()?;
    let mut rest = &bytes[..];
    let is_header = take(&mut rest) == Some(MAGIC);
    let [kind] = take(&mut rest)?;
    let sum = u128::from_le_bytes(take(&mut rest)?);
    let len = u64::from(u32::from_le_bytes(take(&mut rest)?));
    let unpacked = u64::from(u32::from_le_bytes(take(&mut rest)?));
    let own_sum = u32::from_le_bytes(take(&mut rest)?);
    let is_whole = is_header && own_sum == xxh3_128(&bytes[..HEADER_BYTES - 4]) as u32;
    let fits = at + HEADER_BYTES as u64 + len <= end && len == unpacked && len <= BLOCK_BYTES;
    (is_whole && (fits || kind != ROWS)).then_some(Header { kind, sum, len })
}

/// Returns the offset of the next whole header from `from` on.
fn next_header(file: &impl FileExt, from: u64, end: u64) -> Option<u64> {
    let mut at = from;
    let mut chunk = vec![0; CHUNK_BYTES];
    while at < end {
        let wanted = chunk.len().min((end - at) as usize);
        let read = pages::read_at(file, &mut chunk[..wanted], at).bytes;
        if read < MAGIC.len() {
            return None;
        }
        let found = chunk[..read].windows(MAGIC.len()).enumerate().find(|(offset, bytes)| {
            **bytes == MAGIC && header_at(file, at + *offset as u64, end).is_some()
        });
        if let Some((offset, _)) = found {
            return Some(at + offset as u64);
        }
        // A magic may lie across the end of the chunk.
        at += (read - MAGIC.len() + 1) as u64;
    }
    None
}

struct Item<'a> {
    key: Vec<u8>,
    value: Option<&'a [u8]>,
    number: u64,
}

/// Returns the items of a block of rows; `None` if it has none of ours.
fn parse_items(bytes: &[u8]) -> Option<Vec<Item<'_>>> {
    let about = bytes.len().checked_sub(ABOUT_BYTES)?;
    let (mut rest, about) = bytes.split_at(about);
    let whole_every = usize::from(about[0]);
    let count = u32::from_le_bytes(*about.last_chunk::<4>()?) as usize;
    let mut items: Vec<Item<'_>> = Vec::new();
    let mut whole = Vec::new();
    for number in 0..count {
        let [kind] = take(&mut rest)?;
        let sequence = varint(&mut rest)?;
        let is_whole = number.checked_rem(whole_every)? == 0;
        let shared = if is_whole { 0 } else { varint(&mut rest)? as usize };
        let own = take_bytes(&mut rest)?;
        let key = [whole.get(..shared)?, own].concat();
        if is_whole {
            whole.clone_from(&key);
        }
        let value = match kind {
            VALUE => Some(take_bytes(&mut rest)?),
            kind if DELETED.contains(&kind) => None,
            _ => return None,
        };
        items.push(Item { key, value, number: sequence });
    }
    Some(items)
}

/// Takes bytes with their length before them.
fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(varint(rest)?).ok()?;
    let (bytes, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(bytes)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let [byte] = take(rest)?;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a manifest that lists these runs, as the engine writes it.
    pub(in super::super) fn manifest(runs: &[ListedRun]) -> Vec<u8> {
        let mut tables = vec![1, 1];
        tables.extend((runs.len() as u32).to_le_bytes());
        for run in runs {
            tables.extend(run.id.to_le_bytes());
            tables.extend([0; 17]);
            tables.extend(run.base.to_le_bytes());
        }
        archive::tests::archive(&[("tables", &tables)])
    }

    /// Returns a block as the engine writes it.
    fn block(kind: u8, bytes: &[u8]) -> Vec<u8> {
        let mut block = MAGIC.to_vec();
        block.push(kind);
        block.extend(xxh3_128(bytes).to_le_bytes());
        block.extend((bytes.len() as u32).to_le_bytes());
        block.extend((bytes.len() as u32).to_le_bytes());
        block.extend((xxh3_128(&block) as u32).to_le_bytes());
        block.extend(bytes);
        block
    }

    /// Returns a block of rows with one row each, by the key; three bytes of the key are shared.
    fn rows(keys: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, key) in keys.iter().enumerate() {
            bytes.extend([VALUE, 9]);
            match number % 2 {
                0 => bytes.extend([4, b'k', b'e', b'y', *key]),
                _ => bytes.extend([3, 1, *key]),
            }
            bytes.extend([1, *key]);
        }
        bytes.push(255);
        let mut about = [0; ABOUT_BYTES];
        about[0] = 2;
        about[ABOUT_BYTES - 4..].copy_from_slice(&(keys.len() as u32).to_le_bytes());
        bytes.extend(about);
        block(ROWS, &bytes)
    }

    /// Returns the last bytes of the keys that are read, and the lost ranges by the same bytes.
    fn read_bytes(bytes: &[u8]) -> (Vec<u8>, Vec<(u8, u8)>) {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, bytes).unwrap();
        found_in(&file, bytes.len())
    }

    /// The same for a file that may be no ordinary one.
    fn found_in(file: &impl FileExt, len: usize) -> (Vec<u8>, Vec<(u8, u8)>) {
        let mut found = Vec::new();
        let lost = read(file, len as u64, 5, &mut |row| {
            assert_eq!((row.number, row.value), (14, Some(&row.key[3..])));
            found.push(row.key[3]);
            Ok(())
        });
        // The range ends after the first key that is read again: one zero more.
        let edge = |key: Option<&Vec<u8>>| key.and_then(|key| key.get(3).copied()).unwrap_or(0);
        let lost = lost.unwrap();
        let lost = lost.iter().map(|lost| (edge(Some(&lost.after)), edge(lost.before.as_ref())));
        (found, lost.collect())
    }

    /// Each byte of a block is covered by a checksum: damage costs that block and no other.
    #[test]
    fn a_damaged_block_costs_its_own_rows() {
        let blocks = [rows(b"ab"), rows(b"cde"), rows(b"fg"), block(1, b"index")];
        let good = blocks.concat();
        assert_eq!(read_bytes(&good), (b"abcdefg".to_vec(), Vec::new()));
        let second = blocks[0].len()..blocks[0].len() + blocks[1].len();
        for at in second {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert_eq!(read_bytes(&bad), (b"abfg".to_vec(), vec![(b'b', b'f')]), "byte {at}");
        }
        let first = blocks[0].len();
        assert_eq!(read_bytes(&good[..first + 20]), (b"ab".to_vec(), vec![(b'b', 0)]));
        assert_eq!(read_bytes(&[]), (Vec::new(), Vec::new()));
    }

    /// A page that the disk cannot read costs the blocks that touch it; another page may have the
    /// table of contents.
    #[test]
    fn a_page_that_cannot_be_read_costs_its_own_blocks() {
        let keys: Vec<u8> = (1..=250).collect();
        let data: Vec<u8> = keys.chunks(2).flat_map(rows).collect();
        let bytes = archive::tests::archive(&[("data", &data), ("index", &block(1, &[0; 4_000]))]);
        let pages = bytes.len().div_ceil(4096) as u64;
        assert!(pages >= 4, "{pages}");
        for page in 0..pages {
            let bad = pages::tests::BadPage::new(&bytes, page);
            let (found, lost) = found_in(&bad, bytes.len());
            let missing: Vec<u8> =
                keys.iter().copied().filter(|key| !found.contains(key)).collect();
            assert!(missing.len() < 120 && missing.len() + found.len() == 250, "page {page}");
            match (missing.first(), missing.last()) {
                // Behind the last block is no row.
                (Some(first), Some(250)) => assert_eq!(lost, [(first - 1, 0)]),
                (Some(first), Some(last)) => assert_eq!(lost, [(first - 1, last + 1)]),
                _ => assert!(lost.is_empty() && page == pages - 1, "page {page}: {lost:?}"),
            }
        }
    }

    /// Reading a run of any bytes ends.
    #[test]
    fn any_bytes_are_read_to_an_end() {
        let good = [rows(b"ab"), rows(b"cde")].concat();
        for at in 0..good.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[at] = byte;
                read_bytes(&bad);
            }
            // Without the checksum the bytes of a block may be anything.
            parse_items(&good[HEADER_BYTES..at.max(HEADER_BYTES)]);
        }
    }
}
