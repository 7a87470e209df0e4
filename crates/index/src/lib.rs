//! The search index of one shard: it finds the files that may match a query, and reads no row.
//!
//! It has two halves in one folder: [`Names`] has a document for each name, with the attributes of
//! its file, and [`Texts`] one for each file, with the words of its text
//! (`docs/decisions/0022-two-indexes.md`). A half answers from its last commit, and [`Covered`]
//! says which changes that has.
//!
//! An index answers with candidates: never fewer than match among its documents, sometimes more,
//! and also files that the asker may not see. The caller verifies each against the rows. Whatever
//! is wrong with an index, the rows can make a new one: [`Error::is_of_files`].

#![forbid(unsafe_code)]

pub use candidates::{Candidates, TextHit};
pub use covered::{Covered, Origin};
pub use document::Document;
pub use error::Error;
#[cfg(not(feature = "search"))]
pub use without::{Names, Texts, panics_are_caught};
#[cfg(feature = "search")]
pub use {names::Names, panics::panics_are_caught, texts::Texts};

mod candidates;
mod covered;
mod document;
mod error;

#[cfg(feature = "search")]
mod checksums;
#[cfg(feature = "search")]
mod directory;
#[cfg(feature = "search")]
mod half;
#[cfg(feature = "search")]
mod handles;
#[cfg(feature = "search")]
mod merges;
#[cfg(feature = "search")]
mod names;
#[cfg(feature = "search")]
mod panics;
#[cfg(feature = "search")]
mod postings;
#[cfg(feature = "search")]
mod queue;
#[cfg(feature = "search")]
mod texts;
#[cfg(feature = "search")]
mod values;
#[cfg(not(feature = "search"))]
mod without;

/// Tells if there is an engine: the crate is built with the feature `search`. Without it an index
/// cannot be opened, and searches look at all rows.
pub const HAS_ENGINE: bool = cfg!(feature = "search");
