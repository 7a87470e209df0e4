//! The key and the value of a tag, as keys of rows have them.
//!
//! Neither has a fixed number of bytes, so each ends with a mark. A value may have any bytes: its
//! NULs are escaped, so that keys are in the order of the values.

use std::borrow::Cow;

use pelago_wire::xattr::is_tag_key;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of the longest value that is in a key as it is.
pub const WHOLE_TAG_VALUE_BYTES: usize = 256;
/// Bytes of a longer value that are in a key. The hash of the value follows them.
const CUT_BYTES: usize = WHOLE_TAG_VALUE_BYTES - size_of::<u64>();

/// The end of a key of a tag.
const END: u8 = 0;
/// The byte after a NUL that belongs to the value.
const ESCAPED_NUL: u8 = 0xff;
/// The byte after the NUL that ends a whole value.
const WHOLE: u8 = 1;
/// The byte after the NUL that ends a cut value.
const CUT: u8 = 2;

/// The value of a tag in a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TagValue<'a> {
    escaped: &'a [u8],
    is_whole: bool,
}

impl<'a> TagValue<'a> {
    /// Returns whether these are all bytes of the value. Otherwise they are its first 248 and its
    /// hash: other values may have the same.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> Cow<'a, [u8]> {
        if !self.escaped.contains(&0) {
            return Cow::Borrowed(self.escaped);
        }
        let mut bytes = Vec::with_capacity(self.escaped.len());
        let mut rest = self.escaped;
        while let Some((byte, after)) = rest.split_first() {
            bytes.push(*byte);
            // A NUL and what it is escaped with.
            rest = if *byte == 0 { after.get(1..).unwrap_or_default() } else { after };
        }
        Cow::Owned(bytes)
    }
}

/// A part of a key that has any number of bytes, as it is passed to the function of the key.
pub(super) trait PutPart {
    /// Appends the part to a key.
    fn put(self, key: &mut Vec<u8>);
}

/// A part of a key that has any number of bytes, as it is parsed.
pub(super) trait TakePart<'a>: Sized {
    /// Removes the part from the front of `rest`. Returns `None` if there is no such part.
    fn take(rest: &mut &'a [u8]) -> Option<Self>;
}

impl PutPart for &str {
    fn put(self, key: &mut Vec<u8>) {
        debug_assert!(is_tag_key(self), "a key of a tag has no NUL");
        key.extend_from_slice(self.as_bytes());
        key.push(END);
    }
}

impl<'a> TakePart<'a> for &'a str {
    fn take(rest: &mut &'a [u8]) -> Option<Self> {
        let end = rest.iter().position(|byte| *byte == END)?;
        let (key, after) = rest.split_at_checked(end)?;
        *rest = after.get(1..)?;
        str::from_utf8(key).ok().filter(|key| is_tag_key(key))
    }
}

impl PutPart for &[u8] {
    fn put(self, key: &mut Vec<u8>) {
        if self.len() <= WHOLE_TAG_VALUE_BYTES {
            escape(self, key);
            key.extend_from_slice(&[0, WHOLE]);
        } else {
            escape(&self[..CUT_BYTES], key);
            escape(&xxh3_64(self).to_be_bytes(), key);
            key.extend_from_slice(&[0, CUT]);
        }
    }
}

impl<'a> TakePart<'a> for TagValue<'a> {
    fn take(rest: &mut &'a [u8]) -> Option<Self> {
        let all = *rest;
        let mut at = 0;
        let mut bytes = 0;
        let is_whole = loop {
            match (all.get(at)?, all.get(at + 1)) {
                (0, Some(&ESCAPED_NUL)) => at += 2,
                (0, Some(&WHOLE)) => break true,
                (0, Some(&CUT)) => break false,
                (0, _) => return None,
                _ => at += 1,
            }
            bytes += 1;
        };
        *rest = all.get(at + 2..)?;
        let fits = match is_whole {
            true => bytes <= WHOLE_TAG_VALUE_BYTES,
            false => bytes == WHOLE_TAG_VALUE_BYTES,
        };
        fits.then_some(Self { escaped: &all[..at], is_whole })
    }
}

pub(super) fn escape(value: &[u8], key: &mut Vec<u8>) {
    for byte in value {
        key.push(*byte);
        if *byte == 0 {
            key.push(ESCAPED_NUL);
        }
    }
}
