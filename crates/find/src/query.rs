//! A parsed query.

use std::fmt;

use pelago_wire::Time;
use pelago_wire::limits::QUERY_BYTES;

use crate::error::{Position, QueryError};
use crate::evaluate::Candidate;
use crate::expr::Expr;
use crate::{canonical, evaluate, parse};

/// A query of `pelago find`. Two queries are equal if their canonical texts are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Query {
    expr: Expr,
}

impl Query {
    /// Parses a query.
    ///
    /// # Errors
    /// Returns [`QueryError`] with the first thing that is wrong.
    pub fn parse(text: &[u8]) -> Result<Self, QueryError> {
        let query = Self { expr: parse::parse(text)? };
        // Lower case can have more bytes, and the canonical text has a blank before a bracket.
        let bytes = query.to_bytes().len();
        if bytes > QUERY_BYTES {
            return Err(QueryError::LongCanonical { at: Position::of(text, text.len()), bytes });
        }
        Ok(query)
    }

    /// Returns the tree of the query.
    #[must_use]
    pub const fn expr(&self) -> &Expr {
        &self.expr
    }

    /// Returns the canonical text. It parses as an equal query.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        canonical::text(&self.expr)
    }

    /// Returns whether a file matches. Ages are measured at `now`.
    #[must_use]
    pub fn matches(&self, file: &(impl Candidate + ?Sized), now: Time) -> bool {
        evaluate::matches(&self.expr, file, now)
    }
}

/// Shows the canonical text, with `�` for bytes that are not UTF-8. For another program use
/// [`Query::to_bytes`].
impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.to_bytes()))
    }
}
