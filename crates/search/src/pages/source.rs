//! The interface of an order in which the files of an answer are found.

use pelago_find::Query;
use pelago_wire::{Error, InodeId, SearchAt, Time};

use super::Searched;
use super::evaluation::Evaluation;
use super::page::Page;

/// A query about a directory and all below it.
pub(super) struct Question<'a> {
    pub(super) searched: Searched<'a>,
    pub(super) evaluation: &'a Evaluation<'a>,
    pub(super) query: &'a Query,
    /// The directory that is searched.
    pub(super) dir: InodeId,
    /// The time from which ages are counted.
    pub(super) now: Time,
}

/// An order of files, from a place in it on.
pub(super) trait Source {
    /// Fills a page. Returns `None`, and leaves the page empty, if this order does not answer the
    /// question: there is no index for it that is complete, or no plan that spares the walk.
    ///
    /// # Errors
    /// If a row, a text or the index cannot be read.
    fn fill(&self, question: &Question<'_>, page: &mut Page) -> Result<Option<Filled>, Error>;
}

/// What a source says of a page that it has filled.
pub(super) struct Filled {
    /// The place at which the next page begins; `None` at the end of the answer.
    pub(super) next: Option<SearchAt>,
    /// The time from which on changes are missing, if the index is behind.
    pub(super) behind_since: Option<Time>,
}
