//! An answer in the order of the inode numbers, out of files that may match.

use std::ops::ControlFlow;

use pelago_meta::row_cache::Node;
use pelago_wire::{Error, Handle, Hit, InodeId};

use super::candidates::Candidates;
use super::evaluation::Evaluation;
use super::page::Page;
use super::places::Places;

/// How far an answer has come: all files before this one, and so many names of it.
pub(super) type Reached = (InodeId, u32);

/// An answer out of files that may match.
pub(super) struct Nodes<'a> {
    evaluation: &'a Evaluation<'a>,
    places: Places,
}

impl<'a> Nodes<'a> {
    /// Returns an answer from below a directory.
    pub(super) fn below(evaluation: &'a Evaluation<'a>, scope: InodeId) -> Self {
        Self { evaluation, places: Places::below(scope) }
    }

    /// Goes on until the page is over. Returns how far it has come; `None` at the end.
    ///
    /// # Errors
    /// If a row or a text cannot be read.
    pub(super) fn go_on(
        &mut self,
        candidates: &mut Candidates<'_>,
        from: Reached,
        page: &mut Page,
    ) -> Result<Option<Reached>, Error> {
        let tree = self.evaluation.reading.tree;
        let mut done = None;
        while let Some(handle) = candidates.next(tree)? {
            if done == Some(handle.ino) {
                continue;
            }
            if page.is_over() {
                return Ok(Some((handle.ino, 0)));
            }
            // Another candidate may know better where the file is.
            let Some(node) = tree.node(handle)? else { continue };
            done = Some(handle.ino);
            let skipped = if from.0 == handle.ino { from.1 } else { 0 };
            if let Some(names) = self.add_names(&node, skipped, page)? {
                return Ok(Some((handle.ino, names)));
            }
        }
        Ok(None)
    }

    /// Adds the names of a file that match, behind those that are skipped. Returns after how many
    /// names the page was over; `None` if it was not.
    fn add_names(
        &mut self,
        node: &Node,
        skipped: u32,
        page: &mut Page,
    ) -> Result<Option<u32>, Error> {
        let (mut number, mut full, mut failed) = (0, None, None);
        let tree = self.evaluation.reading.tree;
        tree.names(node, |dir, name| {
            if number >= skipped {
                if page.is_over() {
                    full = Some(number);
                    return ControlFlow::Break(());
                }
                match self.hit(node, dir, name) {
                    Ok(hit) => {
                        page.examine(self.evaluation.reading.take_texts());
                        if hit.is_some_and(|hit| !page.add(hit)) {
                            full = Some(number);
                            return ControlFlow::Break(());
                        }
                    }
                    Err(error) => {
                        failed = Some(error);
                        return ControlFlow::Break(());
                    }
                }
            }
            number += 1;
            ControlFlow::Continue(())
        })?;
        failed.map_or(Ok(full), Err)
    }

    /// Returns the file by one of its names, if it matches and may be shown.
    fn hit(&mut self, node: &Node, dir: InodeId, name: &[u8]) -> Result<Option<Hit>, Error> {
        let Some(path) = self.places.of(self.evaluation, dir)? else { return Ok(None) };
        let (handle, rnode): (Handle, _) = (node.handle(), &node.rnode);
        if !self.evaluation.matches(name, handle, rnode)? {
            return Ok(None);
        }
        Ok(Some(Hit { ino: rnode.ino, kind: rnode.kind, path: [&path, name].concat() }))
    }
}
