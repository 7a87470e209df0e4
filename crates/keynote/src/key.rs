//! Keys of machines and people: Ed25519 (RFC 8032), and the text of a public key that people
//! paste.

use std::fmt;
use std::str::FromStr;

use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair};

use bech32::{Bech32Error, CHECKSUM};
use openssh::line;

pub(crate) use small_order::has_small_order;

mod bech32;
pub mod name;
pub mod named;
pub mod openssh;
mod small_order;

/// Bytes of a public key, and of the seed of a private one.
pub const KEY_BYTES: usize = 32;
/// Bytes of the file of a private key.
pub const KEY_FILE_BYTES: usize = 4096;
/// Bytes of the name of a key.
pub const NAME_BYTES: usize = 64;

/// The name of a public key in its text, before the separator `1`.
const PUBLIC: &str = "pelago";
/// The name of a private key in its text.
const PRIVATE: &str = "pelagosecret";

/// A public key: the identity of a machine.
///
/// Its text is Bech32m (BIP-350) with the name `pelago`, 65 characters: `pelago1`, 52 for the key,
/// and 6 for a checksum, which finds up to 4 wrong characters for certain. So a key with a typing
/// error, or a part of a key, is never another key. The text is one word for a double click, in one
/// case, and a `grep` finds it by its name. It has no `b`, `i` and `o`, which look like other
/// characters. Hexadecimal is as long, without name and checksum.
///
/// The line of an OpenSSH key, `ssh-ed25519 AAAA... [COMMENT]`, is parsed as the same key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_BYTES]);

/// A private key. Its `Debug` shows the public half only.
#[derive(Clone)]
pub struct PrivateKey {
    seed: [u8; KEY_BYTES],
    public: PublicKey,
}

/// The reason for which a text is not a key. The text is not part of the error, because it may be
/// secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyTextError {
    /// A private key was given for a public one.
    #[error("this is a private key, which stays on its machine: give the public key, {PUBLIC}1…")]
    Private,
    /// It begins like no form of a public key.
    #[error("a key begins with {PUBLIC}1 or with ssh-ed25519")]
    Beginning,
    /// It has another beginning than keys have that this program writes.
    #[error("a key begins with {wanted}1")]
    Prefix {
        /// The name that is expected.
        wanted: &'static str,
    },
    /// It is too short or too long.
    #[error("a key has {wanted} characters, and this has {found}: copy all of it, and no more")]
    Length {
        /// Characters of a key.
        wanted: usize,
        /// Characters of the text.
        found: usize,
    },
    /// It has a character that no key has.
    #[error("character {at} is {letter:?}, which no key has")]
    Letter {
        /// The position, from 1.
        at: usize,
        /// The character.
        letter: char,
    },
    /// It has small and capital letters.
    #[error("a key has small letters only, or capital letters only")]
    MixedCase,
    /// A character is wrong, or two are exchanged.
    #[error("the key's checksum does not match: at least one character is wrong")]
    Checksum,
    /// It is meant as the line of an OpenSSH key.
    #[error(transparent)]
    Line(#[from] line::KeyLineError),
    /// It is a key for which there are signatures without a private half.
    #[error("the key is one for which everybody can sign: make another one")]
    SmallOrder,
}

/// The kernel gave no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("the kernel gives no random numbers")]
pub struct NoRandomness;

impl PublicKey {
    /// Returns the key with these bytes (RFC 8032, 5.1.5).
    #[must_use]
    pub const fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the key.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Returns whether a text is meant as a public key: it begins as one, in either form.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        bech32::has_name(PUBLIC, text) || line::is_meant(text)
    }

    /// Returns the key of a text that `Display` has made, and takes no other form: what programs
    /// write has one text for a key.
    ///
    /// # Errors
    /// [`KeyTextError`].
    pub fn from_own_text(text: &str) -> Result<Self, KeyTextError> {
        if is_private(text) {
            return Err(KeyTextError::Private);
        }
        Self::signed_by_one(decode(PUBLIC, text)?)
    }

    /// Returns whether everybody can sign for this key, so that a proof of it proves nothing.
    #[must_use]
    pub fn has_small_order(&self) -> bool {
        has_small_order(&self.0)
    }

    fn signed_by_one(bytes: [u8; KEY_BYTES]) -> Result<Self, KeyTextError> {
        let key = Self(bytes);
        if key.has_small_order() { Err(KeyTextError::SmallOrder) } else { Ok(key) }
    }
}

impl PrivateKey {
    /// Returns a new random key.
    ///
    /// # Errors
    /// [`NoRandomness`].
    pub fn generate() -> Result<Self, NoRandomness> {
        let mut seed = [0; KEY_BYTES];
        SystemRandom::new().fill(&mut seed).map_err(|_| NoRandomness)?;
        Ok(Self::from_seed(seed))
    }

    /// Returns the key of this seed (RFC 8032, 5.1.5).
    #[must_use]
    pub fn from_seed(seed: [u8; KEY_BYTES]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("a seed has 32 bytes");
        let public = pair.public_key().as_ref().try_into().expect("a public key has 32 bytes");
        Self { seed, public: PublicKey(public) }
    }

    /// Returns the public half.
    #[must_use]
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    /// Returns the seed, which is secret.
    #[must_use]
    pub const fn seed(&self) -> &[u8; KEY_BYTES] {
        &self.seed
    }

    /// Returns the text, which is secret.
    #[must_use]
    pub fn to_secret_text(&self) -> String {
        bech32::encode(PRIVATE, &self.seed)
    }

