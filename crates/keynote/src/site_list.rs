//! The list of a volume's sites, signed by the server of the first one.
//!
//! ```text
//! Pelago-Sites: 1
//! Volume: <32 digits>
//! Version: <number>
//! Site: <number> <64 digits of its key> <name> <HOST:PORT, or ->
//! Signature: "sig-ed25519-hex:<128 digits>"
//! ```
//!
//! There is a line `Site` for each site but the first one, in the order of their numbers. A site
//! that is not in the list has left the volume.

use ring::signature::Ed25519KeyPair;

use crate::decimal::number;
use crate::hex;
use crate::principal::Principal;
use crate::signature::{self, BadSignature, Signature};
use crate::{LISTED_SITES, SITE_ADDRESS_BYTES, SITE_LIST_BYTES, SITE_NAME_BYTES};

/// The list of a volume's sites.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteList {
    /// The id of the volume.
    pub volume: [u8; 16],
    /// Rises with each change, from 1.
    pub version: u64,
    /// The sites but the first one, in the order of their numbers: at most [`LISTED_SITES`].
    pub sites: Vec<ListedSite>,
}

/// A site in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSite {
    /// Its number, from 1.
    pub site: u16,
    /// The Ed25519 public key of its server.
    pub key: [u8; 32],
    /// Its name: see [`is_site_name`].
    pub name: String,
    /// The address of its server, `HOST:PORT`; empty if it cannot be reached.
    pub address: String,
}

/// A list whose signature is not verified yet.
#[derive(Debug)]
pub struct SignedSiteList {
    list: SiteList,
    unsigned: String,
    signature: Signature,
}

/// The reason why a text is not a list of sites.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SiteListError {
    /// It is too long, or not UTF-8.
    #[error("a list of sites is a text of at most {SITE_LIST_BYTES} bytes")]
    NoText,
    /// A line is missing, or has a wrong value.
    #[error("the line `{0}` of the list of sites is missing, or not as it must be")]
    Line(&'static str),
    /// A number or a key is there twice, or the numbers are not in order.
    #[error("the list of sites names a number or a key twice, or is not in order")]
    Twice,
    /// There are too many lines.
    #[error("the list names more than {LISTED_SITES} sites")]
    TooMany,
}

impl SiteList {
    /// Writes and signs the list by the holder of `key`.
    #[must_use]
    pub fn sign(&self, key: &Ed25519KeyPair) -> String {
        let volume = hex::text(&self.volume);
        let mut unsigned =
            format!("Pelago-Sites: 1\nVolume: {volume}\nVersion: {}\n", self.version);
        for ListedSite { site, key, name, address } in &self.sites {
            let key = hex::text(key);
            let address = if address.is_empty() { "-" } else { address };
            unsigned.push_str(&format!("Site: {site} {key} {name} {address}\n"));
        }
        signature::sign(&unsigned, key)
    }
}

impl SignedSiteList {
    /// Parses a list. Its signature is not verified yet.
    ///
    /// # Errors
    /// [`SiteListError`].
    pub fn parse(text: &[u8]) -> Result<Self, SiteListError> {
        let text = str::from_utf8(text).ok().filter(|text| text.len() <= SITE_LIST_BYTES);
        let text = text.ok_or(SiteListError::NoText)?;
        let end = text.find(signature::FIELD).ok_or(SiteListError::Line("Signature"))?;
        let (unsigned, signed) = text.split_at(end);
        let signature = signed.strip_prefix(signature::FIELD).and_then(|rest| {
            let (value, after) = rest.split_once('\n')?;
            Signature::read(value).filter(|_| after.is_empty())
        });
        let mut lines = unsigned.lines();
        let mut line = |begin: &'static str| {
            let value = lines.next().and_then(|line| line.strip_prefix(begin));
            value.and_then(|rest| rest.strip_prefix(": ")).ok_or(SiteListError::Line(begin))
        };
        if line("Pelago-Sites")? != "1" {
            return Err(SiteListError::Line("Pelago-Sites"));
        }
        let volume = hex::read(line("Volume")?).ok_or(SiteListError::Line("Volume"))?;
        let version = number(line("Version")?).filter(|version: &u64| *version > 0);
        let version = version.ok_or(SiteListError::Line("Version"))?;
        let mut sites = Vec::<ListedSite>::new();
        for line in lines {
            let site = listed(line).ok_or(SiteListError::Line("Site"))?;
            let is_after = sites.last().is_none_or(|last| last.site < site.site);
            if !is_after || sites.iter().any(|other| other.key == site.key) {
                return Err(SiteListError::Twice);
            }
            if sites.len() == LISTED_SITES {
                return Err(SiteListError::TooMany);
            }
            sites.push(site);
        }
        Ok(Self {
            list: SiteList { volume, version, sites },
            unsigned: unsigned.to_owned(),
            signature: signature.ok_or(SiteListError::Line("Signature"))?,
        })
    }

    /// Returns the list, for a reader that has verified it before.
    #[must_use]
    pub fn unverified(self) -> SiteList {
        self.list
    }

    /// Verifies the signature by the key of the first site's server, and returns the list.
    ///
    /// # Errors
    /// [`BadSignature`].
    pub fn verify(self, by: &Principal) -> Result<SiteList, BadSignature> {
        self.signature.verify(&self.unsigned, by).map(|()| self.list)
    }
}

/// Parses the line of a site.
fn listed(line: &str) -> Option<ListedSite> {
    let mut fields = line.strip_prefix("Site: ")?.split(' ');
    let site = number(fields.next()?).filter(|site| (1..u16::MAX).contains(site))?;
    let key = hex::read(fields.next()?)?;
    let name = fields.next().filter(|name| is_site_name(name))?;
    let address = match fields.next()? {
        "-" => "",
        address if is_site_address(address) => address,
        _ => return None,
    };
    let site = ListedSite { site, key, name: name.to_owned(), address: address.to_owned() };
    fields.next().is_none().then_some(site)
}

