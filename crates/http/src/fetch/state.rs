//! The state file of a download: the name of the version, and the received blocks of each extent.
//!
//! It begins with a head of [`HEAD_BYTES`]: magic, version u16, the form of the transfer u16, size
//! u64, the lengths of URL and tag, each u32, both texts, and at its end the BLAKE3 hash of all
//! these bytes. After the head each extent has a record of [`RECORD_BYTES`]: the bits of its blocks
//! u16, 1 if there is a hash u8, five zeros, the hash. A record proves nothing: a run that goes on
//! with the download hashes the bytes again.

use pelago_wire::blocks::{ExtentHash, HASH_BYTES};
use pelago_wire::limits::{ENTITY_TAG_BYTES, URL_BYTES};

/// Bytes of the head, which precedes the records.
pub(super) const HEAD_BYTES: usize = 8192;
/// Bytes of a record.
pub(super) const RECORD_BYTES: usize = 40;

const MAGIC: [u8; 8] = *b"PELGETS\n";
const VERSION: u16 = 1;
/// The offset of the texts.
const TEXTS: usize = 32;
const HASH_AT: usize = HEAD_BYTES - HASH_BYTES;
/// The encoding of a size that the server does not say.
const UNKNOWN: u64 = u64::MAX;

const _: () = assert!(TEXTS + URL_BYTES + ENTITY_TAG_BYTES <= HASH_AT, "both texts fit the head");

/// The form in which a server sends a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Blocks in any order, and the hash of each extent.
    Blocks = 1,
    /// The bytes in order.
    Plain = 2,
}

/// The version that is being downloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StateHead {
    pub(super) url: String,
    /// The validator of the version: its entity tag, or else its date; empty if it has neither.
    pub(super) tag: String,
    pub(super) form: Form,
    /// Bytes of the file, if they are known.
    pub(super) size: Option<u64>,
}

/// The received blocks of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Record {
    /// A bit for each block.
    pub(super) have: u16,
    /// The hash that the extent had when it was verified.
    pub(super) hash: Option<ExtentHash>,
}

impl StateHead {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HEAD_BYTES];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(10, &(self.form as u16).to_le_bytes());
        put(16, &self.size.unwrap_or(UNKNOWN).to_le_bytes());
        // Both are within their limits.
        put(24, &(self.url.len() as u32).to_le_bytes());
        put(28, &(self.tag.len() as u32).to_le_bytes());
        put(TEXTS, self.url.as_bytes());
        put(TEXTS + self.url.len(), self.tag.as_bytes());
        let hash = blake3::hash(&out[..HASH_AT]);
        out[HASH_AT..].copy_from_slice(hash.as_bytes());
        out
    }

    /// Decodes a head. Returns `None` if it is not valid, as after a write that was cut.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, hash) = bytes.split_at_checked(HASH_AT)?;
        if blake3::hash(head).as_bytes() != hash || head[..8] != MAGIC {
            return None;
        }
        let number = |at: usize, bytes: usize| {
            head[at..at + bytes].iter().rev().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte))
        };
        let form = match (number(8, 2), number(10, 2)) {
            (1, 1) => Form::Blocks,
            (1, 2) => Form::Plain,
            _ => return None,
        };
        let text = |at: usize, length: usize| {
            let bytes = head.get(at..at.checked_add(length)?)?;
            String::from_utf8(bytes.to_vec()).ok()
        };
        let [url, tag] = [number(24, 4) as usize, number(28, 4) as usize];
        let size = number(16, 8);
        Some(Self {
            form,
            size: (size != UNKNOWN).then_some(size),
            tag: text(TEXTS + url, tag)?,
            url: text(TEXTS, url)?,
        })
    }
}

impl Record {
    /// Returns the offset of the record of an extent.
    pub(super) const fn at(extent: u64) -> u64 {
        HEAD_BYTES as u64 + extent * RECORD_BYTES as u64
    }

    pub(super) fn encode(self) -> [u8; RECORD_BYTES] {
        let mut out = [0; RECORD_BYTES];
        out[..2].copy_from_slice(&self.have.to_le_bytes());
        out[2] = u8::from(self.hash.is_some());
        out[8..].copy_from_slice(&self.hash.unwrap_or_default());
        out
    }

    pub(super) fn decode(bytes: &[u8; RECORD_BYTES]) -> Self {
        let [low, high, has_hash, _, _, _, _, _, hash @ ..] = *bytes;
        let have = u16::from_le_bytes([low, high]);
        Self { have, hash: (has_hash == 1).then_some(hash) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written_and_a_torn_one_not_at_all() {
        for (form, size) in [(Form::Blocks, Some(7)), (Form::Plain, None)] {
            let url = "x".repeat(URL_BYTES);
            let head = StateHead { url, tag: "\"t\"".to_owned(), form, size };
            let mut bytes = head.encode();
            assert_eq!(StateHead::decode(&bytes), Some(head));
            assert_eq!(StateHead::decode(&bytes[..HEAD_BYTES - 1]), None);
            bytes[5000] ^= 1;
            assert_eq!(StateHead::decode(&bytes), None);
        }
        assert_eq!(StateHead::decode(&[0; HEAD_BYTES]), None);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for record in [
            Record::default(),
            Record { have: 0x8001, hash: None },
            Record { have: u16::MAX, hash: Some([7; HASH_BYTES]) },
        ] {
            assert_eq!(Record::decode(&record.encode()), record);
        }
        assert_eq!(Record::decode(&[0; RECORD_BYTES]), Record::default(), "as of a hole");
    }
}
