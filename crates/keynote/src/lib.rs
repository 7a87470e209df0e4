//! KeyNote assertions: signed sentences that grant rights between keys (RFC 2704, RFC 2792).
//!
//! An [`Assertion`] is a text of fields. A *policy* names the keys that are trusted; a *credential*
//! is signed by a key and grants rights to other keys under conditions. The crate parses and writes
//! texts, makes and verifies signatures, and answers a [`ComplianceQuery`]: may these keys carry
//! out this action? It uses neither a clock nor a file. The caller defines the meaning of the
//! attributes.
//!
//! The language is that of RFC 2704, whole, with these bounds: keys and signatures are Ed25519;
//! numbers that overflow are errors; a regular expression that POSIX does not define matches
//! nothing; text after the signature is an error. [`Assertion::credential`] refuses what the RFC
//! allows and no author means: a credential without licensees or conditions.
//!
//! Three sentences are Pelago's own: a [`Revocation`] takes a credential or a key back, a
//! [`SiteList`] names the sites of a volume, and a [`Charter`] its roots. [`armor`](mod@armor) has
//! the form in which credentials are sent by mail, [`key`] the texts, files and names of keys.

#![forbid(unsafe_code)]

pub use action::Action;
pub use armor::{ArmorError, armor, unarmor};
pub use assertion::{Assertion, Authorizer, CredentialId};
pub use charter::{Charter, CharterError, SignedCharter};
pub use conditions::{
    Arithmetic, Clause, Conditions, Consequence, Operator, Pattern, Program, Relation, StringExpr,
    Test,
};
pub use error::{AssertionError, SyntaxError};
pub use invitation::SiteInvitation;
pub use licensees::Licensees;
pub use principal::{Identifier, Principal, PrincipalError};
pub use query::{Compliance, ComplianceQuery};
pub use reads::Reads;
pub use revocation::{Revocation, RevocationError, RevocationSubject};
pub use share::{
    AddressRange, AddressRangeError, Grant, IssuedGrant, IssuingLicence, Right, Rights,
    RightsError, ShareFormError, SharedName, SharedObject,
};
pub use signature::BadSignature;
pub use site_list::{
    ListedSite, SignedSiteList, SiteList, SiteListError, is_site_address, is_site_name,
};
pub use values::Values;
pub use write::{Credential, WriteError, policy};

mod action;
pub mod armor;
mod assertion;
mod charter;
mod conditions;
mod decimal;
mod error;
mod fields;
pub mod hex;
mod invitation;
pub mod key;
mod licensees;
mod principal;
mod query;
mod reads;
mod revocation;
pub mod share;
mod signature;
mod site_list;
mod token;
mod values;
mod write;

/// The limit for an assertion in bytes, its signature included.
pub const CREDENTIAL_BYTES: usize = 8 << 10;
/// The limit for the assertions of one chain.
pub const CHAIN_LINKS: usize = 16;
/// The limit for a chain of assertions in bytes.
pub const CHAIN_BYTES: usize = 32 << 10;
/// The limit for a revocation in bytes.
pub const REVOCATION_BYTES: usize = 1 << 10;
/// The limit for the name of a site in bytes.
pub const SITE_NAME_BYTES: usize = 63;
/// The limit for the address of a site in bytes.
pub const SITE_ADDRESS_BYTES: usize = 320;
/// The limit for the sites in a list, without the first one.
pub const LISTED_SITES: usize = 64;
/// The limit for a charter in bytes.
pub const CHARTER_BYTES: usize = CREDENTIAL_BYTES + key::named::KEYS_BYTES + 4096;
/// The limit for a list of sites in bytes.
pub const SITE_LIST_BYTES: usize = 32 << 10;
