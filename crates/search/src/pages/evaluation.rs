//! The comparison of files with a query, for a process that may see some of them.

use pelago_find::Query;
use pelago_meta::process::Process;
use pelago_meta::tree::Tree;
use pelago_store::rows::Rnode;
use pelago_wire::{Error, Handle, Time};

use super::candidate::File;
use super::reading::Reading;
use super::viewer::Viewer;
use crate::undamaged::undamaged;

/// A query of a process, with what it takes to compare files with it.
pub(super) struct Evaluation<'a> {
    pub(super) reading: Reading<'a>,
    pub(super) viewer: Viewer<'a>,
    query: &'a Query,
    now: Time,
}

impl<'a> Evaluation<'a> {
    /// Returns the evaluation of a query; ages in it are counted from a time.
    pub(super) const fn new(
        reading: Reading<'a>,
        process: Process<'a>,
        query: &'a Query,
        now: Time,
    ) -> Self {
        let viewer = Viewer::new(reading.tree, process);
        Self { reading, viewer, query, now }
    }

    /// Returns the same evaluation over another tree.
    pub(super) fn over<'t>(&self, tree: &'t Tree) -> Evaluation<'t>
    where
        'a: 't,
    {
        let reading = Reading::new(self.reading.searched, tree);
        Evaluation { reading, viewer: self.viewer.over(tree), query: self.query, now: self.now }
    }

    /// Returns whether the process may list and search a directory.
    ///
    /// # Errors
    /// If a row cannot be read.
    pub(super) fn may_enter(&self, rnode: &Rnode) -> Result<bool, Error> {
        self.viewer.may_enter(rnode)
    }

    /// Returns whether a file matches, by a name in a directory that the process may list and
    /// search; `None` if the process may not read it, and so is to learn nothing of it, or if a row
    /// of it is damaged. `known`: words that its text is known to have.
    ///
    /// # Errors
    /// If a row or a text cannot be read.
    pub(super) fn matches(
        &self,
        name: &[u8],
        handle: Handle,
        rnode: &Rnode,
        known: &[String],
    ) -> Result<Option<bool>, Error> {
        undamaged(self.compare(name, handle, rnode, known))
    }

    fn compare(
        &self,
        name: &[u8],
        handle: Handle,
        rnode: &Rnode,
        known: &[String],
    ) -> Result<Option<bool>, Error> {
        if !self.viewer.may_read(rnode)? {
            return Ok(None);
        }
        let file = File::new(&self.reading, name, handle, rnode, known);
        let matches = self.query.matches(&file, self.now);
        self.reading.take_failure().map_or(Ok(Some(matches)), Err)
    }
}
