//! Answers to queries for words, those files first whose texts are most about them.
//!
//! How rare a word is, and how long texts are, is counted in the files that the asker may see and
//! that match. So no other file has a part in what is answered.

use std::ops::ControlFlow;

use pelago_find::{Expr, Term, TextCounts, text, words};
use pelago_index::TextHit;
use pelago_meta::row_cache::Node;
use pelago_wire::id_map::IdMap;
use pelago_wire::{Error, FileKind, Handle, Hit, InodeId};

use super::evaluation::Evaluation;
use super::page::Page;
use super::places::Places;
use super::reading::undamaged;
use super::text::first_bytes;

/// The most files that are ranked. Of more, those in which the words are the largest part.
pub(super) const RANKED_FILES: usize = 10_000;

/// An answer by rank.
pub(super) struct Ranked<'a> {
    evaluation: &'a Evaluation<'a>,
    places: Places,
    words: &'a [String],
    texts: Vec<Text>,
}

/// A file that matches and may be shown.
struct Text {
    frequencies: Vec<u32>,
    length: u32,
    /// The file by each of its names.
    hits: Vec<Hit>,
}

/// Returns the words that the text of a file must have to match; none if other files may match.
pub(super) fn words_of(expr: &Expr) -> Vec<String> {
    let mut all: Vec<String> = match expr {
        Expr::Term(Term::Text(words)) => words.clone(),
        Expr::And(parts) => parts.iter().flat_map(words_of).collect(),
        _ => Vec::new(),
    };
    all.sort_unstable();
    all.dedup();
    all
}

impl<'a> Ranked<'a> {
    /// Returns an answer from below a directory, for words as [`words_of`] returns them.
    pub(super) fn below(
        evaluation: &'a Evaluation<'a>,
        scope: InodeId,
        words: &'a [String],
    ) -> Self {
        Self { evaluation, places: Places::below(scope), words, texts: Vec::new() }
    }

    /// Looks at the files that the index of texts has found, and at those that it does not know
    /// yet.
    ///
    /// # Errors
    /// If a row or a text cannot be read.
    pub(super) fn collect(
        &mut self,
        found: Vec<TextHit>,
        unknown: &IdMap<InodeId, Handle>,
    ) -> Result<(), Error> {
        let tree = self.evaluation.reading.tree;
        for hit in found {
            if unknown.contains_key(&hit.handle.ino) {
                continue;
            }
            // The index says what it was told last; a change since then is among the unknown.
            if let Some(node) = undamaged(tree.node(hit.handle))? {
                self.add(&node, (hit.frequencies, hit.length))?;
            }
        }
        for handle in unknown.values() {
            let node = undamaged(tree.node(*handle))?;
            let Some(node) = node.filter(|node| node.rnode.kind == FileKind::Regular) else {
                continue;
            };
            if let Some(counts) = undamaged(self.count(&node))? {
                self.add(&node, counts)?;
            }
        }
        Ok(())
    }

    /// Fills a page behind so many names. Returns how many names have been answered; `None` at the
    /// end.
    pub(super) fn fill(mut self, behind: u32, page: &mut Page) -> Option<u32> {
        let texts = self
            .texts
            .iter()
            .map(|text| TextCounts { frequencies: &text.frequencies, length: text.length });
        let order = pelago_find::rank(&texts.collect::<Vec<_>>());
        let mut number = 0;
        for (at, _) in order {
            for hit in std::mem::take(&mut self.texts[at].hits) {
                number += 1;
                if number <= behind {
                    continue;
                }
                if page.is_over() || !page.add(hit) {
                    return Some(number - 1);
                }
                page.examine(0);
            }
        }
        None
    }

    /// Adds a file with these counts, if it matches and may be shown.
    fn add(&mut self, node: &Node, (frequencies, length): (Vec<u32>, u32)) -> Result<(), Error> {
        let (mut hits, mut failed) = (Vec::new(), None);
        self.evaluation.reading.tree.names(node, |dir, name| match self.hit(node, dir, name) {
            Ok(hit) => {
                hits.extend(hit);
                ControlFlow::Continue(())
            }
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })?;
        if !hits.is_empty() {
            self.texts.push(Text { frequencies, length, hits });
        }
        failed.map_or(Ok(()), Err)
    }

    fn hit(&mut self, node: &Node, dir: InodeId, name: &[u8]) -> Result<Option<Hit>, Error> {
        let Some(path) = self.places.of(&self.evaluation.viewer, dir)? else { return Ok(None) };
        let rnode = &node.rnode;
        let matches = self.evaluation.matches(name, (node.handle(), rnode), self.words)?;
        let hit = || Hit { ino: rnode.ino, kind: rnode.kind, path: [&path, name].concat() };
        Ok((matches == Some(true)).then(hit))
    }

    /// Counts the words in the text of a file; `None` if one is not in it.
    fn count(&self, node: &Node) -> Result<Option<(Vec<u32>, u32)>, Error> {
        let reading = &self.evaluation.reading;
        let bytes = first_bytes(reading.tree, reading.searched.content, &node.rnode)?;
        let bytes = bytes.unwrap_or_default();
        let (mut frequencies, mut length) = (vec![0_u32; self.words.len()], 0_u32);
        for word in words(text(&bytes).unwrap_or_default()) {
            length = length.saturating_add(1);
            if let Ok(at) = self.words.binary_search(&word) {
                frequencies[at] = frequencies[at].saturating_add(1);
            }
        }
        Ok(frequencies.iter().all(|count| *count > 0).then_some((frequencies, length)))
    }
}
