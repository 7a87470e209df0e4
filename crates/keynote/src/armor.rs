//! The block that carries a chain of credentials in a mail: base64 between two lines.
//!
//! The block encodes each text, preceded by its length as u16 little-endian. Line ends, quoting and
//! blanks that mail adds do no harm, because they are not part of the signed texts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::{CHAIN_BYTES, CHAIN_LINKS, CREDENTIAL_BYTES};

/// The line before the encoded chain.
pub const BEGIN: &str = "-----BEGIN PELAGO CREDENTIAL-----";
const END: &str = "-----END PELAGO CREDENTIAL-----";
/// The width of a line of base64.
const COLUMNS: usize = 64;
/// The limit for a text that is searched for a block: a mail.
const TEXT_BYTES: usize = 1 << 20;

/// The reason why a text has no chain of credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArmorError {
    /// The text is too long.
    #[error("the text is longer than {TEXT_BYTES} bytes")]
    TooLong,
    /// There is no block.
    #[error("there is no line `{BEGIN}`")]
    NoBlock,
    /// The block has no end.
    #[error("the line `{END}` is missing: the credential is cut")]
    Cut,
    /// There is another block.
    #[error("there is more than one credential block: give each by itself")]
    Several,
    /// The block is not base64, or does not encode a chain.
    #[error("the credential block is damaged: copy it again, all of it")]
    Damaged,
    /// There are too many credentials, or they are too long.
    #[error("a chain has 1 to {CHAIN_LINKS} credentials, {CHAIN_BYTES} bytes together")]
    Limit,
}

/// Returns the block of a chain.
///
/// # Errors
/// [`ArmorError::Limit`].
pub fn armor(chain: &[String]) -> Result<String, ArmorError> {
    let mut bytes = Vec::new();
    for text in chain {
        let length = u16::try_from(text.len()).map_err(|_| ArmorError::Limit)?;
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    check(chain)?;
    let mut block = format!("{BEGIN}\n");
    for line in STANDARD.encode(bytes).as_bytes().chunks(COLUMNS) {
        block.extend(line.iter().map(|letter| char::from(*letter)));
        block.push('\n');
    }
    block.push_str(END);
    block.push('\n');
    Ok(block)
}

/// Returns the chain of the only block in a text.
///
/// # Errors
/// [`ArmorError`].
pub fn unarmor(text: &str) -> Result<Vec<String>, ArmorError> {
    if text.len() > TEXT_BYTES {
        return Err(ArmorError::TooLong);
    }
    let mut lines = text.lines().map(unquoted);
    if !lines.any(|line| line == BEGIN) {
        return Err(ArmorError::NoBlock);
    }
    let mut letters = String::new();
    loop {
        match lines.next() {
            None => return Err(ArmorError::Cut),
            Some(line) if line == END => break,
            Some(line) => letters.push_str(line),
        }
    }
    if lines.any(|line| line == BEGIN) {
        return Err(ArmorError::Several);
    }
    let bytes = STANDARD.decode(letters).map_err(|_| ArmorError::Damaged)?;
    let chain = divide(&bytes)?;
    check(&chain)?;
    Ok(chain)
}

/// Returns a line without the quoting and blanks that mail adds.
fn unquoted(line: &str) -> &str {
    line.trim_start_matches(['>', ' ', '\t']).trim_end()
}

fn divide(mut bytes: &[u8]) -> Result<Vec<String>, ArmorError> {
    let mut chain = Vec::new();
    while let [low, high, rest @ ..] = bytes {
        let length = usize::from(u16::from_le_bytes([*low, *high]));
        let text = rest.get(..length).ok_or(ArmorError::Damaged)?;
        bytes = rest.get(length..).unwrap_or_default();
        chain.push(String::from_utf8(text.to_vec()).map_err(|_| ArmorError::Damaged)?);
        if chain.len() > CHAIN_LINKS {
            return Err(ArmorError::Limit);
        }
    }
    if bytes.is_empty() { Ok(chain) } else { Err(ArmorError::Damaged) }
}

/// Checks the limits, with the bytes that the frame on the wire adds.
fn check(chain: &[String]) -> Result<(), ArmorError> {
    let total: usize = 2 + chain.iter().map(|text| text.len() + 2).sum::<usize>();
    let is_text = |text: &String| (1..=CREDENTIAL_BYTES).contains(&text.len());
    match (1..=CHAIN_LINKS).contains(&chain.len())
        && total <= CHAIN_BYTES
        && chain.iter().all(is_text)
    {
        true => Ok(()),
        false => Err(ArmorError::Limit),
    }
}
