//! The file `format`: the id, version and features of a volume. It is written when the volume is
//! created, and again when the volume gets a feature.
//!
//! It has 128 bytes, little-endian, which `docs/format.md` specifies. In every future version the
//! first eight bytes are the magic, the next four the version, and the last eight the checksum of
//! all others, so that a newer volume is not taken for a damaged one.

use std::{fmt, io};

use pelago_wire::{InodeId, limits};
use xxhash_rust::xxh3::xxh3_64;

use super::SiteOf;

/// The version of the format that this program writes, and the only one that it reads.
pub const FORMAT_VERSION: u32 = 2;

/// The id of a volume: 128 random bits, shown as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct VolumeId(pub [u8; 16]);

impl VolumeId {
    /// Parses an id as it is shown; `None` if the text is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let digits = text.bytes().map(digit).collect::<Option<Vec<u8>>>()?;
        let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair.iter().fold(0, join)).collect();
        bytes.try_into().ok().filter(|_| text.len() == 32).map(Self)
    }
}

/// Adds a hexadecimal digit to a byte.
const fn join(byte: u8, digit: &u8) -> u8 {
    byte << 4 | *digit
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The content of the file `format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// The id of the volume.
    pub id: VolumeId,
    /// The size in bytes up to which a file is stored in the table, at most
    /// [`limits::INLINE_BYTES`].
    pub inline_bytes: u32,
    /// Features, one per bit, that a program must know to use the volume: [`TAGS_ARE_COMPLETE`],
    /// [`SITES`], [`REVOCATIONS`], [`SHARED_STORE`], [`NOT_PRIMARY`].
    pub needed_features: u64,
    /// Features, one per bit, that a program need not know to use the volume. None is defined yet.
    pub optional_features: u64,
    /// The site whose volume this is, from 0, below [`pelago_wire::InodeId::MOUNT_SITE`]; others
    /// than 0 need [`SITES`].
    pub site: u16,
    /// The number of shards: 1. More need [`SHARED_STORE`], and a later program. In the file 0
    /// stands for 1.
    pub shards: u16,
}

/// The needed feature that there is a [`crate::rows::Tag`] row for each tag, and no other. A
/// program that does not know such rows must not change tags.
pub const TAGS_ARE_COMPLETE: u64 = 1;

/// The needed feature that the volume has several sites: names may lead to directories of others,
/// and the names of directories may be at others. A program that does not know it would take them
/// for damage.
pub const SITES: u64 = 2;

/// The needed feature that there may be [`crate::rows::RevocationRow`] rows. A program that does
/// not know them would accept revoked credentials.
pub const REVOCATIONS: u64 = 4;

/// The needed feature that the folder is a shared store: several servers reach it, and the owner of
/// its shard serves it. A program that does not know it would open the table while another server
/// has it open.
pub const SHARED_STORE: u64 = 8;

/// The needed feature that the folder is not the primary of its volume: it is a mirror, or was the
/// primary until its mirror was promoted. A program that does not know it would change it.
pub const NOT_PRIMARY: u64 = 32;

/// The bits of all needed features, also of those that only later versions have, with their names.
pub const NEEDED_FEATURES: &[(u64, &str)] = &[
    (TAGS_ARE_COMPLETE, "complete tags"),
    (SITES, "sites"),
    (REVOCATIONS, "revocations"),
    (SHARED_STORE, "a shared store"),
    (16, "split directories"),
    (NOT_PRIMARY, "the folder of a mirror"),
    (64, "trash"),
];

/// Returns the names of the features of these bits, for a message; of a bit without a name its
/// value.
#[must_use]
pub(super) fn names_of_features(bits: u64) -> String {
    let known = NEEDED_FEATURES.iter().filter(|(bit, _)| bits & bit != 0);
    let mut names: Vec<String> = known.map(|(_, name)| (*name).to_owned()).collect();
    let nameless = NEEDED_FEATURES.iter().fold(bits, |bits, (bit, _)| bits & !bit);
    if nameless != 0 {
        names.push(format!("{nameless:#x}"));
    }
    names.join(", ")
}

/// The reason why the bytes of a file are no [`Format`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormatError {
    /// The file is too short or too long.
    Length,
    /// The first bytes are not the magic.
    Magic,
    /// The checksum does not match.
    Checksum,
    /// This version is newer than this program reads.
    Newer(u32),
    /// This version is older than this program reads.
    Older(u32),
    /// The volume needs features, the set bits, that this program does not have.
    UnknownFeatures(u64),
    /// The shared store has this number of shards, and this program knows one only.
    Shards(u16),
    /// A field is out of range.
    Field,
}

const MAGIC: [u8; 8] = *b"PELAGO\x1a\n";
const BYTES: usize = 128;
/// Greatest length of the file in any version, in bytes.
pub(super) const MAX_BYTES: usize = 4096;
const RESERVED_BYTES: usize = BYTES - 8 - 52;
/// The needed features that this program has.
const KNOWN_FEATURES: u64 = TAGS_ARE_COMPLETE | SITES | REVOCATIONS | SHARED_STORE | NOT_PRIMARY;

impl Format {
    /// Returns the format of a new volume, with a random id, or of a site of an older one.
    pub(super) fn new(inline_bytes: u32, place: Option<SiteOf>) -> io::Result<Self> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let founded = Self {
            id: VolumeId(random),
            inline_bytes,
            needed_features: TAGS_ARE_COMPLETE,
            optional_features: 0,
            site: 0,
            shards: 1,
        };
        Ok(match place {
            None => founded,
            Some(SiteOf { volume, site }) => {
                let needed_features = TAGS_ARE_COMPLETE | SITES;
                Self { id: volume, site, needed_features, ..founded }
            }
        })
    }

    /// Returns the format of a new volume in a shared store, with a random id.
    pub(super) fn new_shared(inline_bytes: u32) -> io::Result<Self> {
        let founded = Self::new(inline_bytes, None)?;
        Ok(Self { needed_features: founded.needed_features | SHARED_STORE, ..founded })
    }

    /// Returns whether the folder is a shared store.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.needed_features & SHARED_STORE != 0
    }

    /// Returns whether the volume has several sites.
    #[must_use]
    pub const fn has_sites(&self) -> bool {
        self.needed_features & SITES != 0
    }

    /// Returns whether the folder is that of a mirror, or of a primary that was replaced.
    #[must_use]
    pub const fn is_not_primary(&self) -> bool {
        self.needed_features & NOT_PRIMARY != 0
    }

    /// Returns whether there is a [`crate::rows::Tag`] row for each tag, and no other.
    #[must_use]
    pub const fn tags_are_complete(&self) -> bool {
        self.needed_features & TAGS_ARE_COMPLETE != 0
    }

    /// Encodes the format to the bytes of its file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.inline_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.needed_features.to_le_bytes());
        bytes.extend_from_slice(&self.optional_features.to_le_bytes());
        bytes.extend_from_slice(&self.id.0);
        bytes.extend_from_slice(&self.site.to_le_bytes());
        // As versions wrote it that knew no shards.
        let shards = if self.shards == 1 && !self.is_shared() { 0 } else { self.shards };
        bytes.extend_from_slice(&shards.to_le_bytes());
        bytes.extend_from_slice(&[0; RESERVED_BYTES]);
        let sum = xxh3_64(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes the bytes of a file.
    ///
    /// # Errors
    /// [`FormatError`] if the file is damaged or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let (written, sum) = bytes.split_last_chunk::<8>().ok_or(FormatError::Length)?;
        if bytes.len() > MAX_BYTES {
            return Err(FormatError::Length);
        }
        let (magic, mut rest) = written.split_first_chunk::<8>().ok_or(FormatError::Length)?;
        if *magic != MAGIC {
            return Err(FormatError::Magic);
        }
        if u64::from_le_bytes(*sum) != xxh3_64(written) {
            return Err(FormatError::Checksum);
        }
        let version = u32::from_le_bytes(take(&mut rest)?);
        if version > FORMAT_VERSION {
            return Err(FormatError::Newer(version));
        }
        if (1..FORMAT_VERSION).contains(&version) {
            return Err(FormatError::Older(version));
        }
        if bytes.len() != BYTES {
            return Err(FormatError::Length);
        }
        let inline_bytes = u32::from_le_bytes(take(&mut rest)?);
        let needed_features = u64::from_le_bytes(take(&mut rest)?);
        if needed_features & !KNOWN_FEATURES != 0 {
            return Err(FormatError::UnknownFeatures(needed_features & !KNOWN_FEATURES));
        }
        let optional_features = u64::from_le_bytes(take(&mut rest)?);
        let id = VolumeId(take(&mut rest)?);
        let site = u16::from_le_bytes(take(&mut rest)?);
        let shards = u16::from_le_bytes(take(&mut rest)?).max(1);
        let reserved = rest.iter().any(|byte| *byte != 0);
        if shards > 1 && needed_features & SHARED_STORE != 0 {
            return Err(FormatError::Shards(shards));
        }
        // Others need features that this program does not have, and are refused by their names.
        let has_sites = needed_features & SITES != 0;
        let is_ours = shards == 1 && (site == 0 || has_sites) && site != InodeId::MOUNT_SITE;
        if version == 0 || inline_bytes as usize > limits::INLINE_BYTES || reserved || !is_ours {
            return Err(FormatError::Field);
        }
        Ok(Self { id, inline_bytes, needed_features, optional_features, site, shards })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], FormatError> {
    let (first, after) = rest.split_first_chunk::<N>().ok_or(FormatError::Length)?;
    *rest = after;
    Ok(*first)
}
