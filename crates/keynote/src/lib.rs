//! KeyNote assertions: signed sentences that grant rights between keys (RFC 2704, RFC 2792).
//!
//! An [`Assertion`] is a text of fields. A *policy* says which keys are believed at all; a
//! *credential* is signed by a key and grants another key something under conditions. The crate
//! reads texts, writes and verifies signatures, and knows neither a clock nor a file. What an
//! attribute of a condition means is for its caller to say.
//!
//! This version takes a part of the language: conjunctions of comparisons of strings, and one
//! licensee, or several joined by `||`. What it does not take is an error that names it, and is
//! never skipped: a skipped test would grant more than was signed.
//!
//! A [`Revocation`] is our own sentence: it takes a credential back. [`armor`](mod@armor) has the
//! form in which credentials travel by mail.

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
mod hex;
mod invitation;
mod principal;
mod revocation;
mod share;
mod signature;
mod token;
mod write;

/// Bytes of one assertion, its signature included.
pub const CREDENTIAL_BYTES: usize = 8 << 10;
/// Assertions of one chain.
pub const CHAIN_LINKS: usize = 16;
/// Bytes of a chain of assertions.
pub const CHAIN_BYTES: usize = 32 << 10;
/// Bytes of a sentence that takes a credential back.
pub const REVOCATION_BYTES: usize = 1 << 10;
