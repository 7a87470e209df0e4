//! The errors of a text that is not an assertion of this version.

use crate::principal::PrincipalError;

/// The limit for the tests of one assertion.
pub(crate) const TESTS: usize = 32;
/// The limit for the comparisons of one test.
pub(crate) const ALTERNATIVES: usize = 16;

/// The reason why a text is not an assertion of this version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssertionError {
    /// It is longer than [`crate::CREDENTIAL_BYTES`].
    #[error("the credential is longer than {} bytes", crate::CREDENTIAL_BYTES)]
    TooLong,
    /// It has a character that is neither printable ASCII, nor a tab, nor a line feed.
    #[error("the credential has the character {0:?}: mail or an editor has changed it")]
    Letter(char),
    /// A line neither begins nor continues a field.
    #[error("a line of the credential begins no field")]
    NoField,
    /// It has a field that the RFC does not have.
    #[error("the credential has the unknown field `{0}`")]
    UnknownField(String),
    /// It has a field twice.
    #[error("the credential has the field `{0}` twice")]
    Twice(&'static str),
    /// A required field is missing.
    #[error("the credential has no field `{0}`")]
    Missing(&'static str),
    /// It has a field that this version does not evaluate.
    #[error("the credential has the field `{0}`, which this version of pelago does not evaluate")]
    NotTaken(&'static str),
    /// A field is in the wrong place, or has a wrong value.
    #[error("the field `{0}` of the credential is not as it must be")]
    Field(&'static str),
    /// The field `Authorizer` or `Licensees` has a text that is not a principal.
    #[error("the field `{field}` of the credential: {why}")]
    Principal {
        /// The field.
        field: &'static str,
        /// The error of the principal.
        why: PrincipalError,
    },
    /// The field `Conditions`, or the tokens of another field, have something that this version
    /// does not accept.
    #[error("the field `{field}` of the credential: {why}")]
    Conditions {
        /// The field.
        field: &'static str,
        /// The error of the conditions.
        why: ConditionsError,
    },
}

/// The reason why a value has no conditions of this version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConditionsError {
    /// It has something that this version does not evaluate.
    #[error("this version of pelago does not evaluate `{0}`")]
    NotTaken(String),
    /// A string has no end.
    #[error("a string has no end")]
    OpenString,
    /// Something else is in the place of this.
    #[error("{0} is expected in its place, or this version of pelago does not evaluate it")]
    Expected(&'static str),
    /// There are more tests than `TESTS`, or more comparisons in one than `ALTERNATIVES`.
    #[error("there are more than {TESTS} tests, or more than {ALTERNATIVES} comparisons in one")]
    TooMany,
}

impl ConditionsError {
    pub(crate) fn not_taken(what: &str) -> Self {
        Self::NotTaken(what.to_owned())
    }
}
