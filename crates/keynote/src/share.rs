//! The form of the credentials that Pelago writes: rights to one folder, file or name of a volume.
//!
//! The server evaluates any conditions. This form is for programs that write credentials and show
//! them to people: they must say exactly what is granted, so they accept no other test.

use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use crate::assertion::Assertion;
use crate::conditions::{Conditions, Relation, Test};

pub use issued::{IssuedGrant, IssuingLicence, chain_ids, chain_text};
pub use object::{SharedName, SharedObject, printable};

mod issued;
mod object;

/// The name of the application in Pelago's credentials, which RFC 2704 (2.3) requires.
pub const APPLICATION: &str = "pelago";

/// The names of the attributes of an action.
pub mod attribute {
    /// The application: [`super::APPLICATION`].
    pub const APP_DOMAIN: &str = "app_domain";
    /// The id of the volume: 32 hexadecimal digits.
    pub const VOLUME: &str = "volume";
    /// The letter of the right that the operation needs.
    pub const RIGHT: &str = "right";
    /// The name of the request, such as `read` or `getattr`; empty if it is not known.
    pub const OPERATION: &str = "op";
    /// The directories above the object, from the root on, and itself if it is one: their inode
    /// numbers in hexadecimal digits, each between slashes, as in `/1/2a/3f/`.
    pub const ANCESTORS: &str = "ancestors";
    /// The inode number of the object in hexadecimal digits.
    pub const OBJECT: &str = "object";
    /// The name that a file has in the last of `ancestors`, its bytes; empty for a directory.
    pub const NAME: &str = "name";
    /// The time of the server in UTC: year, month, day, hour, minute, second, 14 digits.
    pub const NOW: &str = "now";
    /// The time of the day in UTC: hour and minute, 4 digits.
    pub const TIME: &str = "time";
    /// The day of the week in UTC: a digit, 0 for Sunday.
    pub const WEEKDAY: &str = "weekday";
    /// The address of the guest's machine: an IPv6 address as 32 hexadecimal digits; one of IPv4 is
    /// mapped (`::ffff:a.b.c.d`).
    pub const ADDRESS: &str = "address";
    /// The ids of the chains with which the chain of the guest begins, itself included: 64
    /// hexadecimal digits, each between slashes. The id of a chain is the BLAKE3 hash of the ids of
    /// its credentials.
    pub const CHAIN: &str = "chain";
    /// `true` if each credential of the chain that a server has issued names a chain with which
    /// this one begins; see [`super::IssuingLicence`].
    pub const ISSUED: &str = "issued";
}

/// A right to an object. Its letter is the value of the attribute `right`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// To read.
    Read,
    /// To write.
    Write,
    /// To create names.
    Create,
    /// To remove names.
    Delete,
    /// To see the execute bits.
    Execute,
    /// To grant to others what one has.
    Grant,
    /// To be told of the rights of others, and to revoke.
    Audit,
}

impl Right {
    /// Every right, in the order of their letters in a text.
    pub const ALL: [Self; 7] = [
        Self::Read,
        Self::Write,
        Self::Execute,
        Self::Create,
        Self::Delete,
        Self::Grant,
        Self::Audit,
    ];

    /// Returns the letter of the right.
    #[must_use]
    pub const fn letter(self) -> &'static str {
        match self {
            Self::Read => "r",
            Self::Write => "w",
            Self::Create => "c",
            Self::Delete => "d",
            Self::Execute => "x",
            Self::Grant => "g",
            Self::Audit => "a",
        }
    }
}

/// A set of rights, at least one, written as their letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rights(u8);

/// The error of a text that is no set of rights.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rights are letters of `rwxcdga`, each at most once, not {0:?}")]
pub struct RightsError(String);

impl Rights {
    /// The rights to read and to execute.
    pub const READ: Self = Self(1 << Right::Read as u8 | 1 << Right::Execute as u8);

    /// The rights of the maker of a file to that, and the most that one of a folder gets: all but
    /// to audit.
    pub const OF_MAKER: Self =
        Self::READ.with(Right::Write).with(Right::Create).with(Right::Delete).with(Right::Grant);

    /// Returns the set of one right.
    #[must_use]
    pub const fn only(right: Right) -> Self {
        Self(1 << right as u8)
    }

    /// Returns whether a right is one of them.
    #[must_use]
    pub const fn has(self, right: Right) -> bool {
        self.0 & (1 << right as u8) != 0
    }

    /// Returns the set with one more right.
    #[must_use]
    pub const fn with(self, right: Right) -> Self {
        Self(self.0 | 1 << right as u8)
    }

