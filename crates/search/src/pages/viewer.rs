//! The rights of the process that searches, over a tree.

use std::cell::Cell;

use pelago_meta::process::Process;
use pelago_meta::tree::Tree;
use pelago_store::rows::Rnode;
use pelago_wire::{Error, FileKind, Handle, ModeRights};

use super::guest::GuestView;
use crate::undamaged::undamaged;

/// The process that searches, and the tree in which it does.
pub(super) struct Viewer<'a> {
    pub(super) tree: &'a Tree,
    process: Process<'a>,
    /// The guest for which the process stands, if it is one.
    guest: Option<&'a GuestView<'a>>,
    /// The work of decisions since the last call of [`Viewer::take_work`], in names.
    work: Cell<u32>,
}

impl<'a> Viewer<'a> {
    pub(super) const fn new(
        tree: &'a Tree,
        process: Process<'a>,
        guest: Option<&'a GuestView<'a>>,
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
        self.work.set(self.work.get().saturating_add(guest.decision_names));
        (guest.may_read)(node)
    }

    /// Returns whether the process has a right; a damaged list gives none.
    fn permits(&self, wanted: ModeRights, rnode: &Rnode) -> Result<bool, Error> {
        let permits = self.tree.permits(&self.process, wanted, rnode);
        Ok(undamaged(permits.map(Some))?.unwrap_or(false))
    }
}
