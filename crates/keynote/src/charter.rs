//! The charter of a volume: its roots and its named keys, signed by the server of the first site
//! for all others.
//!
//! ```text
//! Pelago-Charter: 1
//! Volume: <32 digits>
//! Version: <number>
//! Policy: <bytes of the policy, or - if there is none>
//! Keys: <bytes of the list of named keys>
//! <the policy><the list>
//! Signature: "sig-ed25519-hex:<128 digits>"
//! ```

use ring::signature::Ed25519KeyPair;

use crate::decimal::number;
use crate::hex;
use crate::key::named::KEYS_BYTES;
use crate::principal::Principal;
use crate::signature::{self, BadSignature, Signature};
use crate::{CHARTER_BYTES, CREDENTIAL_BYTES};

/// The roots and the named keys of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charter {
    /// The id of the volume.
    pub volume: [u8; 16],
    /// Rises with each change, from 1.
    pub version: u64,
    /// The text of the policy: at most [`CREDENTIAL_BYTES`]. `None` if the volume has no roots.
    pub policy: Option<String>,
    /// The text of the list of named keys: at most [`KEYS_BYTES`].
    pub keys: String,
}

/// A charter whose signature is not verified yet.
#[derive(Debug)]
pub struct SignedCharter {
    charter: Charter,
    unsigned: String,
    signature: Signature,
}

/// The reason why a text is not a charter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CharterError {
    /// It is too long, or not UTF-8.
    #[error("a charter is a text of at most {CHARTER_BYTES} bytes")]
    NoText,
    /// A line is missing, or has a wrong value.
    #[error("the line `{0}` of the charter is missing, or not as it must be")]
    Line(&'static str),
}

impl Charter {
    /// Writes and signs the charter by the holder of `key`.
    #[must_use]
    pub fn sign(&self, key: &Ed25519KeyPair) -> String {
        let Self { volume, version, policy, keys } = self;
        let length =
            policy.as_ref().map_or_else(|| "-".to_owned(), |policy| policy.len().to_string());
        let unsigned = format!(
            "Pelago-Charter: 1\nVolume: {}\nVersion: {version}\nPolicy: {length}\nKeys: {}\n\
             {}{keys}\n",
            hex::text(volume),
            keys.len(),
            policy.as_deref().unwrap_or_default(),
        );
        signature::sign(&unsigned, key)
    }
}

