//! The rights of the process that searches, over a tree.

use std::cell::Cell;

use pelago_meta::process::Process;
use pelago_meta::tree::Tree;
use pelago_store::rows::Rnode;
use pelago_wire::{Error, FileKind, Handle, ModeRights};

use super::guest::GuestInTree;
use crate::undamaged::undamaged;

/// The process that searches, and the tree in which it does.
pub(super) struct Viewer<'a> {
    pub(super) tree: &'a Tree,
    process: Process<'a>,
    /// The guest for which the process stands, if it is one.
    guest: Option<GuestInTree<'a>>,
    /// The work of decisions since the last call of [`Viewer::take_work`], in names.
    work: Cell<u32>,
}

impl<'a> Viewer<'a> {
    pub(super) const fn new(
        tree: &'a Tree,
        process: Process<'a>,
        guest: Option<GuestInTree<'a>>,
    ) -> Self {
        Self { tree, process, guest, work: Cell::new(0) }
    }

    /// Returns the same process over another tree.
    pub(super) const fn over<'t>(&self, tree: &'t Tree) -> Viewer<'t>
    where
        'a: 't,
    {
        Viewer::new(tree, self.process, self.guest)
    }

    /// Returns whether the process stands for a guest.
    pub(super) const fn is_guest(&self) -> bool {
        self.guest.is_some()
    }

    /// Returns whether a directory has moved since the tree of a guest was taken.
    pub(super) fn has_moved(&self) -> bool {
        self.guest.is_some_and(|guest| guest.has_moved())
    }

    /// Returns whether this work, in names, is as much as one may do while no directory moves.
    pub(super) fn ends_hold(&self, names: u32) -> bool {
        self.guest.and_then(|guest| guest.held_names()).is_some_and(|most| names >= most)
    }

    /// Returns the work of the decisions about a guest so far.
    pub(super) const fn work(&self) -> u32 {
        self.work.get()
    }

    /// Returns whether decisions about a guest may be about other places than those in the tree: it
    /// is not granted all, and a directory has moved.
    pub(super) fn decides_elsewhere(&self) -> bool {
        self.guest.is_some_and(|guest| guest.view.decision_names > 0 && guest.has_moved())
    }

    /// Returns whether a guest may list the directory that it searches; any other process may.
    ///
    /// # Errors
    /// Those of the decision.
    pub(super) fn may_search(&self, dir: Handle) -> Result<bool, Error> {
        self.guest.map_or(Ok(true), |guest| (guest.view.may_search)(dir))
    }

    /// Returns the work of the decisions about a guest since the last call, in names.
    pub(super) fn take_work(&self) -> u32 {
        self.work.take()
    }

    /// Returns whether the process may list and search a directory.
    ///
    /// # Errors
    /// If a row cannot be read.
    pub(super) fn may_enter(&self, rnode: &Rnode) -> Result<bool, Error> {
        Ok(self.permits(ModeRights::LIST_AND_SEARCH, rnode)?
            && self.grants(Handle::own(rnode.ino))?)
    }

    /// Returns whether the process may read a file that has a name in a directory that it may list
    /// and search.
    ///
    /// # Errors
    /// If a row cannot be read.
    pub(super) fn may_read(&self, handle: Handle, rnode: &Rnode) -> Result<bool, Error> {
        match rnode.kind {
            FileKind::Symlink => self.grants(handle),
            FileKind::Directory => self.may_enter(rnode),
            _ => Ok(self.permits(ModeRights::READ, rnode)? && self.grants(handle)?),
        }
    }

    /// Returns whether a guest has the right to read a node; any other process has it.
    fn grants(&self, node: Handle) -> Result<bool, Error> {
        let Some(guest) = self.guest else { return Ok(true) };
        self.work.set(self.work.get().saturating_add(guest.view.decision_names));
        (guest.view.may_read)(node)
    }

    /// Returns whether the process has a right; a damaged list gives none.
    fn permits(&self, wanted: ModeRights, rnode: &Rnode) -> Result<bool, Error> {
        let permits = self.tree.permits(&self.process, wanted, rnode);
        Ok(undamaged(permits.map(Some))?.unwrap_or(false))
    }
}
