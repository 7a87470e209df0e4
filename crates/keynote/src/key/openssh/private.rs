//! The file of a private key: `openssh-key-v1` of OpenSSH (`PROTOCOL.key`), without a passphrase.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{BEGIN, ED25519, Fields, KEY_BYTES};
use crate::key::{KEY_FILE_BYTES, PrivateKey, PublicKey};

const END: &str = "-----END OPENSSH PRIVATE KEY-----";
const MAGIC: &[u8] = b"openssh-key-v1\0";
/// The name of the cipher, and of the derivation of its key, of a file without a passphrase.
const NONE: &[u8] = b"none";
/// Keys of a file; OpenSSH writes and reads no other number.
const KEYS: u32 = 1;
/// The private section is a multiple of this many bytes if it is not encrypted.
const BLOCK_BYTES: usize = 8;
/// The most bytes that fill a private section: OpenSSH adds up to 7 bytes, PuTTY up to 16.
const PADDING_BYTES: usize = 16;
/// Bytes of the name of a type that an error shows.
const TYPE_NAME_BYTES: usize = 64;

/// The reason for which a file of OpenSSH is no key here. It has nothing of the private half.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrivateFileError {
    /// It is too long.
    #[error("it has more than {KEY_FILE_BYTES} bytes")]
    TooLong,
    /// It does not begin and end with the lines of such a file.
    #[error("its first line is not `{BEGIN}`, or its last one not `{END}`: copy all of the file")]
    Lines,
    /// It is not base64 between these lines.
    #[error("what stands between its first and last line is not base64")]
    Base64,
    /// It is of another version.
    #[error("it is of another version than openssh-key-v1")]
    Version,
    /// A field is longer than what is left, or has another length than it must have.
    #[error("a field has a wrong length: copy all of the file")]
    Length,
    /// Bytes follow the last field.
    #[error("it has {count} bytes too many")]
    TooMany {
        /// The number of bytes.
        count: usize,
    },
    /// It has no key, or several.
    #[error("it has {number} keys, and one is needed")]
    Number {
        /// The number of keys.
        number: u32,
    },
    /// It is a key of another type.
    #[error(
        "its key is of the type {name}, and an Ed25519 key is needed: \
         `ssh-keygen -t ed25519` makes one"
    )]
    OtherType {
        /// The name of the type.
        name: String,
    },
    /// It is encrypted.
    #[error("it has a passphrase, which pelago does not ask for; it does not use ssh-agent either")]
    Passphrase {
        /// The public half, which is not encrypted, and not proved either.
        public: PublicKey,
    },
    /// It is not encrypted, and has a derivation of a key.
    #[error("it has no cipher and yet the derivation of a key for one")]
    Derivation,
    /// The two equal numbers before the private half are not equal.
    #[error("its two check numbers differ")]
    CheckNumbers,
    /// The public half, in one of its three places, belongs to another key.
    #[error("its public half is not the one of its private half")]
    OtherPublic,
    /// The bytes after the comment are not 1, 2, 3 and so on, up to a full block.
    #[error("its padding is wrong")]
    Padding,
}

/// Parses the text of a file.
///
/// # Errors
/// [`PrivateFileError`].
pub fn parse(text: &str) -> Result<PrivateKey, PrivateFileError> {
    let bytes = decode(text)?;
    let mut fields = Fields(&bytes);
    if fields.bytes(MAGIC.len()) != Some(MAGIC) {
        return Err(PrivateFileError::Version);
    }
    let cipher = string(&mut fields)?;
    let derivation = string(&mut fields)?;
    let options = string(&mut fields)?;
    let number = number(&mut fields)?;
    if number != KEYS {
        return Err(PrivateFileError::Number { number });
    }
    let public = parse_public(string(&mut fields)?)?;
    if cipher != NONE {
        return Err(PrivateFileError::Passphrase { public });
    }
    if derivation != NONE || !options.is_empty() {
        return Err(PrivateFileError::Derivation);
    }
    let section = string(&mut fields)?;
    ends(fields)?;
    parse_section(section, public)
}