impl SignedCharter {
    /// Parses a charter. Its signature is not verified yet, and its texts are not read.
    ///
    /// # Errors
    /// [`CharterError`].
    pub fn parse(text: &[u8]) -> Result<Self, CharterError> {
        let text = str::from_utf8(text).ok().filter(|text| text.len() <= CHARTER_BYTES);
        let text = text.ok_or(CharterError::NoText)?;
        let mut rest = text;
        let mut line = |name: &'static str| {
            let after = rest.strip_prefix(name).and_then(|after| after.strip_prefix(": "));
            let split = after.and_then(|after| after.split_once('\n'));
            let (value, next) = split.ok_or(CharterError::Line(name))?;
            rest = next;
            Ok(value)
        };
        if line("Pelago-Charter")? != "1" {
            return Err(CharterError::Line("Pelago-Charter"));
        }
        let volume = hex::read(line("Volume")?).ok_or(CharterError::Line("Volume"))?;
        let version = number(line("Version")?).filter(|version: &u64| *version > 0);
        let version = version.ok_or(CharterError::Line("Version"))?;
        let length = |value: &str, most: usize| number(value).filter(|length| *length <= most);
        let of_policy = match line("Policy")? {
            "-" => None,
            value => {
                let length = length(value, CREDENTIAL_BYTES);
                Some(length.ok_or(CharterError::Line("Policy"))?)
            }
        };
        let of_keys = length(line("Keys")?, KEYS_BYTES).ok_or(CharterError::Line("Keys"))?;
        let (policy, rest) = rest
            .split_at_checked(of_policy.unwrap_or_default())
            .ok_or(CharterError::Line("Policy"))?;
        let (keys, rest) = rest.split_at_checked(of_keys).ok_or(CharterError::Line("Keys"))?;
        let signed = rest.strip_prefix('\n').ok_or(CharterError::Line("Keys"))?;
        let signature = signed.strip_prefix(signature::FIELD).and_then(|rest| {
            let (value, after) = rest.split_once('\n')?;
            Signature::read(value).filter(|_| after.is_empty())
        });
        let unsigned = text.get(..text.len() - signed.len()).unwrap_or_default();
        Ok(Self {
            charter: Charter {
                volume,
                version,
                policy: of_policy.map(|_| policy.to_owned()),
                keys: keys.to_owned(),
            },
            unsigned: unsigned.to_owned(),
            signature: signature.ok_or(CharterError::Line("Signature"))?,
        })
    }

    /// Returns the charter, for a reader that has verified it before.
    #[must_use]
    pub fn unverified(self) -> Charter {
        self.charter
    }

    /// Verifies the signature by the key of the first site's server, and returns the charter.
    ///
    /// # Errors
    /// [`BadSignature`].
    pub fn verify(self, by: &Principal) -> Result<Charter, BadSignature> {
        self.signature.verify(&self.unsigned, by).map(|()| self.charter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::PrivateKey;

    const FOUNDER: [u8; 32] = [7; 32];

    fn charter() -> Charter {
        Charter {
            volume: [0xab; 16],
            version: 7,
            policy: Some("KeyNote-Version: 2\nSignature: none\n".to_owned()),
            keys: "# ä\nSignature: none".to_owned(),
        }
    }

    fn founder() -> Principal {
        Principal::of(&PrivateKey::from_seed(FOUNDER).signing_key())
    }

    fn signed(charter: &Charter) -> String {
        charter.sign(&PrivateKey::from_seed(FOUNDER).signing_key())
    }

    #[test]
    fn a_charter_survives_its_text() {
        let empty = Charter { policy: None, keys: String::new(), ..charter() };
        let empty_policy = Charter { policy: Some(String::new()), ..charter() };
        let largest = Charter {
            version: u64::MAX,
            policy: Some("p".repeat(CREDENTIAL_BYTES)),
            keys: "k".repeat(KEYS_BYTES),
            ..charter()
        };
        for charter in [charter(), empty, empty_policy, largest] {
            let parsed = SignedCharter::parse(signed(&charter).as_bytes()).unwrap();
            assert_eq!(parsed.verify(&founder()).unwrap(), charter);
        }
    }

    #[test]
    fn a_charter_by_another_key_or_changed_is_not_verified() {
        let text = signed(&charter());
        let other = Principal::of(&PrivateKey::from_seed([8; 32]).signing_key());
        assert!(SignedCharter::parse(text.as_bytes()).unwrap().verify(&other).is_err());
        for (from, to) in [("Version: 7", "Version: 8"), ("KeyNote", "keyNote"), ("# ä", "# ö")] {
            let changed = text.replacen(from, to, 1);
            let parsed = SignedCharter::parse(changed.as_bytes()).unwrap();
            assert!(parsed.verify(&founder()).is_err(), "{to}");
        }
    }

    #[test]
    fn a_charter_that_was_cut_is_none() {
        let text = signed(&charter());
        for cut in 0..text.len() {
            assert!(SignedCharter::parse(&text.as_bytes()[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn each_line_is_as_it_must_be() {
        let text = signed(&charter());
        for (from, to, line) in [
            ("Pelago-Charter: 1", "Pelago-Charter: 2", "Pelago-Charter"),
            ("Volume: ab", "Volume: zz", "Volume"),
            ("Version: 7", "Version: 07", "Version"),
            ("Version: 7", "Version: 0", "Version"),
            ("Policy: 35", "Policy: +35", "Policy"),
            ("Policy: 35", "Policy: 8193", "Policy"),
            ("Keys: 20", "Keys: 262145", "Keys"),
            ("Keys: 20", "Keys: 19", "Keys"),
            // It would end within a letter.
            ("Keys: 20", "Keys: 3", "Keys"),
            ("Policy: 35", "Policy: -", "Keys"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from}");
            let error = SignedCharter::parse(changed.as_bytes()).unwrap_err();
            assert_eq!(error, CharterError::Line(line), "{to}");
        }
        let long = "x".repeat(CHARTER_BYTES + 1);
        assert_eq!(SignedCharter::parse(long.as_bytes()).unwrap_err(), CharterError::NoText);
    }
}
