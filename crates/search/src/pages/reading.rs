//! The reads of a search besides the rows of names: users, attributes, tags, texts.

use std::cell::{Cell, RefCell};

use pelago_meta::shard::Placement;
use pelago_meta::tree::Tree;
use pelago_wire::{Error, Handle};

use super::Searched;
use super::users::Users;

/// The reads of a search besides the rows of names, with their counts and failures.
pub(super) struct Reading<'a> {
    pub(super) searched: Searched<'a>,
    /// The tree of the moment when the search began.
    pub(super) tree: &'a Tree,
    pub(super) users: Users,
    /// The number of texts that were read since the last call of [`Reading::take_texts`].
    texts: Cell<u32>,
    /// The error of a read that failed since the last call of [`Reading::take_failure`].
    failed: Cell<Option<Error>>,
    /// The position of the present file before the first read of its present state, which no
    /// snapshot has, since the last call of [`Reading::take_position`].
    position: RefCell<Option<Result<Placement, Error>>>,
}

impl<'a> Reading<'a> {
    /// Returns the reads of a search in a tree.
    pub(super) fn new(searched: Searched<'a>, tree: &'a Tree) -> Self {
        let users = Users::default();
        let texts = Cell::new(0);
        let failed = Cell::new(None);
        let position = RefCell::new(None);
        Self { searched, tree, users, texts, failed, position }
    }

    /// Counts a text that is read.
    pub(super) fn count_text(&self) {
        self.texts.set(self.texts.get() + 1);
    }

    /// Returns the number of texts that were read since the last call.
    pub(super) fn take_texts(&self) -> u32 {
        self.texts.take()
    }

    /// Finds the position of a file whose present state will be read.
    pub(super) fn find_position(&self, file: Handle) {
        let mut position = self.position.borrow_mut();
        if position.is_none() {
            *position = Some(self.searched.shard.placement(file, false));
        }
    }

    /// Returns the position that was found since the last call; `None` if none was sought.
    pub(super) fn take_position(&self) -> Option<Result<Placement, Error>> {
        self.position.take()
    }

    /// Returns the value that was read. An error is kept for [`Reading::take_failure`].
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