    /// Returns the key in the form that signs.
    #[must_use]
    pub fn signing_key(&self) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&self.seed).expect("a seed has 32 bytes")
    }

    /// Returns the key of a text that [`PrivateKey::to_secret_text`] has returned.
    ///
    /// # Errors
    /// [`KeyTextError`].
    pub fn from_secret_text(text: &str) -> Result<Self, KeyTextError> {
        Self::from_text(text)
    }

    fn from_text(text: &str) -> Result<Self, KeyTextError> {
        Ok(Self::from_seed(decode(PRIVATE, text)?))
    }
}

impl FromStr for PublicKey {
    type Err = KeyTextError;

    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        if line::is_meant(text) {
            return Self::signed_by_one(line::parse(text)?);
        }
        Self::from_own_text(text).map_err(|error| match error {
            KeyTextError::Prefix { .. } => KeyTextError::Beginning,
            error => error,
        })
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&bech32::encode(PUBLIC, &self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl fmt::Debug for PrivateKey {
    /// Hides the seed, which is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").field("public", &self.public).finish_non_exhaustive()
    }
}

/// Returns whether a text begins as a private key, in either form.
fn is_private(text: &str) -> bool {
    bech32::has_name(PRIVATE, text) || openssh::is_private(text)
}

fn decode(name: &'static str, text: &str) -> Result<[u8; KEY_BYTES], KeyTextError> {
    bech32::decode(name, text).map_err(|error| match error {
        Bech32Error::Name => KeyTextError::Prefix { wanted: name },
        Bech32Error::Length => {
            let wanted = name.len() + 1 + bech32::symbols(KEY_BYTES) + CHECKSUM;
            KeyTextError::Length { wanted, found: text.chars().count() }
        }
        Bech32Error::Letter { at, letter } => KeyTextError::Letter { at: at + 1, letter },
        Bech32Error::MixedCase => KeyTextError::MixedCase,
        Bech32Error::Checksum | Bech32Error::Padding => KeyTextError::Checksum,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> PublicKey {
        PrivateKey::from_seed([7; KEY_BYTES]).public()
    }

    /// RFC 8032, 7.1, tests 1 and 2.
    #[test]
    fn public_keys_are_those_of_the_rfc() {
        let bytes = |hex: &str| -> [u8; KEY_BYTES] {
            std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
        };
        let cases = [
            (
                "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
                "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            ),
            (
                "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
                "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            ),
        ];
        for (seed, public) in cases {
            assert_eq!(PrivateKey::from_seed(bytes(seed)).public(), PublicKey(bytes(public)));
        }
    }

    #[test]
    fn a_text_leads_back_to_its_key() {
        let text = key().to_string();
        assert_eq!(text.len(), 65);
        assert_eq!(text.parse(), Ok(key()));
        assert_eq!(text.to_uppercase().parse(), Ok(key()));
        let private = PrivateKey::generate().unwrap();
        let again = PrivateKey::from_text(&private.to_secret_text()).unwrap();
        assert_eq!(again.public(), private.public());
    }

    /// Every other character at every position.
    #[test]
    fn one_wrong_character_is_found() {
        let text = key().to_string();
        for at in 0..text.len() {
            for letter in ('!'..='~').filter(|letter| !text[at..].starts_with(*letter)) {
                let mut wrong = text.clone();
                wrong.replace_range(at..=at, &letter.to_string());
                assert!(wrong.parse::<PublicKey>().is_err(), "{wrong}");
            }
        }
    }

    #[test]
    fn the_error_says_what_is_wrong() {
        let text = key().to_string();
        let error = |text: &str| text.parse::<PublicKey>().unwrap_err();
        assert_eq!(error(""), KeyTextError::Beginning);
        assert_eq!(error("pelage1"), KeyTextError::Beginning);
        let own = PublicKey::from_own_text("ssh-ed25519 x").unwrap_err();
        assert_eq!(own, KeyTextError::Prefix { wanted: "pelago" });
        assert_eq!(error(&text[..64]), KeyTextError::Length { wanted: 65, found: 64 });
        assert_eq!(error(&format!("{text}é")), KeyTextError::Length { wanted: 65, found: 66 });
        let bad = text.replacen(&text[9..10], "b", 1);
        let at = bad.find('b').unwrap() + 1;
        assert_eq!(error(&bad), KeyTextError::Letter { at, letter: 'b' });
        let mixed = format!("{}{}", &text[..40], text[40..].to_uppercase());
        assert_eq!(error(&mixed), KeyTextError::MixedCase);
        let last = if text.ends_with('q') { "p" } else { "q" };
        assert_eq!(error(&format!("{}{last}", &text[..64])), KeyTextError::Checksum);
    }

    #[test]
    fn a_key_for_which_everybody_can_sign_is_refused_in_each_form() {
        let mut neutral = [0; KEY_BYTES];
        neutral[0] = 1;
        let own = PublicKey::new(neutral).to_string();
        assert_eq!(own.parse::<PublicKey>(), Err(KeyTextError::SmallOrder));
        assert_eq!(PublicKey::from_own_text(&own), Err(KeyTextError::SmallOrder));
        let zeros = "A".repeat(42);
        let line = format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{zeros}A");
        let line = line.get(..80).unwrap();
        assert_eq!(line.parse::<PublicKey>(), Err(KeyTextError::SmallOrder));
    }

    /// A private key where a public one belongs is refused, and no message shows it.
    #[test]
    fn a_private_key_is_not_shown() {
        let private = PrivateKey::from_seed([9; KEY_BYTES]);
        let text = private.to_secret_text();
        let error = text.parse::<PublicKey>().unwrap_err();
        assert_eq!(error, KeyTextError::Private);
        assert!(!error.to_string().contains(&text[20..]));
        let shown = format!("{private:?}");
        assert!(!shown.contains(&text[20..]) && !shown.contains("9, 9"), "{shown}");
        assert!(shown.contains(&private.public().to_string()));
    }
}
