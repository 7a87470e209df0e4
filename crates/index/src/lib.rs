//! The search index of one shard: which files a query may mean, found without reading every row.
//!
//! It has two halves in one folder: [`Names`] has a document for each name, with the attributes of
//! its file, and [`Texts`] one for each file, with the words of its text
//! (`docs/decisions/0022-two-indexes.md`). A half knows what it was told up to its last commit, and
//! [`Covered`] says how much that is.
//!
//! What an index answers are candidates: never fewer than match among the documents that it has,
//! sometimes more, and of files that the asker may not see. The caller verifies each against the
//! rows. Whatever is wrong with an index, the rows can make a new one: [`Error::is_of_files`].

#![forbid(unsafe_code)]

pub use covered::{Covered, Origin};
pub use document::Document;
pub use error::Error;
pub use names::{Candidates, Names};
pub use panics::panics_are_caught;
pub use texts::{TextHit, Texts};

mod checksums;
mod covered;
mod directory;
mod document;
mod error;
mod half;
mod handles;
mod merges;
mod names;
mod panics;
mod postings;
mod queue;
mod texts;
mod values;
