//! The query language of `pelago find`, which `docs/query.md` specifies.
//!
//! [`Query::parse`] reads a query, [`Query::matches`] evaluates it for one file, and
//! [`Query::to_bytes`] writes its canonical text. Servers send each other that text, so there is no
//! second encoding. [`Expr`] is the tree of a query, from which an index plans.
//!
//! This crate does no I/O, reads no clock and resolves no user: the caller passes the time, and
//! implements [`Candidate`].

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
