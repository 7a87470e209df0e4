//! Searches in one shard: the answers to queries and to questions for tags, and the search index.
//!
//! An answer is found in a snapshot of the rows ([`Searched::page`]), by the index if there is one
//! that is complete, or without it. [`BuildIndex`] builds the index and keeps it up; its caller
//! says when. The index costs or spares time, and changes no answer.

#![forbid(unsafe_code)]

pub use pelago_index::{HAS_ENGINE, panics_are_caught};

pub use self::build::{Again, BuildIndex, Built};
pub use self::pages::{Searched, tags};
pub use self::search_index::{Halves, IndexPlace, Indexing, SearchIndex, WaitingTexts};
pub use self::steps::Steps;
pub use self::text::first_bytes;

mod build;
mod pages;
mod search_index;
mod steps;
mod text;
mod undamaged;
