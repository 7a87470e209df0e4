//! The questions of a primary within a resync, and the bits of their answers.

use super::{put_bound, take_bound};
use crate::codec::DecodeError;
use crate::codec::field::{Field, Reader};
use crate::error::{Code, Error};
use crate::id::{Generation, InodeId};
use crate::limits;

/// A range of keys, and the hash of the rows that the primary has in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedRange {
    /// The first key; empty for that of the first row.
    pub from: Vec<u8>,
    /// The first key after the range; empty if no row comes after it.
    pub until: Vec<u8>,
    /// BLAKE3 of its mirrored rows in the order of their keys: of each the length of the key u32,
    /// the key, the length of the value u32, and the value.
    pub hash: [u8; 32],
}

/// Blocks of a content file, of 1 MiB each, with their hashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedBlocks {
    /// The inode.
    pub ino: InodeId,
    /// The generation of its content.
    pub generation: Generation,
    /// The number of the first block, from 0.
    pub first: u64,
    /// BLAKE3 of each block; the last one of the file may be shorter.
    pub hashes: Vec<[u8; 32]>,
}

impl ComparedRange {
    pub(super) fn put(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        put_bound(&self.from, out)?;
        put_bound(&self.until, out)?;
        out.extend_from_slice(&self.hash);
        Ok(())
    }

    pub(super) fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let start = take_bound(from.at("Compare.from"))?;
        let until = take_bound(from.at("Compare.until"))?;
        if !until.is_empty() && until <= start {
            return Err(from.invalid());
        }
        Ok(Self { from: start, until, hash: from.at("Compare.hash").array()? })
    }
}

impl ComparedBlocks {
    pub(super) fn put(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        if self.hashes.len() > limits::COMPARED {
            return Err(Code::TooBig.into());
        }
        u64::put(&self.ino.raw(), out)?;
        u32::put(&self.generation.0, out)?;
        u64::put(&self.first, out)?;
        self.hashes.iter().for_each(|hash| out.extend_from_slice(hash));
        Ok(())
    }

    pub(super) fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let ino = InodeId::from_raw(u64::take(from.at("Blocks.ino"))?);
        let generation = Generation(u32::take(from.at("Blocks.generation"))?);
        let first = u64::take(from.at("Blocks.first"))?;
        if first > limits::FILE_BYTES / limits::COMPARED_BLOCK_BYTES as u64 {
            return Err(from.invalid());
        }
        let mut hashes = Vec::new();
        while from.left() > 0 {
            if hashes.len() == limits::COMPARED {
                return Err(from.invalid());
            }
            hashes.push(from.at("Blocks.hash").array()?);
        }
        Ok(Self { ino, generation, first, hashes })
    }
}

/// Adds bits: their number u16, and a byte for each eight of them, the first one lowest. Those
/// beyond [`limits::COMPARED`] are left out.
pub(super) fn put_bits(bits: &[bool], out: &mut Vec<u8>) {
    let bits = &bits[..bits.len().min(limits::COMPARED)];
    out.extend_from_slice(&u16::try_from(bits.len()).unwrap_or(u16::MAX).to_le_bytes());
    for eight in bits.chunks(8) {
        let byte = eight.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
        out.push(byte);
    }
}

/// Takes bits. Those that fill the last byte must be 0.
pub(super) fn take_bits(from: &mut Reader<'_>) -> Result<Vec<bool>, DecodeError> {
    let count = from.length::<u16>(limits::COMPARED)?;
    let bytes = from.bytes(count.div_ceil(8))?.to_vec();
    let bit = |at: usize| bytes[at / 8] >> (at % 8) & 1 == 1;
    let bits = (0..count).map(bit).collect();
    match (count..bytes.len() * 8).any(bit) {
        true => Err(from.invalid()),
        false => Ok(bits),
    }
}
