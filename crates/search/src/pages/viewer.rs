//! The rights of the process that searches, over a tree.

use pelago_meta::process::Process;
use pelago_meta::tree::Tree;
use pelago_store::rows::Rnode;
use pelago_wire::{Error, FileKind, ModeRights};

use crate::undamaged::undamaged;

/// A process that asks, and the tree of the moment when it began.
pub(super) struct Viewer<'a> {
    pub(super) tree: &'a Tree,
    process: Process<'a>,
}

impl<'a> Viewer<'a> {
    pub(super) const fn new(tree: &'a Tree, process: Process<'a>) -> Self {
        Self { tree, process }
    }

    /// Returns the same process over another tree.
    pub(super) const fn over<'t>(&self, tree: &'t Tree) -> Viewer<'t>
    where
        'a: 't,
    {
        Viewer { tree, process: self.process }
    }

    /// Returns whether the process may list and search a directory.
    ///
    /// # Errors
    /// If a row cannot be read.
    pub(super) fn may_enter(&self, rnode: &Rnode) -> Result<bool, Error> {
        self.permits(ModeRights::LIST_AND_SEARCH, rnode)
    }

    /// Returns whether the process may read a file that has a name in a directory that it may list
    /// and search.
    ///
    /// # Errors
    /// If a row cannot be read.
    pub(super) fn may_read(&self, rnode: &Rnode) -> Result<bool, Error> {
        match rnode.kind {
            FileKind::Symlink => Ok(true),
            FileKind::Directory => self.may_enter(rnode),
            _ => self.permits(ModeRights::READ, rnode),
        }
    }

    /// Returns whether the process has a right; a damaged list gives none.
    fn permits(&self, wanted: ModeRights, rnode: &Rnode) -> Result<bool, Error> {
        let permits = self.tree.permits(&self.process, wanted, rnode);
        Ok(undamaged(permits.map(Some))?.unwrap_or(false))
    }
}
