//! The files `seed` and `seed.copy`, in `table` or in the folder of a shared store: the key of the
//! hash of names.
//!
//! It is secret: a user who knows it can choose names with equal hashes. No name is found without
//! it, so it is in the folder of the rows, which other users cannot write.
//!
//! 40 bytes, little-endian, or 56 in a shared store. `docs/format.md` has the table.

use std::ops::ControlFlow;
use std::path::Path;
use std::{fmt, io};

use xxhash_rust::xxh3::xxh3_64;

use super::error::VolumeError;
use super::layout::{SECRET, SEED, SEED_COPY, SEED_NEW};
use super::twice::{self, Pair, TwoFiles};
use crate::folder::Folder;
use crate::hash::NameHasher;
use crate::key::{self, RowKind};
use crate::table::{self, TableRead};

/// The key of a volume's hash of names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashSeed {
    key: u128,
    /// The key of the first bits of each hash, in a shared store.
    top_key: Option<u128>,
}

impl fmt::Debug for HashSeed {
    /// Hides the key, which is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashSeed").finish_non_exhaustive()
    }
}

const MAGIC: [u8; 8] = *b"PELSEED\n";
/// The number of the hash function SipHash-2-4.
const SIP_HASH: u32 = 1;
/// The number of the hash of a shared store: the file has 16 more bytes, the key of the first 16
/// bits.
const TWO_KEYS: u32 = 2;
const BYTES: usize = 40;
/// Greatest length of the file that any version is known to write, in bytes.
const MAX_BYTES: usize = BYTES + 16;
/// The reason why the bytes of a file are no [`HashSeed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeedError {
    /// The damage, for a message.
    Damaged(&'static str),
    /// The hash has this number, which this program does not know.
    UnknownHash(u32),
}

impl From<&'static str> for SeedError {
    fn from(what: &'static str) -> Self {
        Self::Damaged(what)
    }
}

/// Most names that are compared with a seed.
const NAMES_LOOKED_AT: u32 = 16;
const FILES: TwoFiles = TwoFiles { first: SEED, copy: SEED_COPY, new: SEED_NEW, mode: SECRET };

impl HashSeed {
    /// Returns the seed with this key.
    #[must_use]
    pub const fn new(key: u128) -> Self {
        Self { key, top_key: None }
    }

    /// Returns the seed of a shared store, in which the first bits of each hash have a key of their
    /// own.
    #[must_use]
    pub const fn with_two_keys(key: u128, top_key: u128) -> Self {
        Self { key, top_key: Some(top_key) }
    }

    /// Returns whether the first bits of each hash have a key of their own.
    #[must_use]
    pub const fn has_two_keys(&self) -> bool {
        self.top_key.is_some()
    }

    /// Returns the hasher with this key.
    #[must_use]
    pub const fn hasher(&self) -> NameHasher {
        match self.top_key {
            None => NameHasher::new(self.key),
            Some(top_key) => NameHasher::with_two_keys(self.key, top_key),
        }
    }

    /// Encodes the seed to the bytes of its file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let hash = if self.has_two_keys() { TWO_KEYS } else { SIP_HASH };
        let mut bytes = Vec::with_capacity(MAX_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&hash.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.key.to_le_bytes());
        if let Some(top_key) = self.top_key {
            bytes.extend_from_slice(&top_key.to_le_bytes());
        }
        let sum = xxh3_64(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes the bytes of a file.
    ///
    /// # Errors
    /// [`SeedError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, SeedError> {
        let (written, sum) = bytes.split_last_chunk::<8>().ok_or("its length is wrong")?;
        if bytes.len() > MAX_BYTES {
            return Err("its length is wrong".into());
        }
        let rest =
            written.strip_prefix(&MAGIC[..]).ok_or("its first bytes are not those of a seed")?;
        if u64::from_le_bytes(*sum) != xxh3_64(written) {
            return Err("its checksum does not match".into());
        }
        let (hash, rest) = rest.split_first_chunk::<4>().ok_or("its length is wrong")?;
        let hash = u32::from_le_bytes(*hash);
        if hash > TWO_KEYS {
            return Err(SeedError::UnknownHash(hash));
        }
        let (zero, rest) = rest.split_first_chunk::<4>().ok_or("its length is wrong")?;
        let (key, rest) = rest.split_first_chunk::<16>().ok_or("its length is wrong")?;
        let top_key = match (hash, rest) {
            (TWO_KEYS, rest) => Some(rest.try_into().map_err(|_| "its length is wrong")?),
            (_, []) => None,
            _ => return Err("its length is wrong".into()),
        };
        if hash == 0 || *zero != [0; 4] {
            return Err("a field is out of range".into());
        }
        let top_key = top_key.map(u128::from_le_bytes);
        Ok(Self { key: u128::from_le_bytes(*key), top_key })
    }

