//! An answer in the order of the inode numbers, out of files that may match.

use std::ops::ControlFlow;

use pelago_meta::row_cache::Node;
use pelago_wire::{Error, Handle, Hit, InodeId, SearchAt};

use super::Searched;
use super::candidates::Candidates;
use super::evaluation::Evaluation;
use super::page::Page;
use super::places::Places;
use super::plan::Planner;
use super::source::{Filled, Question, Source};
use crate::undamaged::undamaged;

/// A place in the order of the inode numbers: the answer so far has all files before this one, and
/// this many of its names.
#[derive(Clone, Copy)]
pub(super) struct Reached {
    pub(super) ino: InodeId,
    pub(super) names: u32,
}

/// The order of the inode numbers, if a plan spares the walk.
pub(super) struct ByInode {
    pub(super) from: Reached,
}

impl Source for ByInode {
    fn fill(&self, question: &Question<'_>, page: &mut Page) -> Result<Option<Filled>, Error> {
        let Searched { shard, index, .. } = question.searched;
        let from = self.from;
        let tree = question.evaluation.reading.tree;
        let is_begun = from.ino > InodeId::from_raw(0);
        let planner = Planner::new(&question.evaluation.reading, question.now, is_begun);
        let Some(plan) = planner.plan(question.query.expr())? else { return Ok(None) };
        let uses_names = plan.uses_names();
        let mut candidates = plan.candidates(tree, from.ino)?;
        let mut behind_since = None;
        let later;
        let over;
        let mut evaluation = question.evaluation;
        if let Some(indexed) = planner.into_indexed().filter(|_| uses_names) {
            if !index.is_open(&indexed.halves, false) {
                return Ok(None);
            }
            behind_since = indexed.behind_since;
            let unknown = Candidates::sorted(indexed.unknown.into_values().collect(), from.ino);
            candidates = Candidates::merged(tree, vec![candidates, unknown])?;
            // A row may have moved before the index was read, and after the tree was taken.
            later = shard.tree()?;
            over = question.evaluation.over(&later);
            evaluation = &over;
        }
        let mut nodes = Nodes::below(evaluation, question.dir);
        let reached = nodes.go_on(&mut candidates, from, page)?;
        for handle in nodes.into_missing() {
            shard.feed(handle);
        }
        let next = reached.map(|Reached { ino, names }| SearchAt::Node { ino, names });
        Ok(Some(Filled { next, behind_since }))
    }
}

/// An answer out of files that may match.
struct Nodes<'a> {
    evaluation: &'a Evaluation<'a>,
    places: Places,
    /// Candidates that have a handle below a name, and are not where it says.
    missing: Vec<Handle>,
}

impl<'a> Nodes<'a> {
    /// Returns an answer of the files below a directory.
    fn below(evaluation: &'a Evaluation<'a>, scope: InodeId) -> Self {
        Self { evaluation, places: Places::below(scope), missing: Vec::new() }
    }

    /// Adds hits until the page is over. Returns the place that it has reached; `None` at the end.
    ///
    /// The plan chooses the candidates, and it depends on files that the process may not read. So
    /// the page counts only the files that are found, and a page that is over has a next page
    /// whether or not there are more candidates.
    ///
    /// # Errors
    /// If a row or a text cannot be read.
    fn go_on(
        &mut self,
        candidates: &mut Candidates<'_>,
        from: Reached,
        page: &mut Page,
    ) -> Result<Option<Reached>, Error> {
        let tree = self.evaluation.reading.tree;
        let mut reached = from;
        let mut done = None;
        while let Some(handle) = candidates.next(tree)? {
            if done == Some(handle.ino) {
                continue;
            }
            if page.is_over() {
                break;
            }
            // A later candidate for the same file may have a newer place.
            let Some(node) = undamaged(tree.node(handle))? else {
                // A handle without a name may be of a file that is open and has no row. A handle
                // below a name is out of date: the index gets the file again.
                if handle.is_under_a_name() {
                    self.missing.push(handle);
                }
                continue;
            };
            done = Some(handle.ino);
            while self.missing.pop_if(|missing| missing.ino == handle.ino).is_some() {}
            let skipped = if from.ino == handle.ino { from.names } else { 0 };
            let before = page.left();
            let (names, is_full) = self.add_names(&node, skipped, page)?;
            if page.left() < before {
                reached = Reached { ino: handle.ino, names };
            }
            if is_full {
                return Ok(Some(reached));
            }
        }
        Ok(page.is_over().then_some(reached))
    }

    /// Returns the candidates that were found nowhere.
    fn into_missing(self) -> Vec<Handle> {
        self.missing
    }

    /// Adds the names of a file that match, after the first `skipped` ones. Returns the number of
    /// names that are done, and whether the page was over before the last one.
    fn add_names(
        &mut self,
        node: &Node,
        skipped: u32,
        page: &mut Page,
    ) -> Result<(u32, bool), Error> {
        let mut number = 0;
        let mut is_full = false;
        let mut failed = None;
        let tree = self.evaluation.reading.tree;
        tree.names(node, |dir, name| {
            if number >= skipped {
                match self.add_name(node, dir, name, page) {
                    Ok(true) => {}
                    Ok(false) => is_full = true,
                    Err(error) => failed = Some(error),
                }
            }
            if is_full || failed.is_some() {
                return ControlFlow::Break(());
            }
            number += 1;
            ControlFlow::Continue(())
        })?;
        failed.map_or(Ok((number, is_full)), Err)
    }

    /// Adds the file by one of its names, if it matches and the process may see it there. Returns
    /// `false` if the page is over before this name.
    fn add_name(
        &mut self,
        node: &Node,
        dir: InodeId,
        name: &[u8],
        page: &mut Page,
    ) -> Result<bool, Error> {
        if page.is_over() {
            return Ok(false);
        }
        let Some(path) = self.places.of(&self.evaluation.viewer, dir)? else { return Ok(true) };
        let rnode = &node.rnode;
        let matches = self.evaluation.matches(dir, name, node.handle(), rnode, &[])?;
        if matches.is_some() {
            page.work(self.evaluation.reading.take_texts());
        }
        if matches != Some(true) {
            return Ok(true);
        }
        let hit = Hit { ino: rnode.ino, kind: rnode.kind, path: [&path, name].concat() };
        let is_added = page.add(hit);
        if is_added {
            page.show_examined();
        }
        Ok(is_added)
    }
}
