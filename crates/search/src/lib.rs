//! Searches in one shard: answers to queries, lists of tags, and the search index.
//!
//! [`Searched::page`] finds an answer in a snapshot of the rows, by the index if it is complete, or
//! without it. [`BuildIndex`] builds the index and keeps it up; its caller decides when it works.
//! The index spares time, and changes no answer.

#![forbid(unsafe_code)]

pub use pelago_index::{HAS_ENGINE, panics_are_caught};

pub use self::build::{Again, BuildIndex, Built};
pub use self::pages::{GuestView, Searched, tags, tags_for_guest};
pub use self::search_index::{Halves, IndexPlace, Indexing, SearchIndex, WaitingTexts};
pub use self::steps::Steps;
pub use self::text::first_bytes;

mod build;
mod pages;
mod search_index;
mod steps;
mod text;
mod undamaged;