    /// Creates both files with a random key, in the folder of the table.
    pub(super) fn create(table: &Folder) -> Result<Self, VolumeError> {
        let seed = Self::new(random_key(table)?);
        seed.write(table)?;
        Ok(seed)
    }

    /// Creates both files with two random keys, in the folder of a shared store.
    pub(super) fn create_shared(folder: &Folder) -> Result<Self, VolumeError> {
        let seed = Self::with_two_keys(random_key(folder)?, random_key(folder)?);
        seed.write(folder)?;
        Ok(seed)
    }

    /// Writes both files of a seed that exists elsewhere.
    pub(super) fn put(bytes: &[u8], table: &Folder) -> Result<Self, VolumeError> {
        let path = table.path().join(SEED);
        let seed = Self::decode(bytes).map_err(|error| of_file(&path, error))?;
        seed.write(table)?;
        Ok(seed)
    }

    /// Writes both files, each atomically.
    pub(super) fn write(&self, table: &Folder) -> Result<(), VolumeError> {
        twice::write(table, &FILES, &self.encode())
    }

    /// Reads both files of the volume of one server.
    pub(super) fn read(table: &Folder) -> Result<Pair<Self>, VolumeError> {
        Self::read_if(table, false, "it is the seed of a shared store")
    }

    /// Reads both files of a shared store.
    pub(super) fn read_shared(folder: &Folder) -> Result<Pair<Self>, VolumeError> {
        Self::read_if(folder, true, "it is no seed of a shared store")
    }

    /// Reads both files, of which each has two keys or one; else `what` is wrong with it.
    fn read_if(
        folder: &Folder,
        has_two_keys: bool,
        what: &'static str,
    ) -> Result<Pair<Self>, VolumeError> {
        twice::read(folder, &FILES, MAX_BYTES, |path, bytes| {
            let seed = Self::decode(bytes).map_err(|error| of_file(path, error))?;
            match seed.has_two_keys() == has_two_keys {
                true => Ok(seed),
                false => Err(of_file(path, SeedError::Damaged(what))),
            }
        })
    }

    /// Returns whether names of the table have the hashes that this seed gives them: not if it is
    /// the seed of another volume. A table without names says nothing against it.
    pub(super) fn fits(&self, table: &dyn TableRead) -> Result<bool, table::Error> {
        let names = key::all(RowKind::Name);
        let hasher = self.hasher();
        let mut looked_at = 0;
        let mut fits = false;
        // A single key may be damaged.
        table.scan(&names.from, &names.to, &mut |key, _| {
            let parsed = key::parse_name(key);
            looked_at += 1;
            fits = parsed.is_some_and(|(_, hash, name)| hasher.hash(name) == hash);
            if fits || looked_at == NAMES_LOOKED_AT {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        Ok(fits || looked_at == 0)
    }
}

/// Returns whether a file of a volume is one of the two of its seed.
pub(super) fn is_seed(path: &Path) -> bool {
    [SEED, SEED_COPY].into_iter().any(|name| path.file_name() == Some(name.as_ref()))
}

/// Returns a random key for a seed in `folder`.
fn random_key(folder: &Folder) -> Result<u128, VolumeError> {
    let mut key = [0; 16];
    getrandom::fill(&mut key).map_err(|error| {
        let path = folder.path().join(SEED_NEW);
        VolumeError::from_io("writing", &path, io::Error::other(error))
    })?;
    Ok(u128::from_le_bytes(key))
}

/// Returns what is wrong with the file of a seed.
fn of_file(path: &Path, error: SeedError) -> VolumeError {
    match error {
        SeedError::Damaged(what) => VolumeError::Corrupt { path: path.into(), what },
        SeedError::UnknownHash(found) => {
            VolumeError::UnknownHash { path: path.into(), found, name: "a later one" }
        }
    }
}