    /// Returns the rights in their order.
    pub fn iter(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |right| self.has(*right))
    }
}

impl FromStr for Rights {
    type Err = RightsError;

    fn from_str(text: &str) -> Result<Self, RightsError> {
        let error = || RightsError(text.to_owned());
        let mut rights = Self(0);
        for letter in text.chars() {
            let right = Right::ALL.into_iter().find(|right| right.letter().starts_with(letter));
            let right = right.filter(|right| !rights.has(*right)).ok_or_else(error)?;
            rights = rights.with(right);
        }
        if rights == Self(0) { Err(error()) } else { Ok(rights) }
    }
}

impl Display for Rights {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|right| f.write_str(right.letter()))
    }
}

/// A range of addresses (RFC 4632).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    first: u128,
    last: u128,
}

/// The error of a text that is no range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no range of addresses: give one such as 192.0.2.0/24 or 2001:db8::/32")]
pub struct AddressRangeError(String);

impl FromStr for AddressRange {
    type Err = AddressRangeError;

    fn from_str(text: &str) -> Result<Self, AddressRangeError> {
        let error = || AddressRangeError(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u32>().map_err(|_| error())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(width);
        let free = width.checked_sub(bits).ok_or_else(error)?;
        let mask = 1_u128.checked_shl(free).map_or(u128::MAX, |above| above - 1);
        let first = number(address);
        if first & mask != 0 {
            return Err(error());
        }
        Ok(Self { first, last: first | mask })
    }
}

impl AddressRange {
    /// Returns whether all its addresses are in another range.
    #[must_use]
    pub const fn is_within(&self, other: &Self) -> bool {
        other.first <= self.first && self.last <= other.last
    }
}

impl Display for AddressRange {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let free = (self.first ^ self.last).count_ones();
        let address = Ipv6Addr::from_bits(self.first);
        match address.to_ipv4_mapped().filter(|_| free <= 32) {
            Some(address) => write!(f, "{address}/{}", 32 - free),
            None => write!(f, "{address}/{}", 128 - free),
        }
    }
}

/// Returns an address as the value of the attribute `address`.
#[must_use]
pub fn address_text(address: IpAddr) -> String {
    format!("{:032x}", number(address))
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Rights to a folder and to everything below it, to a file, or to the file of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The id of the volume.
    pub volume: [u8; 16],
    /// The object.
    pub object: SharedObject,
    /// The rights.
    pub rights: Rights,
    /// The time at which they end, as the attribute `now` has it; `None` if they have no end.
    pub until: Option<String>,
    /// The addresses from which they can be used; `None` if from all.
    pub from: Option<AddressRange>,
}

/// The reason why the conditions of an assertion are not those of a [`Grant`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShareFormError {
    /// A test is not part of this form.
    #[error("the credential has the test `{0}`, which this version of pelago does not take")]
    Unknown(String),
    /// It is a program of clauses, not one conjunction of tests.
    #[error("the conditions of the credential are none that this version of pelago takes")]
    Program,
    /// It has constants, which could hide an attribute.
    #[error("the credential has the field `Local-Constants`, which pelago does not take")]
    Constants,
    /// A test is missing.
    #[error("the credential has no test of `{0}`, and this version of pelago wants one")]
    Missing(&'static str),
}

impl Grant {
    /// Returns the rights to read a directory, without an end, from everywhere.
    #[must_use]
    pub const fn to_read(volume: [u8; 16], directory: u64) -> Self {
        let object = SharedObject::Folder(directory);
        Self { volume, object, rights: Rights::READ, until: None, from: None }
    }

    /// Returns the conditions of the credential.
    #[must_use]
    pub fn conditions(&self) -> Conditions {
        Conditions::new(self.tests())
    }

    fn tests(&self) -> Vec<Test> {
        let mut tests = tests_of_rights(&self.volume, self.rights).to_vec();
        self.object.add_to(&mut tests);
        if let Some(until) = &self.until {
            tests.push(Test::compares(attribute::NOW, Relation::Less, until));
        }
        if let Some(AddressRange { first, last }) = self.from {
            let compare = |relation, address: u128| {
                Test::compares(attribute::ADDRESS, relation, &format!("{address:032x}"))
            };
            tests.push(compare(Relation::AtLeast, first));
            tests.push(compare(Relation::AtMost, last));
        }
        tests
    }

