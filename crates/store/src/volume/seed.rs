//! The file `seed` in the folder of the table: the key of the hash of names. It is secret, because
//! who knows it can choose names whose hashes are equal. Without it no row of a name is found, so
//! it lies beside the rows, where nobody else can remove it either.
//!
//! 40 bytes, little-endian; `docs/format.md` has the table.

use std::fmt;
use std::io::{self, Read as _, Write as _};

use rustix::fs::OFlags;
use xxhash_rust::xxh3::xxh3_64;

use super::{SECRET, VolumeError};
use crate::folder::Folder;
use crate::hash::NameHasher;

/// The key of a volume's hash of names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed {
    key: u128,
}

impl fmt::Debug for Seed {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seed").finish_non_exhaustive()
    }
}

pub(super) const SEED: &str = "seed";
pub(super) const SEED_NEW: &str = "seed.new";

const MAGIC: [u8; 8] = *b"PELSEED\n";
/// The number of SipHash-2-4.
const SIP_HASH: u32 = 1;
const BYTES: usize = 40;

impl Seed {
    /// Returns the seed with this key.
    #[must_use]
    pub const fn new(key: u128) -> Self {
        Self { key }
    }

    /// Returns the hasher of names.
    #[must_use]
    pub const fn hasher(&self) -> NameHasher {
        NameHasher::new(self.key)
    }

    /// Returns the bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&SIP_HASH.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.key.to_le_bytes());
        let sum = xxh3_64(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Returns the seed that these bytes say.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let bytes: &[u8; BYTES] = bytes.try_into().map_err(|_| "its length is wrong")?;
        let (written, sum) = bytes.split_last_chunk::<8>().ok_or("its length is wrong")?;
        let rest = written.strip_prefix(&MAGIC).ok_or("it does not begin as it must")?;
        if u64::from_le_bytes(*sum) != xxh3_64(written) {
            return Err("its checksum does not match");
        }
        let (hash, rest) = rest.split_first_chunk::<4>().ok_or("its length is wrong")?;
        let (zero, key) = rest.split_first_chunk::<4>().ok_or("its length is wrong")?;
        let key: &[u8; 16] = key.try_into().map_err(|_| "its length is wrong")?;
        if u32::from_le_bytes(*hash) != SIP_HASH || *zero != [0; 4] {
            return Err("a field holds what it cannot hold");
        }
        Ok(Self { key: u128::from_le_bytes(*key) })
    }

    /// Makes a random one and writes it: it is in the folder of the table whole, or not at all.
    pub(super) fn make(table: &Folder) -> Result<Self, VolumeError> {
        let path = table.path().join(SEED_NEW);
        let failed = |error: io::Error| VolumeError::from_io("writing", &path, error);
        let mut key = [0; 16];
        getrandom::fill(&mut key).map_err(|error| failed(io::Error::other(error)))?;
        let seed = Self { key: u128::from_le_bytes(key) };
        let mut file = table.new_file(SEED_NEW, SECRET)?;
        file.write_all(&seed.encode()).and_then(|()| file.sync_all()).map_err(failed)?;
        table.rename(SEED_NEW, SEED)?;
        table.sync()?;
        Ok(seed)
    }

    /// Reads that of a volume.
    pub(super) fn read(table: &Folder) -> Result<Self, VolumeError> {
        let path = table.path().join(SEED);
        let damaged = |what| VolumeError::Damaged { path: path.clone(), what };
        let file = match table.file(SEED, OFlags::RDONLY) {
            Err(error) if error.is_missing() => return Err(damaged("it is missing")),
            opened => opened?,
        };
        let mut bytes = Vec::with_capacity(BYTES);
        let read = file.take(BYTES as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| VolumeError::from_io("reading", &path, error))?;
        Self::decode(&bytes).map_err(damaged)
    }
}
