//! Keys as OpenSSH writes them: the line of a public key, and the file of a private one.
//!
//! Both are base64 of strings and numbers (RFC 4251, 5): a string is its length, as u32 big-endian,
//! and its bytes.

pub mod line;
pub mod private;

/// The name of the one type of key that is taken (RFC 8709).
const ED25519: &str = "ssh-ed25519";
/// The names of the other types that `ssh-keygen` makes.
const OTHER_TYPES: [&str; 9] = [
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "sk-ssh-ed25519@openssh.com",
    "ssh-dss",
    "ssh-ed25519-cert-v01@openssh.com",
    "ssh-rsa",
    "ssh-rsa-cert-v01@openssh.com",
];
/// The first line of the file of a private key.
const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
/// Bytes of a key, and of its seed.
const KEY_BYTES: usize = 32;

/// Returns whether a text is meant as the file of a private key: it begins as one.
#[must_use]
pub fn is_private(text: &str) -> bool {
    text.trim_start().starts_with(BEGIN)
}

/// The strings and numbers that are left to be read.
#[derive(Debug, Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Takes this many bytes.
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let Self(left) = self;
        let (taken, rest) = left.split_at_checked(count)?;
        *left = rest;
        Some(taken)
    }

    /// Takes a number.
    fn number(&mut self) -> Option<u32> {
        self.bytes(size_of::<u32>())?.try_into().ok().map(u32::from_be_bytes)
    }

    /// Takes a string.
    fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.bytes(usize::try_from(length).ok()?)
    }

    /// Takes a string that is a key or seed of Ed25519.
    fn key(&mut self) -> Option<[u8; KEY_BYTES]> {
        self.string()?.try_into().ok()
    }

    const fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}
