//! The comparison of files with a query, for a process that may see some of them.

use pelago_find::Query;
use pelago_meta::process::Process;
use pelago_meta::tree::Tree;
use pelago_store::rows::Rnode;
use pelago_wire::{Code, Error, FileKind, Handle, InodeId, Time};

use super::candidate::File;
use super::guest::GuestInTree;
use super::reading::Reading;
use super::viewer::Viewer;
use crate::undamaged::undamaged;

/// The number of attempts to compare a file that changes meanwhile.
const ATTEMPTS: u32 = 8;

/// A query of a process, which files are compared with.
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
        guest: Option<GuestInTree<'a>>,
        query: &'a Query,
        now: Time,
    ) -> Self {
        let viewer = Viewer::new(reading.tree, process, guest);
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

    /// Returns whether a file matches, by a name in this directory, which the process may list and
    /// search; `None` if the process may not read the file, of which it must learn nothing, or if a
    /// row of the file is damaged. `known` are words that its text is known to have.
    ///
    /// # Errors
    /// If a row or a text cannot be read.
    pub(super) fn matches(
        &self,
        dir: InodeId,
        name: &[u8],
        handle: Handle,
        rnode: &Rnode,
        known: &[String],
    ) -> Result<Option<bool>, Error> {
        undamaged(self.compare(dir, name, handle, rnode, known))
    }

    /// Compares a file. Its present size, times and bytes are not in the tree: a file that a guest
    /// might read when the tree was taken may have left the directory, and got a secret, before
    /// they were read. So its position is found before and after. A directory is where the tree has
    /// it unless one has moved, which ends the page.
    fn compare(
        &self,
        dir: InodeId,
        name: &[u8],
        handle: Handle,
        rnode: &Rnode,
        known: &[String],
    ) -> Result<Option<bool>, Error> {
        if !self.viewer.may_read(handle, rnode)? {
            return Ok(None);
        }
        let is_guest = self.viewer.is_guest();
        let is_dir = rnode.kind == FileKind::Directory;
        for _ in 0..ATTEMPTS {
            let file = File::new(&self.reading, name, handle, rnode, known, is_guest);
            let matches = self.query.matches(&file, self.now);
            let before = self.reading.take_position();
            if let Some(error) = self.reading.take_failure() {
                return Err(error);
            }
            let Some(before) = before else { return Ok(Some(matches)) };
            match (before, self.reading.searched.shard.placement(handle, false)) {
                (_, Err(error)) | (Err(error), _) if error.code == Code::Stale => return Ok(None),
                (_, Err(error)) | (Err(error), _) => return Err(error),
                (_, Ok(after)) if !is_dir && !after.dirs.contains(&dir) => return Ok(None),
                (Ok(before), Ok(after)) if before == after => return Ok(Some(matches)),
                (Ok(_), Ok(_)) if self.viewer.has_moved() => return Ok(None),
                (Ok(_), Ok(_)) => {}
            }
        }
        Err(Code::Busy.into())
    }
}
