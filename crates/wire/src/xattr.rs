//! Names of extended attributes.

use crate::limits::TAG_KEY_BYTES;

/// The prefixes that names may have, except those of access control lists.
pub const PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
/// The access control list of a file (`acl(5)`).
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The access control list that new nodes inherit from a directory (`acl(5)`).
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
/// The name of the capabilities of a program (`capabilities(7)`).
pub const CAPABILITIES: &[u8] = b"security.capability";
/// The prefix of the name of a tag; its key follows.
pub const TAG_PREFIX: &str = "user.tag.";

/// The attribute that says at which sites a file and its bytes are. It is computed for each
/// question in a volume of several sites, no list has it, and it cannot be set.
pub const SITES: &[u8] = b"user.pelago.sites";

/// The attribute that sets the [level](crate::Level) of a file, or of all that is below a folder.
pub const LEVEL: &[u8] = b"user.pelago.level";

/// The attribute that says which stage the last change of a file has reached on its way to the
/// mirror ([`Reached`](crate::Reached)). It is computed for each question, no list has it, and it
/// cannot be set.
pub const REACHED: &[u8] = b"user.pelago.reached";

/// Returns whether an extended attribute is of users (`user.`), who may read and write it as the
/// bytes of the file (`xattr(7)`).
#[must_use]
pub const fn is_of_users(name: &[u8]) -> bool {
    begins_with(name, PREFIXES[0])
}

/// Returns whether an extended attribute is an access control list (`acl(5)`).
#[must_use]
pub const fn is_access_list(name: &[u8]) -> bool {
    begins_with(name, b"system.posix_acl_")
}

/// Returns whether a user sets Pelago up by an extended attribute (`user.pelago.`).
#[must_use]
pub const fn is_setting(name: &[u8]) -> bool {
    begins_with(name, b"user.pelago.")
}

/// Returns whether the value of an extended attribute is computed: [`SITES`], [`REACHED`].
#[must_use]
pub const fn is_computed(name: &[u8]) -> bool {
    is(name, SITES) || is(name, REACHED)
}

const fn is(name: &[u8], other: &[u8]) -> bool {
    name.len() == other.len() && begins_with(name, other)
}

const fn begins_with(name: &[u8], prefix: &[u8]) -> bool {
    match name.split_at_checked(prefix.len()) {
        Some((mut start, _)) => {
            let mut prefix = prefix;
            while let ([a, rest @ ..], [b, others @ ..]) = (start, prefix) {
                if *a != *b {
                    return false;
                }
                start = rest;
                prefix = others;
            }
            true
        }
        None => false,
    }
}

/// Returns the key of the tag with this name; `None` if the attribute is no tag.
#[must_use]
pub fn tag_key(name: &[u8]) -> Option<&str> {
    let key = name.strip_prefix(TAG_PREFIX.as_bytes())?;
    str::from_utf8(key).ok().filter(|key| is_tag_key(key))
}

/// Returns whether these characters are the key of a tag: a query can name no others.
#[must_use]
pub fn is_tag_key(key: &str) -> bool {
    (1..=TAG_KEY_BYTES).contains(&key.len()) && key.bytes().all(is_tag_key_byte)
}

/// Returns whether the key of a tag may have this character.
#[must_use]
pub const fn is_tag_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_a_key_of_letters_digits_and_three_signs() {
        for key in ["a", "A.b_c-9", "-", &"k".repeat(64)] {
            assert_eq!(tag_key(format!("{TAG_PREFIX}{key}").as_bytes()), Some(key));
        }
        for none in ["", "a b", "a=b", "ä", "a:b", "a\0", &"k".repeat(65)] {
            assert_eq!(tag_key(format!("{TAG_PREFIX}{none}").as_bytes()), None, "{none}");
        }
        for none in [&b"user.tag"[..], b"user.tags.a", b"trusted.tag.a", b"user.tag.\xff"] {
            assert_eq!(tag_key(none), None);
        }
    }
}
