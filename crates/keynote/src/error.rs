//! The errors of a text that is not an assertion.

use crate::principal::PrincipalError;

/// The deepest nesting of a field: of parentheses, braces and operators of one operand.
pub(crate) const NESTING: usize = 32;

/// The reason why a text is not an assertion.
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
    /// A constant is defined twice, or its name begins with `_`, which belongs to the language.
    #[error("the credential cannot define the constant `{0}`")]
    Constant(String),
    /// The name of a principal is an attribute that is no constant of the assertion.
    #[error("the field `{field}` of the credential: `{text}` is no constant of this credential")]
    NoConstant {
        /// The field.
        field: &'static str,
        /// The expression.
        text: String,
    },
    /// A threshold is larger than its list, or no number.
    #[error("the field `Licensees` of the credential wants more keys than it lists")]
    Threshold,
    /// There are too many licensees.
    #[error("the field `Licensees` of the credential has more than {0} keys")]
    TooManyLicensees(usize),
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
    /// A field is not in the syntax of the language.
    #[error("the field `{field}` of the credential: {why}")]
    Syntax {
        /// The field.
        field: &'static str,
        /// The error of the syntax.
        why: SyntaxError,
    },
}

/// The reason why the value of a field is not in the syntax of RFC 2704.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    /// A character begins no token.
    #[error("{0:?} has no meaning here")]
    NoToken(char),
    /// A string has no end in its line.
    #[error("a string has no end")]
    OpenString,
    /// Something else is in the place of this.
    #[error("{expected} is expected in the place of {found}")]
    Unexpected {
        /// The thing that is expected.
        expected: &'static str,
        /// The token in its place.
        found: String,
    },
    /// An operator has operands of types that it does not take.
    #[error(
        "`{0}` cannot be applied to these types: `@` makes an integer of a string, `&` a float"
    )]
    Types(&'static str),
    /// Two floats are compared for equality.
    #[error("floats cannot be compared by `==` or `!=`")]
    FloatEquality,
    /// A number is too large.
    #[error("the number {0} is too large")]
    Number(String),
    /// The regular expressions, compiled, would take too much time and memory.
    #[error("its regular expressions repeat too much")]
    Patterns,
    /// There are too many parentheses, braces or operators in each other.
    #[error("it is nested deeper than {NESTING} levels")]
    TooDeep,
}