    /// Returns the rights that an assertion grants.
    ///
    /// # Errors
    /// [`ShareFormError`].
    pub fn of(credential: &Assertion) -> Result<Self, ShareFormError> {
        if credential.has_constants() {
            return Err(ShareFormError::Constants);
        }
        let tests = credential.conditions().and_then(Conditions::tests);
        Self::of_tests(tests.ok_or(ShareFormError::Program)?)
    }

    fn of_tests(tests: &[Test]) -> Result<Self, ShareFormError> {
        let mut tests = tests.iter().peekable();
        let mut next = |attribute| tests.next().ok_or(ShareFormError::Missing(attribute));
        let test = next(attribute::APP_DOMAIN)?;
        if test.as_comparison() != Some((attribute::APP_DOMAIN, Relation::Equal, APPLICATION)) {
            return Err(unknown(test));
        }
        let test = next(attribute::VOLUME)?;
        let volume = match test.as_comparison() {
            Some((attribute::VOLUME, Relation::Equal, digits)) => crate::hex::read(digits),
            _ => None,
        };
        let volume = volume.ok_or_else(|| unknown(test))?;
        let test = next(attribute::RIGHT)?;
        let rights = rights_of(test).ok_or_else(|| unknown(test))?;
        let test = next(attribute::ANCESTORS)?;
        let object = match SharedObject::directory_of_name(test) {
            Some(directory) => {
                let test = next(attribute::NAME)?;
                let name = SharedObject::name_of(test).ok_or_else(|| unknown(test))?;
                SharedObject::Name { directory, name }
            }
            None => SharedObject::of_test(test).ok_or_else(|| unknown(test))?,
        };
        let until = tests.peek().and_then(|test| match test.as_comparison() {
            Some((attribute::NOW, Relation::Less, until)) if is_time(until) => {
                Some(until.to_owned())
            }
            _ => None,
        });
        let mut tests = tests.skip(usize::from(until.is_some())).peekable();
        let from = match tests.peek().and_then(|test| bound(test, Relation::AtLeast)) {
            Some(first) => {
                let lower = tests.next();
                let last = tests.next().and_then(|test| bound(test, Relation::AtMost));
                let range = last.and_then(|last| range(first, last));
                Some(range.ok_or_else(|| {
                    lower.map_or(ShareFormError::Missing(attribute::ADDRESS), unknown)
                })?)
            }
            None => None,
        };
        match tests.next() {
            None => Ok(Self { volume, object, rights, until, from }),
            Some(test) => Err(unknown(test)),
        }
    }
}

/// Returns the first tests of all credentials of Pelago: that of the application, of the volume and
/// of the rights.
fn tests_of_rights(volume: &[u8; 16], rights: Rights) -> [Test; 3] {
    let mut letters: Vec<Test> =
        rights.iter().map(|right| Test::equals(attribute::RIGHT, right.letter())).collect();
    [
        Test::equals(attribute::APP_DOMAIN, APPLICATION),
        Test::equals(attribute::VOLUME, &crate::hex::text(volume)),
        match letters.len() {
            1 => letters.swap_remove(0),
            _ => Test::Any(letters),
        },
    ]
}

fn unknown(test: &Test) -> ShareFormError {
    ShareFormError::Unknown(test.to_string())
}

/// Returns the rights of a test that the right is one of them, in their order.
fn rights_of(test: &Test) -> Option<Rights> {
    let tests = match test {
        Test::Any(tests) => tests.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut letters = String::new();
    for test in tests {
        match test.as_comparison() {
            Some((attribute::RIGHT, Relation::Equal, letter)) if letter.len() == 1 => {
                letters.push_str(letter);
            }
            _ => return None,
        }
    }
    letters.parse().ok().filter(|rights: &Rights| rights.to_string() == letters)
}

/// Returns whether a text has the form of the attribute `now`.
fn is_time(text: &str) -> bool {
    text.len() == 14 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the address of a test that bounds the addresses.
fn bound(test: &Test, relation: Relation) -> Option<u128> {
    match test.as_comparison() {
        Some((attribute::ADDRESS, found, digits)) if found == relation && digits.len() == 32 => {
            let address = u128::from_str_radix(digits, 16).ok()?;
            (format!("{address:032x}") == digits).then_some(address)
        }
        _ => None,
    }
}

/// Returns the range of these addresses if it is one of RFC 4632.
fn range(first: u128, last: u128) -> Option<AddressRange> {
    let mask = first ^ last;
    let is_range = mask & mask.wrapping_add(1) == 0 && first & mask == 0;
    is_range.then_some(AddressRange { first, last })
}
