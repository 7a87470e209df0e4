//! The line of a public key, as in a file `.pub`: `ssh-ed25519`, the key in base64, and a comment.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{ED25519, Fields, KEY_BYTES, OTHER_TYPES};

/// Bytes that the base64 encodes: the name of the type and the key, each as a string (RFC 8709, 4).
const BLOB_BYTES: usize = 4 + ED25519.len() + 4 + KEY_BYTES;
/// Characters of the base64. A multiple of three bytes has no padding.
const BASE64_CHARACTERS: usize = BLOB_BYTES / 3 * 4;
const _: () = assert!(BLOB_BYTES == 51 && BLOB_BYTES.is_multiple_of(3));

/// The reason for which a line is not a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyLineError {
    /// It is a key of another type.
    #[error(
        "this is a key of the type {name}, and an Ed25519 key is needed: \
         `ssh-keygen -t ed25519` makes one"
    )]
    OtherType {
        /// The name of the type.
        name: &'static str,
    },
    /// There is more than one line.
    #[error("a key is one line, and this has several: give one of them")]
    Several,
    /// There is no second word.
    #[error("the key after {ED25519} is missing: give all of the line, as one argument")]
    Cut,
    /// The second word is not a key of the type.
    #[error("what follows {ED25519} is not an Ed25519 key: copy all of the line")]
    Damaged,
}

/// Returns whether a text is meant as the line of a public key: its first word is a type of keys.
#[must_use]
pub fn is_meant(text: &str) -> bool {
    text.split_whitespace().next().is_some_and(|word| word == ED25519 || is_other(word).is_some())
}

/// Returns the key of a line. Its comment says nothing.
///
/// # Errors
/// [`KeyLineError`].
pub(crate) fn parse(text: &str) -> Result<[u8; KEY_BYTES], KeyLineError> {
    let line = text.trim();
    if let Some(name) = line.split_whitespace().next().and_then(is_other) {
        return Err(KeyLineError::OtherType { name });
    }
    if line.contains(['\n', '\r']) {
        return Err(KeyLineError::Several);
    }
    let mut words = line.split_whitespace().skip(1);
    let blob = words.next().ok_or(KeyLineError::Cut)?;
    blob_of(blob).and_then(|blob| key_of(&blob)).ok_or(KeyLineError::Damaged)
}

fn is_other(word: &str) -> Option<&'static str> {
    OTHER_TYPES.into_iter().find(|name| *name == word)
}

fn blob_of(text: &str) -> Option<[u8; BLOB_BYTES]> {
    if text.len() != BASE64_CHARACTERS {
        return None;
    }
    STANDARD.decode(text).ok()?.try_into().ok()
}

fn key_of(blob: &[u8]) -> Option<[u8; KEY_BYTES]> {
    let mut fields = Fields(blob);
    let is_ed25519 = fields.string()? == ED25519.as_bytes();
    let key = fields.key()?;
    (is_ed25519 && fields.is_empty()).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeyTextError, PublicKey};

    /// Made by `ssh-keygen -t ed25519`; its private half is beside it.
    const LINE: &str = include_str!("vectors/plain.pub");
    const RSA: &str = include_str!("vectors/rsa.pub");
    const ECDSA: &str = include_str!("vectors/ecdsa.pub");

    fn error(text: &str) -> KeyLineError {
        match text.parse::<PublicKey>() {
            Err(KeyTextError::Line(error)) => error,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_line_is_the_same_key_as_its_own_text() {
        let key: PublicKey = LINE.parse().unwrap();
        assert_eq!(key.to_string().parse(), Ok(key));
        let bare = LINE.trim_end().strip_suffix(" ann@laptop").unwrap();
        for text in [bare, &format!(" {bare}\tAnn's key, of 2026 \r\n")] {
            assert_eq!(text.parse(), Ok(key), "{text}");
        }
        assert!(PublicKey::is_meant(LINE) && !PublicKey::is_meant("ssh-ed25519-of-ann"));
    }

    #[test]
    fn a_key_of_another_type_is_refused_by_its_name() {
        let sk = "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIA==";
        for text in [RSA, ECDSA, sk] {
            let name = text.split(' ').next().unwrap();
            let said = error(text).to_string();
            let wanted = "and an Ed25519 key is needed: `ssh-keygen -t ed25519` makes one";
            assert_eq!(said, format!("this is a key of the type {name}, {wanted}"));
        }
    }

    #[test]
    fn a_wrong_line_says_what_is_wrong() {
        assert_eq!(error("ssh-ed25519"), KeyLineError::Cut);
        assert_eq!(error(&format!("{LINE}{LINE}")), KeyLineError::Several);
        let blob = LINE.split(' ').nth(1).unwrap();
        let other_name = STANDARD.encode([&[0, 0, 0, 11], &b"ssh-ed25518"[..], &[0; 36]].concat());
        let other_length = blob.replacen("AAAAIN", "AAAAHN", 1);
        for blob in [&blob[..67], &format!("{blob}A"), "AAAA", &other_name, &other_length] {
            assert_eq!(error(&format!("ssh-ed25519 {blob}")), KeyLineError::Damaged, "{blob}");
        }
        let rsa = RSA.replacen("ssh-rsa", "ssh-ed25519", 1);
        assert_eq!(error(&rsa), KeyLineError::Damaged);
        let options = format!("restrict {LINE}").parse::<PublicKey>();
        assert_eq!(options, Err(KeyTextError::Beginning));
    }

    /// No bit of type, lengths and key can change without another result.
    #[test]
    fn a_changed_letter_is_another_key_or_none() {
        let key: PublicKey = LINE.parse().unwrap();
        let end = "ssh-ed25519 ".len() + BASE64_CHARACTERS;
        for at in 0..end {
            for letter in ('!'..='~').filter(|letter| !LINE[at..].starts_with(*letter)) {
                let mut changed = LINE.to_owned();
                changed.replace_range(at..=at, &letter.to_string());
                assert_ne!(changed.parse(), Ok(key), "{changed}");
            }
        }
    }
}
