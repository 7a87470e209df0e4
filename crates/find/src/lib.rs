//! The language of `pelago find`: which files a query means, as `docs/query.md` specifies it.
//!
//! [`Query::parse`] reads a query, [`Query::matches`] asks it of one file, and [`Query::to_bytes`]
//! writes it in its one canonical form. That text is also what one server sends to another, so no
//! second encoding exists. [`Expr`] is the tree, for an index that plans from it.
//!
//! Nothing here does I/O, reads a clock or resolves a user: the caller gives the time, and answers
//! the questions of [`Candidate`].

#![forbid(unsafe_code)]

pub use comparison::Comparison;
pub use day::Day;
pub use error::{Found, Position, QueryError};
pub use evaluate::Candidate;
pub use expr::{Expr, FileOwner, TagKey, Term, When};
pub use glob::{Glob, GlobError, Literal};
pub use query::Query;
pub use rank::{TextCounts, rank, score_alone};
pub use syntax::word_of;
pub use text::{has_words, text, words};
pub use unfinished::{Unfinished, Wanted};

mod canonical;
mod comparison;
mod day;
mod error;
mod evaluate;
mod expr;
mod glob;
mod parse;
mod query;
mod rank;
mod syntax;
mod text;
mod unfinished;
mod unit;
