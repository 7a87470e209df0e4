//! The interface of a source of hits: an order in which the files of an answer are found.

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
    /// Fills a page. Returns `None`, and leaves the page empty, if this order cannot answer the
    /// question: the index that it needs is not complete, or no plan spares the walk.
    ///
    /// # Errors
    /// If a row, a text or the index cannot be read.
    fn fill(&self, question: &Question<'_>, page: &mut Page) -> Result<Option<Filled>, Error>;
}

/// The end of a page that a source has filled.
pub(super) struct Filled {
    /// The place at which the next page begins; `None` at the end of the answer.
    pub(super) next: Option<SearchAt>,
    /// The time after which changes are missing, if the index is behind.
    pub(super) behind_since: Option<Time>,
}
