//! Names of directory entries: any bytes except `/` and NUL.

use std::fmt;
use std::sync::Arc;

use crate::limits::NAME_BYTES;

/// A name in a directory: 1 to 255 bytes without `/` and NUL, neither `.` nor `..`. A clone shares
/// the bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<[u8]>);

/// The reason why bytes are not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// More than 255 bytes.
    #[error("a name is longer than {NAME_BYTES} bytes")]
    TooLong,
    /// Empty, `.`, `..`, or with a slash or a NUL byte.
    #[error("a name is empty, a dot, two dots, or contains a slash or a NUL byte")]
    NotAName,
}

impl Name {
    /// Checks the bytes and returns them as a name.
    ///
    /// # Errors
    /// Returns [`NameError`] if the bytes are not a name.
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        if bytes.len() > NAME_BYTES {
            return Err(NameError::TooLong);
        }
        let reserved = matches!(bytes, b"" | b"." | b"..");
        if reserved || bytes.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return Err(NameError::NotAName);
        }
        Ok(Self(bytes.into()))
    }

    /// Returns the 1 to 255 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_except_slash_and_nul_are_a_name() {
        for byte in 1..=255_u8 {
            let expected = if matches!(byte, b'/' | b'.') { None } else { Some(vec![byte]) };
            assert_eq!(Name::new(&[byte]).ok().map(|name| name.as_bytes().to_vec()), expected);
        }
        assert!(Name::new(&[b'x'; 255]).is_ok());
        assert_eq!(Name::new(&[b'x'; 256]), Err(NameError::TooLong));
        for none in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert_eq!(Name::new(none), Err(NameError::NotAName));
        }
        assert!(Name::new(b"...").is_ok());
    }
}
