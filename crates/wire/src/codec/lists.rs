//! The encoding of lists, each with its number of entries.

use super::field::{DecodeError, Field, Reader};
use crate::error::{Code, Error};
use crate::id::InodeId;
use crate::local_cache::{Recalled, Touched};
use crate::name::Name;
use crate::reply::{DirEntry, Entry, PassedRevocation};
use crate::{limits, reserved};

/// Entries of a listing: their number as u16, and each of them.
pub(crate) enum DirEntries {}

impl Field for DirEntries {
    type Value = Vec<DirEntry>;
    const MOST: usize = u16::MOST + limits::LIST_ENTRIES * DirEntry::MOST;

    fn put(value: &Vec<DirEntry>, out: &mut Vec<u8>) -> Result<(), Error> {
        if value.len() > limits::LIST_ENTRIES {
            return Err(Code::Bug.into());
        }
        let number = u16::try_from(value.len()).map_err(|_| Code::Bug)?;
        u16::put(&number, out)?;
        value.iter().try_for_each(|entry| DirEntry::put(entry, out))
    }

    fn take(from: &mut Reader<'_>) -> Result<Vec<DirEntry>, DecodeError> {
        let number = from.length::<u16>(limits::LIST_ENTRIES)?;
        // The number is a claim; memory is taken only for entries that the body has room for.
        let mut entries = Vec::with_capacity(number.min(from.left() / LEAST_DIR_ENTRY));
        for _ in 0..number {
            entries.push(DirEntry::take(from)?);
        }
        Ok(entries)
    }
}

/// Bytes of an entry with a name of one byte and without attributes.
const LEAST_DIR_ENTRY: usize = DirEntry::MOST - limits::NAME_BYTES + 1 - Entry::MOST;

/// The addresses of servers, each as text: their number as u16, and of each its length as u16 and
/// its bytes.
pub(crate) enum ServerAddresses {}

impl Field for ServerAddresses {
    type Value = Vec<String>;
    const MOST: usize =
        u16::MOST + limits::STORE_SERVERS * (u16::MOST + limits::SERVER_ADDRESS_BYTES);

    fn put(value: &Vec<String>, out: &mut Vec<u8>) -> Result<(), Error> {
        if value.len() > limits::STORE_SERVERS {
            return Err(Code::Bug.into());
        }
        u16::put(&u16::try_from(value.len()).map_err(|_| Code::Bug)?, out)?;
        value.iter().try_for_each(|address| {
            if address.len() > limits::SERVER_ADDRESS_BYTES {
                return Err(Code::Bug.into());
            }
            u16::put(&u16::try_from(address.len()).map_err(|_| Code::Bug)?, out)?;
            out.extend_from_slice(address.as_bytes());
            Ok(())
        })
    }

    fn take(from: &mut Reader<'_>) -> Result<Vec<String>, DecodeError> {
        let number = from.length::<u16>(limits::STORE_SERVERS)?;
        // The number is a claim; memory is taken only for addresses that the body has room for.
        let mut all = Vec::with_capacity(number.min(from.left() / u16::MOST));
        for _ in 0..number {
            let length = from.length::<u16>(limits::SERVER_ADDRESS_BYTES)?;
            let bytes = from.bytes(length)?;
            all.push(str::from_utf8(bytes).map(str::to_owned).map_err(|_| from.invalid())?);
        }
        Ok(all)
    }
}

/// Revocations that one site passes on to another: their number as u16, and each of them.
pub(crate) enum PassedRevocations {}

impl Field for PassedRevocations {
    type Value = Vec<PassedRevocation>;
    const MOST: usize = u16::MOST + limits::PASSED_REVOCATIONS * PassedRevocation::MOST;

    fn put(value: &Vec<PassedRevocation>, out: &mut Vec<u8>) -> Result<(), Error> {
        if value.len() > limits::PASSED_REVOCATIONS {
            return Err(Code::Bug.into());
        }
        u16::put(&u16::try_from(value.len()).map_err(|_| Code::Bug)?, out)?;
        value.iter().try_for_each(|passed| PassedRevocation::put(passed, out))
    }

    fn take(from: &mut Reader<'_>) -> Result<Vec<PassedRevocation>, DecodeError> {
        let number = from.length::<u16>(limits::PASSED_REVOCATIONS)?;
        let mut all = Vec::with_capacity(number);
        for _ in 0..number {
            all.push(PassedRevocation::take(from)?);
        }
        Ok(all)
    }
}

/// The names of sites: their number as u16, and of each its length as u8 and its bytes.
pub(crate) enum SiteNames {}

impl Field for SiteNames {
    type Value = Vec<String>;
    // The first site is in no list.
    const MOST: usize =
        u16::MOST + (limits::LISTED_SITES + 1) * (u8::MOST + limits::SITE_NAME_BYTES);

    fn put(value: &Vec<String>, out: &mut Vec<u8>) -> Result<(), Error> {
        if value.len() > limits::LISTED_SITES + 1 {
            return Err(Code::Bug.into());
        }
        u16::put(&u16::try_from(value.len()).map_err(|_| Code::Bug)?, out)?;
        value.iter().try_for_each(|name| {
            let name = &name.as_bytes()[..name.floor_char_boundary(limits::SITE_NAME_BYTES)];
            u8::put(&u8::try_from(name.len()).map_err(|_| Code::Bug)?, out)?;
            out.extend_from_slice(name);
            Ok(())
        })
    }

