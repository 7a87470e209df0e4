//! The errors of a text that is not a query, with their positions.

use std::fmt;

use pelago_wire::limits::{NAME_BYTES, QUERY_BYTES, QUERY_NESTING, QUERY_TERMS, TAG_KEY_BYTES};

use crate::glob::GlobError;
use crate::unit::Unit;

/// A position in the text of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The number of bytes before it.
    pub offset: usize,
    /// The number of its character, counted from 1.
    pub column: usize,
}

/// An error in the text of a query, with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The text is longer than a query.
    #[error("the query has {bytes} bytes and must end at {at}: write at most {QUERY_BYTES} bytes")]
    TooLong {
        /// The position at which a query must end.
        at: Position,
        /// The bytes of the text.
        bytes: usize,
    },
    /// The canonical form of the query is longer than a query.
    #[error(
        "the query that ends at {at} has {bytes} bytes in its canonical form: write it shorter, \
         so that this has at most {QUERY_BYTES}"
    )]
    LongCanonical {
        /// The end of the text.
        at: Position,
        /// The bytes of the canonical form.
        bytes: usize,
    },
    /// There are more terms than a query may have.
    #[error("the term at {at} is one too many: write at most {QUERY_TERMS} terms")]
    TooManyTerms {
        /// The position of the first term beyond the limit.
        at: Position,
    },
    /// Brackets and `not` are nested too deeply.
    #[error(
        "the bracket or `not` at {at} is too deep: write at most {QUERY_NESTING} inside each other"
    )]
    TooDeep {
        /// The position of the first one beyond the limit.
        at: Position,
    },
    /// A control character is outside of quotes.
    #[error(
        "the control character {byte:#04x} at {at} is outside of quotes: remove it, or put the \
         value that it belongs to in quotes"
    )]
    Control {
        /// Its position.
        at: Position,
        /// The character.
        byte: u8,
    },
    /// Something else is at a position where a term must begin.
    #[error(
        "expected a term at {at}, found {found}: write one such as name=NAME or KEY=VALUE there"
    )]
    NoTerm {
        /// The position at which the term must begin.
        at: Position,
        /// The text at that position.
        found: Found,
    },
    /// A bracket is not closed.
    #[error("the bracket at {at} is not closed: write `)` behind its last term")]
    Unclosed {
        /// The position of the bracket.
        at: Position,
    },
    /// A closing bracket has no opening one.
    #[error("the bracket at {at} closes none: remove it, or write `(` before its first term")]
    Unopened {
        /// The position of the bracket.
        at: Position,
    },
    /// A key is not followed by a sign that it takes.
    #[error("expected a sign at {at} directly behind `{key}`: write {usage}")]
    Sign {
        /// The position at which the sign must be.
        at: Position,
        /// The key.
        key: String,
        /// The terms that begin with this key.
        usage: &'static str,
    },
    /// The key of a tag is missing.
    #[error(
        "expected the key of a tag at {at}: write letters, digits, `.`, `_` or `-` directly \
         behind `tag:`"
    )]
    NoKey {
        /// The position at which the key must begin.
        at: Position,
    },
    /// A key is too long.
    #[error("the key at {at} has {bytes} bytes: write one with at most {TAG_KEY_BYTES}")]
    LongKey {
        /// The position of the key.
        at: Position,
        /// The length of the key in bytes.
        bytes: usize,
    },
    /// A value is missing, or is empty although it must not be.
    #[error(
        "expected a value for `{key}` at {at}: write it directly behind the sign (only the value \
         of a tag may be empty, and is then written \"\")"
    )]
    NoValue {
        /// The position at which the value must begin.
        at: Position,
        /// The key.
        key: String,
    },
    /// A quoted value has no closing quote.
    #[error("the quote at {at} is not closed: write `\"` at the end of the value")]
    UnclosedQuote {
        /// The position of the quote.
        at: Position,
    },
    /// A backslash in quotes is before a character that is neither a quote nor a backslash.
    #[error(
        "expected `\\\"` or `\\\\` at {at} in a quoted value: write `\\\\` for the backslash itself"
    )]
    QuoteEscape {
        /// The position of the backslash.
        at: Position,
    },
    /// A quoted value is followed by something other than white space or a bracket.
    #[error("expected white space or a bracket at {at} behind the quoted value: write a blank")]
    BehindQuote {
        /// Its position.
        at: Position,
    },
    /// A quote is inside a value that does not begin with one.
    #[error(
        "the quote at {at} is inside a value without quotes: put the whole value in quotes, with \
         `\\\"` for a quote that belongs to it"
    )]
    QuoteInside {
        /// The position of the quote.
        at: Position,
    },
    /// A value that must be UTF-8 is not.
    #[error("expected UTF-8 in the value of `{key}` at {at}: write it in that encoding")]
    NotUtf8 {
        /// The position of the first invalid byte.
        at: Position,
        /// The key.
        key: String,
    },
    /// A value is not the name of a file.
    #[error(
        "expected the last component of a path at {at}: write 1 to {NAME_BYTES} bytes without `/` \
         and NUL, and neither `.` nor `..`"
    )]
    Name {
        /// The position of the value.
        at: Position,
    },
    /// A value is not a pattern.
    #[error("expected a pattern, which is wrong at {at}: {problem}")]
    Glob {
        /// The position of the error in the text of the query.
        at: Position,
        /// The error of the pattern.
        problem: GlobError,
    },
    /// A value is not a size.
    #[error(
        "expected a size at {at}: write a number of bytes, or one with K, M, G or T behind it for \
         powers of 1024"
    )]
    Size {
        /// The position of the value.
        at: Position,
    },
    /// A size is too large.
    #[error("the size at {at} is too large: write one below 16777216T")]
    LargeSize {
        /// The position of the value.
        at: Position,
    },
    /// A value is neither an age nor a day.
    #[error(
        "expected an age or a day at {at}: write a number with s, m, h, d, w or y behind it, or a \
         day as YYYY-MM-DD"
    )]
    When {
        /// The position of the value.
        at: Position,
    },
    /// An age is too large.
    #[error("the age at {at} is too large: write one below 18446744073709551616s")]
    LargeAge {
        /// The position of the value.
        at: Position,
    },
    /// A value is not a kind of file.
    #[error("expected a kind of file at {at}: write file, dir, link, fifo, socket, char or block")]
    Kind {
        /// The position of the value.
        at: Position,
    },
    /// A number is too large for a user id.
    #[error("the number at {at} is that of no user: write one up to 4294967295, or a name")]
    Uid {
        /// The position of the value.
        at: Position,
    },
    /// A text has no word.
    #[error("expected a word at {at}: write at least one letter or digit")]
    NoWord {
        /// The position of the value.
        at: Position,
    },
}

