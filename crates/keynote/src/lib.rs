//! KeyNote assertions: signed sentences that grant rights between keys (RFC 2704, RFC 2792).
//!
//! An [`Assertion`] is a text of fields. A *policy* names the keys that are trusted; a *credential*
//! is signed by a key and grants rights to another key under conditions. The crate parses and
//! writes texts, and makes and verifies signatures. It uses neither a clock nor a file. The caller
//! defines the meaning of the attributes in conditions.
//!
//! This version accepts a part of the language: conjunctions of comparisons of strings, and one
//! licensee, or several joined by `||`. Any other part of the language is an error that names it,
//! and is never skipped: a skipped test would grant more than was signed.
//!
//! A [`Revocation`] is Pelago's own sentence: it takes a credential back. [`armor`](mod@armor) has
//! the form in which credentials are sent by mail.

#![forbid(unsafe_code)]

pub use armor::{ArmorError, armor, unarmor};
pub use assertion::{Assertion, Authorizer, CredentialId};
pub use conditions::{Compared, Conditions, Test};
pub use error::{AssertionError, ConditionsError};
pub use invitation::SiteInvitation;
pub use principal::{Principal, PrincipalError};
pub use revocation::{Revocation, RevocationError};
pub use share::{SharedFolder, SharedFolderError};
pub use signature::BadSignature;
pub use write::{Credential, WriteError, policy};

pub mod armor;
mod assertion;
mod conditions;
mod error;
mod fields;
pub mod hex;
mod invitation;
mod principal;
mod revocation;
mod share;
mod signature;
mod token;
mod write;

/// The limit for an assertion in bytes, its signature included.
pub const CREDENTIAL_BYTES: usize = 8 << 10;
/// The limit for the assertions of one chain.
pub const CHAIN_LINKS: usize = 16;
/// The limit for a chain of assertions in bytes.
pub const CHAIN_BYTES: usize = 32 << 10;
/// The limit for a revocation in bytes.
pub const REVOCATION_BYTES: usize = 1 << 10;
