//! The reads of a search besides the rows of names: users, attributes, tags, texts.

use std::cell::Cell;

use pelago_meta::tree::Tree;
use pelago_wire::Error;

use super::Searched;
use super::users::Users;

/// What a search reads besides the rows of names, and what became of it.
pub(super) struct Reading<'a> {
    pub(super) searched: Searched<'a>,
    /// The tree of the moment when the search began.
    pub(super) tree: &'a Tree,
    pub(super) users: Users,
    /// Texts that were read since they were counted.
    texts: Cell<u32>,
    /// Why something could not be read.
    failed: Cell<Option<Error>>,
}

impl<'a> Reading<'a> {
    /// Returns what is read of a tree.
    pub(super) fn new(searched: Searched<'a>, tree: &'a Tree) -> Self {
        let users = Users::default();
        let texts = Cell::new(0);
        let failed = Cell::new(None);
        Self { searched, tree, users, texts, failed }
    }

    /// Counts a text that is read.
    pub(super) fn count_text(&self) {
        self.texts.set(self.texts.get() + 1);
    }

    /// Returns how many texts were read since the last call.
    pub(super) fn take_texts(&self) -> u32 {
        self.texts.take()
    }

    /// Returns what was read. A failure is kept for [`Reading::take_failure`].
    pub(super) fn keep_failure<T>(&self, result: Result<Option<T>, Error>) -> Option<T> {
        result.unwrap_or_else(|error| {
            self.failed.set(Some(error));
            None
        })
    }

    /// Returns the failure since the last call.
    pub(super) fn take_failure(&self) -> Option<Error> {
        self.failed.take()
    }
}