/// The text at a position where a term must begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found {
    /// Nothing: the text has ended.
    End,
    /// A keyword that joins terms.
    Keyword(&'static str),
    /// A bracket without a term before it.
    Bracket,
    /// A byte with which no term begins.
    Byte(u8),
}

impl QueryError {
    /// Returns the position that the error names.
    #[must_use]
    pub const fn position(&self) -> Position {
        match self {
            Self::TooLong { at, .. }
            | Self::LongCanonical { at, .. }
            | Self::TooManyTerms { at }
            | Self::TooDeep { at }
            | Self::Control { at, .. }
            | Self::NoTerm { at, .. }
            | Self::Unclosed { at }
            | Self::Unopened { at }
            | Self::Sign { at, .. }
            | Self::NoKey { at }
            | Self::LongKey { at, .. }
            | Self::NoValue { at, .. }
            | Self::UnclosedQuote { at }
            | Self::QuoteEscape { at }
            | Self::BehindQuote { at }
            | Self::QuoteInside { at }
            | Self::NotUtf8 { at, .. }
            | Self::Name { at }
            | Self::Glob { at, .. }
            | Self::Size { at }
            | Self::LargeSize { at }
            | Self::When { at }
            | Self::LargeAge { at }
            | Self::Kind { at }
            | Self::Uid { at }
            | Self::NoWord { at } => *at,
        }
    }
}

impl Position {
    /// Returns the position of an offset in a text.
    pub(crate) fn of(text: &[u8], offset: usize) -> Self {
        let mut at = 0;
        let mut column = 1;
        while at < offset {
            let Some((_, length)) = Unit::at(text, at) else { break };
            at += length;
            column += 1;
        }
        Self { offset, column }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {} (column {})", self.offset, self.column)
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::End => f.write_str("the end"),
            Self::Keyword(word) => write!(f, "`{word}`"),
            Self::Bracket => f.write_str("`)`"),
            Self::Byte(byte) => write!(f, "`{}`", byte.escape_ascii()),
        }
    }
}