/// Decodes what stands between the first and the last line.
fn decode(text: &str) -> Result<Vec<u8>, PrivateFileError> {
    if text.len() > KEY_FILE_BYTES {
        return Err(PrivateFileError::TooLong);
    }
    let between = text.trim().strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END));
    // A line ends after `BEGIN` and before `END`.
    let is_line = |text: &&str| text.starts_with(['\r', '\n']) && text.ends_with('\n');
    let between = between.filter(is_line).ok_or(PrivateFileError::Lines)?;
    let letters: String = between.lines().map(str::trim).collect();
    STANDARD.decode(letters).map_err(|_| PrivateFileError::Base64)
}

/// Parses the public half: the name of the type and the key.
fn parse_public(blob: &[u8]) -> Result<PublicKey, PrivateFileError> {
    let mut fields = Fields(blob);
    expect_ed25519(&mut fields)?;
    let public = key(&mut fields)?;
    ends(fields)?;
    Ok(PublicKey::new(public))
}

/// Parses the private section, which is encrypted in a file with a passphrase.
fn parse_section(section: &[u8], public: PublicKey) -> Result<PrivateKey, PrivateFileError> {
    let mut fields = Fields(section);
    if number(&mut fields)? != number(&mut fields)? {
        return Err(PrivateFileError::CheckNumbers);
    }
    expect_ed25519(&mut fields)?;
    let again = key(&mut fields)?;
    let mut both = Fields(string(&mut fields)?);
    let seed: [u8; KEY_BYTES] = half(&mut both)?;
    let third: [u8; KEY_BYTES] = half(&mut both)?;
    ends(both)?;
    let private = PrivateKey::from_seed(seed);
    let own = private.public();
    if own != public || *own.as_bytes() != again || *own.as_bytes() != third {
        return Err(PrivateFileError::OtherPublic);
    }
    let _comment = string(&mut fields)?;
    let Fields(padding) = fields;
    let is_counted = padding.iter().zip(1..).all(|(byte, wanted)| *byte == wanted);
    let is_full = section.len().is_multiple_of(BLOCK_BYTES) && padding.len() <= PADDING_BYTES;
    if is_counted && is_full { Ok(private) } else { Err(PrivateFileError::Padding) }
}

fn expect_ed25519(fields: &mut Fields<'_>) -> Result<(), PrivateFileError> {
    let name = string(fields)?;
    if name == ED25519.as_bytes() {
        return Ok(());
    }
    let shown = name.get(..TYPE_NAME_BYTES).unwrap_or(name);
    Err(PrivateFileError::OtherType { name: shown.escape_ascii().to_string() })
}

fn string<'a>(fields: &mut Fields<'a>) -> Result<&'a [u8], PrivateFileError> {
    fields.string().ok_or(PrivateFileError::Length)
}

fn number(fields: &mut Fields<'_>) -> Result<u32, PrivateFileError> {
    fields.number().ok_or(PrivateFileError::Length)
}

fn key(fields: &mut Fields<'_>) -> Result<[u8; KEY_BYTES], PrivateFileError> {
    fields.key().ok_or(PrivateFileError::Length)
}

/// Takes a half of the string of seed and public key.
fn half(both: &mut Fields<'_>) -> Result<[u8; KEY_BYTES], PrivateFileError> {
    let half = both.bytes(KEY_BYTES).and_then(|half| half.try_into().ok());
    half.ok_or(PrivateFileError::Length)
}

const fn ends(fields: Fields<'_>) -> Result<(), PrivateFileError> {
    match fields.is_empty() {
        true => Ok(()),
        false => Err(PrivateFileError::TooMany { count: fields.0.len() }),
    }
}

#[cfg(test)]
mod tests;