    fn take(from: &mut Reader<'_>) -> Result<Vec<String>, DecodeError> {
        let number = from.length::<u16>(limits::LISTED_SITES + 1)?;
        let mut all = Vec::with_capacity(number);
        for _ in 0..number {
            let length = from.length::<u8>(limits::SITE_NAME_BYTES)?;
            let bytes = from.bytes(length)?;
            all.push(str::from_utf8(bytes).map(str::to_owned).map_err(|_| from.invalid())?);
        }
        Ok(all)
    }
}

/// The hashes of blocks of a file: their number as u16, and each of them.
pub(crate) enum BlockHashes {}

impl Field for BlockHashes {
    type Value = Vec<[u8; 32]>;
    const MOST: usize = u16::MOST + limits::HASHED_BLOCKS * <[u8; 32]>::MOST;

    fn put(value: &Vec<[u8; 32]>, out: &mut Vec<u8>) -> Result<(), Error> {
        if value.len() > limits::HASHED_BLOCKS {
            return Err(Code::Bug.into());
        }
        u16::put(&u16::try_from(value.len()).map_err(|_| Code::Bug)?, out)?;
        value.iter().for_each(|hash| out.extend_from_slice(hash));
        Ok(())
    }

    fn take(from: &mut Reader<'_>) -> Result<Vec<[u8; 32]>, DecodeError> {
        let number = from.length::<u16>(limits::HASHED_BLOCKS)?;
        let mut all = Vec::with_capacity(number);
        for _ in 0..number {
            all.push(from.array()?);
        }
        Ok(all)
    }
}

/// Returns the bytes of a chain of credentials in a message: those of its texts, of the length
/// before each, and of their number. A chain with more than [`limits::CHAIN_BYTES`] is not sent.
#[must_use]
pub fn chain_bytes(texts: &[Vec<u8>]) -> usize {
    u16::MOST + texts.iter().map(|text| u16::MOST + text.len()).sum::<usize>()
}

/// The texts of credentials: their number as u16, and of each its length as u16 and its bytes, all
/// together at most [`limits::CHAIN_BYTES`]. None is empty.
pub(crate) enum Credentials {}

impl Field for Credentials {
    type Value = Vec<Vec<u8>>;
    const MOST: usize = limits::CHAIN_BYTES;

    fn put(value: &Vec<Vec<u8>>, out: &mut Vec<u8>) -> Result<(), Error> {
        let too_big = || Error::from(Code::TooBig);
        if value.len() > limits::CHAIN_LINKS || chain_bytes(value) > limits::CHAIN_BYTES {
            return Err(too_big());
        }
        u16::put(&u16::try_from(value.len()).map_err(|_| too_big())?, out)?;
        value.iter().try_for_each(|text| {
            if text.is_empty() || text.len() > limits::CREDENTIAL_BYTES {
                return Err(too_big());
            }
            u16::put(&u16::try_from(text.len()).map_err(|_| too_big())?, out)?;
            out.extend_from_slice(text);
            Ok(())
        })
    }

    fn take(from: &mut Reader<'_>) -> Result<Vec<Vec<u8>>, DecodeError> {
        let count = from.length::<u16>(limits::CHAIN_LINKS)?;
        let mut all = Vec::with_capacity(count);
        // The bytes that are left for the texts and their lengths.
        let mut left = limits::CHAIN_BYTES - u16::MOST;
        for _ in 0..count {
            left = left.saturating_sub(u16::MOST);
            let length = from.length::<u16>(left.min(limits::CREDENTIAL_BYTES))?;
            if length == 0 {
                return Err(from.invalid());
            }
            left -= length;
            all.push(from.bytes(length)?.to_vec());
        }
        Ok(all)
    }
}

/// What a recall names: at most [`limits::RECALL_THINGS`] nodes and names, or everything. Bytes of
/// a file are refused ([`Code::Bug`]): they have no lease of their own.
pub(crate) enum RecalledThings {}

/// The kinds of recalled things.
const NODE: u8 = 1;
const NAME: u8 = 2;
const EVERYTHING: u8 = 3;

impl Field for RecalledThings {
    type Value = Recalled;
    const MOST: usize =
        u8::MOST + limits::RECALL_THINGS * (u8::MOST + InodeId::MOST + <Name as Field>::MOST);

    fn put(value: &Recalled, out: &mut Vec<u8>) -> Result<(), Error> {
        let Recalled::Things(value) = value else {
            out.extend([1, EVERYTHING]);
            return Ok(());
        };
        if value.len() > limits::RECALL_THINGS {
            return Err(Code::Bug.into());
        }
        u8::put(&u8::try_from(value.len()).map_err(|_| Code::Bug)?, out)?;
        value.iter().try_for_each(|touched| match touched {
            Touched::Node(ino) => u8::put(&NODE, out).and_then(|()| InodeId::put(ino, out)),
            Touched::Name { dir, name } => {
                u8::put(&NAME, out)?;
                InodeId::put(dir, out)?;
                <Name as Field>::put(name, out)
            }
            Touched::Bytes(_) => Err(Code::Bug.into()),
        })
    }

    fn take(from: &mut Reader<'_>) -> Result<Recalled, DecodeError> {
        let number = from.length::<u8>(limits::RECALL_THINGS)?;
        let mut all = Vec::with_capacity(number);
        for _ in 0..number {
            all.push(match u8::take(from)? {
                NODE => Touched::Node(InodeId::take(from)?),
                NAME => {
                    Touched::Name { dir: InodeId::take(from)?, name: <Name as Field>::take(from)? }
                }
                EVERYTHING if number == 1 => return Ok(Recalled::Everything),
                kind => return Err(from.not_spoken(reserved::RECALLS, kind.into())),
            });
        }
        Ok(Recalled::Things(all))
    }
}