/// Returns whether this is a valid name of a site: 1 to [`SITE_NAME_BYTES`] letters, digits, `-`
/// and `_`.
#[must_use]
pub fn is_site_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=SITE_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Returns whether this is an address for the list: `HOST:PORT` without blanks, so that it cannot
/// be taken for another part of the text that is signed.
#[must_use]
pub fn is_site_address(address: &str) -> bool {
    let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]%".contains(&byte);
    let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    address.len() <= SITE_ADDRESS_BYTES
        && address.bytes().all(is_of_host)
        && port.is_some_and(|(_, port)| number::<u16>(port).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::PrivateKey;

    const FOUNDER: [u8; 32] = [7; 32];

    fn list() -> SiteList {
        let site = |site, name: &str, address: &str| ListedSite {
            site,
            key: *PrivateKey::from_seed([site as u8; 32]).public().as_bytes(),
            name: name.to_owned(),
            address: address.to_owned(),
        };
        let sites = vec![site(1, "berlin", "10.0.0.2:7440"), site(3, "rome", "")];
        SiteList { volume: [0xab; 16], version: 7, sites }
    }

    fn founder() -> Principal {
        Principal::of(&PrivateKey::from_seed(FOUNDER).signing_key())
    }

    fn signed() -> String {
        list().sign(&PrivateKey::from_seed(FOUNDER).signing_key())
    }

    #[test]
    fn a_list_survives_its_text() {
        let parsed = SignedSiteList::parse(signed().as_bytes()).unwrap();
        assert_eq!(parsed.verify(&founder()).unwrap(), list());
    }

    #[test]
    fn a_list_by_another_key_is_not_verified() {
        let parsed = SignedSiteList::parse(signed().as_bytes()).unwrap();
        let other = Principal::of(&PrivateKey::from_seed([8; 32]).signing_key());
        assert!(parsed.verify(&other).is_err());
    }

    #[test]
    fn a_list_that_was_cut_or_changed_is_none() {
        let text = signed();
        for cut in 0..text.len() {
            assert!(SignedSiteList::parse(&text.as_bytes()[..cut]).is_err(), "{cut}");
        }
        for (from, to) in [("Version: 7", "Version: 8"), ("berlin", "bonn"), ("7440", "7441")] {
            let changed = text.replacen(from, to, 1);
            let parsed = SignedSiteList::parse(changed.as_bytes()).unwrap();
            assert!(parsed.verify(&founder()).is_err(), "{to}");
        }
    }

    #[test]
    fn each_line_is_as_it_must_be() {
        let text = signed();
        for (from, to, error) in [
            ("Pelago-Sites: 1", "Pelago-Sites: 2", SiteListError::Line("Pelago-Sites")),
            ("Volume: ab", "Volume: zz", SiteListError::Line("Volume")),
            ("Version: 7", "Version: 07", SiteListError::Line("Version")),
            ("Version: 7", "Version: 0", SiteListError::Line("Version")),
            ("Site: 1 ", "Site: 0 ", SiteListError::Line("Site")),
            ("Site: 1 ", "Site: 65535 ", SiteListError::Line("Site")),
            ("Site: 1 ", "Site: +1 ", SiteListError::Line("Site")),
            ("berlin", "ber lin", SiteListError::Line("Site")),
            ("10.0.0.2:7440", "10.0.0.2", SiteListError::Line("Site")),
            ("10.0.0.2:7440", "10.0.0.2:7440 more", SiteListError::Line("Site")),
            ("Site: 1 ", "Site: 3 ", SiteListError::Twice),
            ("Site: 1 ", "Site: 4 ", SiteListError::Twice),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_eq!(SignedSiteList::parse(changed.as_bytes()).unwrap_err(), error, "{to}");
        }
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for good in ["10.0.0.2:7440", "office.example:1", "[fe80::1%eth0]:7440", "fe80::1:7440"] {
            assert!(is_site_address(good), "{good}");
        }
        for wrong in
            ["", "host", ":7440", "host:", "host:70000", "host:07", "h t:1", "h:1\n", "ü:1"]
        {
            assert!(!is_site_address(wrong), "{wrong}");
        }
        assert!(!is_site_address(&format!("{}:1", "h".repeat(SITE_ADDRESS_BYTES))));
    }

    #[test]
    fn a_list_has_bounds() {
        let mut list = list();
        let site = |number: u16| ListedSite {
            site: number,
            key: {
                let mut key = [9; 32];
                key[..2].copy_from_slice(&number.to_le_bytes());
                key
            },
            name: "x".repeat(63),
            address: format!("{}:65535", "h".repeat(314)),
        };
        list.sites = (1..=LISTED_SITES as u16).map(site).collect();
        let key = PrivateKey::from_seed(FOUNDER).signing_key();
        let largest = list.sign(&key);
        assert!(largest.len() <= SITE_LIST_BYTES, "{}", largest.len());
        assert!(SignedSiteList::parse(largest.as_bytes()).is_ok());
        list.sites.push(site(LISTED_SITES as u16 + 1));
        let larger = list.sign(&key);
        let error = SignedSiteList::parse(larger.as_bytes()).unwrap_err();
        assert!(matches!(error, SiteListError::TooMany | SiteListError::NoText), "{error}");
        let long = "x".repeat(SITE_LIST_BYTES + 1);
        assert_eq!(SignedSiteList::parse(long.as_bytes()).unwrap_err(), SiteListError::NoText);
    }
}
