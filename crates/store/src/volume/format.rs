//! The file `format`: what a volume is. Written once, when the volume is made.
//!
//! 128 bytes, little-endian; `docs/format.md` has the table. In every version to come the first
//! eight bytes are the magic, the next four the version, and the last eight the checksum of all
//! before them, so that a newer volume is told from a damaged one.

use std::fmt;
use std::io;

use pelago_wire::limits;
use xxhash_rust::xxh3::xxh3_64;

/// The format that this program writes, and the only one it reads.
pub const FORMAT_VERSION: u32 = 2;

/// The id of a volume: 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct VolumeId(pub [u8; 16]);

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

/// What a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// Which volume.
    pub id: VolumeId,
    /// Bytes of a file that are kept in the table, to [`limits::INLINE_BYTES`].
    pub inline_bytes: u32,
    /// Features that a program may use without knowing them: none has a meaning yet.
    pub optional_features: u64,
}

/// Why bytes are no [`Format`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormatFault {
    /// Too short or too long.
    Length,
    /// They do not begin with the magic.
    Magic,
    /// The checksum does not fit.
    Checksum,
    /// A newer version, which is not known here.
    Version(u32),
    /// An older version, which is not known here any more.
    Older(u32),
    /// Features that are needed and not known here.
    Features(u64),
    /// A field holds what it cannot hold.
    Field,
}

const MAGIC: [u8; 8] = *b"PELAGO\x1a\n";
const BYTES: usize = 128;
/// Bytes that a newer version may have, at the most.
pub(super) const BYTES_MAX: usize = 4096;
const RESERVED_BYTES: usize = BYTES - 8 - 48;
/// Needed features that are known here: none yet.
const KNOWN_FEATURES: u64 = 0;

impl Format {
    /// The format of a new volume, with a random id.
    pub(super) fn new(inline_bytes: u32) -> io::Result<Self> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(io::Error::other)?;
        Ok(Self { id: VolumeId(id), inline_bytes, optional_features: 0 })
    }

    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.inline_bytes.to_le_bytes());
        bytes.extend_from_slice(&KNOWN_FEATURES.to_le_bytes());
        bytes.extend_from_slice(&self.optional_features.to_le_bytes());
        bytes.extend_from_slice(&self.id.0);
        bytes.extend_from_slice(&[0; RESERVED_BYTES]);
        let sum = xxh3_64(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The format that these bytes say.
    ///
    /// # Errors
    /// [`FormatFault`] where they say none that is known here.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatFault> {
        let (written, sum) = bytes.split_last_chunk::<8>().ok_or(FormatFault::Length)?;
        if bytes.len() > BYTES_MAX {
            return Err(FormatFault::Length);
        }
        let (magic, mut rest) = written.split_first_chunk::<8>().ok_or(FormatFault::Length)?;
        if *magic != MAGIC {
            return Err(FormatFault::Magic);
        }
        if u64::from_le_bytes(*sum) != xxh3_64(written) {
            return Err(FormatFault::Checksum);
        }
        let version = u32::from_le_bytes(take(&mut rest)?);
        if version > FORMAT_VERSION {
            return Err(FormatFault::Version(version));
        }
        if (1..FORMAT_VERSION).contains(&version) {
            return Err(FormatFault::Older(version));
        }
        if bytes.len() != BYTES {
            return Err(FormatFault::Length);
        }
        let inline_bytes = u32::from_le_bytes(take(&mut rest)?);
        let needed = u64::from_le_bytes(take(&mut rest)?);
        if needed & !KNOWN_FEATURES != 0 {
            return Err(FormatFault::Features(needed & !KNOWN_FEATURES));
        }
        let optional_features = u64::from_le_bytes(take(&mut rest)?);
        let id = VolumeId(take(&mut rest)?);
        let reserved = rest.iter().any(|byte| *byte != 0);
        if version == 0 || inline_bytes as usize > limits::INLINE_BYTES || reserved {
            return Err(FormatFault::Field);
        }
        Ok(Self { id, inline_bytes, optional_features })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], FormatFault> {
    let (first, behind) = rest.split_first_chunk::<N>().ok_or(FormatFault::Length)?;
    *rest = behind;
    Ok(*first)
}
