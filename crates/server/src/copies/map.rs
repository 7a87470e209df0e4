//! The file that remembers the copies of a file (format.md, 6.4): its version, and the hash of each
//! block that is here.

use std::collections::BTreeMap;

use pelago_holder::FileVersion;
use pelago_wire::{InodeId, Time};

use super::BLOCK;

const MAGIC: [u8; 8] = *b"PELAGOCP";
const FORM: u16 = 1;
/// Bytes before the blocks.
const HEAD: usize = 54;
/// Bytes of each block.
const EACH: usize = 24;
/// Bytes of the hash at the end.
const SUM: usize = 16;

/// The first bytes of the BLAKE3 hash of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockHash(pub(super) [u8; 16]);

impl BlockHash {
    pub(super) fn of(block: &[u8]) -> Self {
        let mut first = [0; 16];
        first.copy_from_slice(&blake3::hash(block).as_bytes()[..16]);
        Self(first)
    }

    /// Returns whether these are the first bytes of a hash.
    pub(super) fn begins(self, hash: &[u8; 32]) -> bool {
        hash.starts_with(&self.0)
    }
}

/// The content of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Map {
    pub(super) version: FileVersion,
    /// The blocks that are here.
    pub(super) blocks: BTreeMap<u64, BlockHash>,
}

/// Returns the bytes of a map.
pub(super) fn encode(map: &Map) -> Vec<u8> {
    let Map { version, blocks } = map;
    let mut out = Vec::with_capacity(HEAD + blocks.len() * EACH + SUM);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&FORM.to_le_bytes());
    out.extend_from_slice(&version.ino.raw().to_le_bytes());
    out.extend_from_slice(&version.size.to_le_bytes());
    for time in [version.mtime, version.ctime] {
        out.extend_from_slice(&time.seconds.to_le_bytes());
        out.extend_from_slice(&time.nanos.to_le_bytes());
    }
    out.extend_from_slice(&(blocks.len() as u32).to_le_bytes());
    for (block, hash) in blocks {
        out.extend_from_slice(&block.to_le_bytes());
        out.extend_from_slice(&hash.0);
    }
    out.extend_from_slice(&BlockHash::of(&out).0);
    out
}

/// Returns what a map says; `None` if it is cut, was changed, or is of another form.
pub(super) fn decode(bytes: &[u8]) -> Option<Map> {
    let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(SUM)?)?;
    if BlockHash::of(body).0 != *sum {
        return None;
    }
    let mut rest = body;
    if take::<8>(&mut rest)? != MAGIC || u16::from_le_bytes(take(&mut rest)?) != FORM {
        return None;
    }
    let ino = InodeId::from_raw(u64::from_le_bytes(take(&mut rest)?));
    let size = u64::from_le_bytes(take(&mut rest)?);
    let mtime = time(&mut rest)?;
    let ctime = time(&mut rest)?;
    let count = u32::from_le_bytes(take(&mut rest)?) as usize;
    if rest.len() != count.checked_mul(EACH)? {
        return None;
    }
    let mut blocks = BTreeMap::new();
    while !rest.is_empty() {
        let block = u64::from_le_bytes(take(&mut rest)?);
        let hash = BlockHash(take(&mut rest)?);
        if block >= size.div_ceil(BLOCK) || blocks.insert(block, hash).is_some() {
            return None;
        }
    }
    Some(Map { version: FileVersion { ino, size, mtime, ctime }, blocks })
}

fn time(rest: &mut &[u8]) -> Option<Time> {
    let seconds = i64::from_le_bytes(take(rest)?);
    Some(Time { seconds, nanos: u32::from_le_bytes(take(rest)?) })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version() -> FileVersion {
        FileVersion {
            ino: InodeId::from_raw(0x0102_0304_0506_0708),
            size: 3 * BLOCK + 1,
            mtime: Time { seconds: -2, nanos: 999_999_999 },
            ctime: Time { seconds: 1_800_000_000, nanos: 5 },
        }
    }

    fn map(blocks: &[u64]) -> Map {
        let blocks = blocks.iter().map(|block| (*block, BlockHash([3; 16])));
        Map { version: version(), blocks: blocks.collect() }
    }

    #[test]
    fn a_map_survives_its_bytes() {
        let whole = map(&[0, 3]);
        let bytes = encode(&whole);
        assert_eq!(bytes.len(), HEAD + 2 * EACH + SUM);
        assert_eq!(decode(&bytes), Some(whole));
        assert_eq!(decode(&encode(&map(&[]))), Some(map(&[])));
    }

    /// The bytes of version 1, as format.md has them.
    #[test]
    fn a_map_is_the_bytes_it_always_was() {
        let bytes = encode(&map(&[0, 3]));
        let digits = pelago_keynote::hex::text(&bytes[..HEAD + EACH]);
        assert_eq!(
            digits,
            "50454c41474f43500100080706050403020101000c0000000000\
             feffffffffffffffffc99a3b00d2496b000000000500000002000000\
             0000000000000000\
             03030303030303030303030303030303"
                .replace(' ', "")
        );
    }

    #[test]
    fn what_is_not_a_whole_map_is_none() {
        let bytes = encode(&map(&[0, 3]));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), None, "{cut}");
            let mut changed = bytes.clone();
            changed[cut] ^= 1;
            assert_eq!(decode(&changed), None, "{cut}");
        }
        // A block after the end of the file.
        assert_eq!(decode(&encode(&map(&[4]))), None);
    }
}
