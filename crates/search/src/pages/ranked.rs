//! Answers to queries for words, in the order of the ranks of the files.
//!
//! A rank depends on how rare a word is and how long texts are. Both are counted in the files that
//! match and that the asker may see, so no other file has an influence on the answer.

use std::ops::ControlFlow;

use pelago_find::{Expr, Term, TextCounts, score_alone, text, words};
use pelago_index::TextHit;
use pelago_meta::row_cache::Node;
use pelago_wire::id_map::IdMap;
use pelago_wire::{Error, FileKind, Handle, Hit, InodeId, SearchAt};

use super::Searched;
use super::evaluation::Evaluation;
use super::indexed::Indexed;
use super::page::Page;
use super::places::Places;
use super::source::{Filled, Question, Source};
use crate::text::first_bytes;
use crate::undamaged::undamaged;

/// Most files that the index of texts is asked for. If it finds more, the answer has no ranks.
const FOUND_FILES: usize = 1 << 18;

/// The order of the ranks, if the index knows all texts: the files whose texts are most about some
/// words come first.
pub(super) struct ByRank {
    /// The words, as [`words_of`] returns them; without any there is no rank.
    pub(super) words: Vec<String>,
    /// The number of names that the pages before have.
    pub(super) behind: u32,
}

impl Source for ByRank {
    fn fill(&self, question: &Question<'_>, page: &mut Page) -> Result<Option<Filled>, Error> {
        let Searched { shard, index, .. } = question.searched;
        let halves = if self.words.is_empty() { None } else { index.texts() };
        let Some(halves) = halves else { return Ok(None) };
        // A file goes from the feed to the texts that wait, then to the index. They are read in
        // this order, and the rows last, so that no file is missed.
        let mut indexed = Indexed::gather(question.searched, halves)?;
        let is_all = index.waiting_texts().copy_to(&mut indexed.unknown);
        let found = indexed.halves.texts.search(&self.words, FOUND_FILES);
        let found = found.map_err(|error| index.failed(&error))?;
        if !is_all || found.len() == FOUND_FILES || !index.is_open(&indexed.halves, true) {
            return Ok(None);
        }
        let tree = shard.tree()?;
        let evaluation = question.evaluation.over(&tree);
        let mut ranked = Ranked::below(&evaluation, question.dir, &self.words);
        ranked.collect(found, &indexed.unknown)?;
        let next = ranked.fill(self.behind, page)?.map(SearchAt::Rank);
        Ok(Some(Filled { next, behind_since: indexed.behind_since }))
    }
}

/// An answer by rank.
struct Ranked<'a> {
    evaluation: &'a Evaluation<'a>,
    places: Places,
    words: &'a [String],
    texts: Vec<Text>,
    /// Files that follow the ranked ones.
    tail: Vec<TextHit>,
}

/// A file that matches and that the asker may see.
struct Text {
    frequencies: Vec<u32>,
    length: u32,
    /// The file by each of its names.
    hits: Vec<Hit>,
}

/// Returns, sorted, the words that the text of a file must have to match; none if a file may match
/// without them.
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
    /// Returns an answer of the files below a directory, for words as [`words_of`] returns them.
    fn below(evaluation: &'a Evaluation<'a>, scope: InodeId, words: &'a [String]) -> Self {
        Self {
            evaluation,
            places: Places::below(scope),
            words,
            texts: Vec::new(),
            tail: Vec::new(),
        }
    }

    /// Collects the files to rank: of those that the index of texts has found, and of those that it
    /// does not know yet, the ones with the highest scores.
    ///
    /// # Errors
    /// If a row or a text cannot be read.
    fn collect(
        &mut self,
        mut found: Vec<TextHit>,
        unknown: &IdMap<InodeId, Handle>,
    ) -> Result<(), Error> {
        let tree = self.evaluation.reading.tree;
        // The index has a file as it was at the last commit; later changes are among the unknown.
        found.retain(|hit| !unknown.contains_key(&hit.handle.ino));
        for handle in unknown.values() {
            let node = undamaged(tree.node(*handle))?;
            let Some(node) = node.filter(|node| node.rnode.kind == FileKind::Regular) else {
                continue;
            };
            if let Some((frequencies, length)) = undamaged(self.count(&node))? {
                found.push(TextHit { handle: node.handle(), frequencies, length });
            }
        }
        // The order must not depend on whether the index knows a file: pages before and after a
        // commit of the index must have it at the same place.
        found.sort_by(|one, two| {
            let by_ino = one.handle.ino.cmp(&two.handle.ino);
            alone(two).total_cmp(&alone(one)).then(by_ino)
        });
        let mut found = found.into_iter();
        while self.texts.len() < self.evaluation.reading.searched.index.steps().ranked_files
            && let Some(hit) = found.next()
        {
            let Some(node) = undamaged(tree.node(hit.handle))? else { continue };
            let hits = self.hits(&node)?;
            if !hits.is_empty() {
                self.texts.push(Text { frequencies: hit.frequencies, length: hit.length, hits });
            }
        }
        self.tail = found.collect();
        Ok(())
    }

    /// Fills a page after the first `behind` names. Returns the number of names that all pages so
    /// far have; `None` at the end.
    ///
    /// # Errors
    /// If a row or a text cannot be read.
    fn fill(mut self, behind: u32, page: &mut Page) -> Result<Option<u32>, Error> {
        let texts = self
            .texts
            .iter()
            .map(|text| TextCounts { frequencies: &text.frequencies, length: text.length });
        let order = pelago_find::rank(&texts.collect::<Vec<_>>());
        let mut answered = Answered { number: 0, behind };
        for (at, _) in order {
            if !answered.add(std::mem::take(&mut self.texts[at].hits), page) {
                return Ok(Some(answered.number));
            }
        }
        for hit in std::mem::take(&mut self.tail) {
            let node = undamaged(self.evaluation.reading.tree.node(hit.handle))?;
            let hits = node.map_or(Ok(Vec::new()), |node| self.hits(&node))?;
            if !answered.add(hits, page) {
                return Ok(Some(answered.number));
            }
        }
        Ok(None)
    }

    /// Returns a hit for each name of a file that matches and that the asker may see.
    fn hits(&mut self, node: &Node) -> Result<Vec<Hit>, Error> {
        let mut hits = Vec::new();
        let mut failed = None;
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
        failed.map_or(Ok(hits), Err)
    }

    fn hit(&mut self, node: &Node, dir: InodeId, name: &[u8]) -> Result<Option<Hit>, Error> {
        let Some(path) = self.places.of(&self.evaluation.viewer, dir)? else { return Ok(None) };
        let rnode = &node.rnode;
        let matches = self.evaluation.matches(dir, name, node.handle(), rnode, self.words)?;
        let hit = || Hit { ino: rnode.ino, kind: rnode.kind, path: [&path, name].concat() };
        Ok((matches == Some(true)).then(hit))
    }

    /// Counts the words in the text of a file, each by itself and all; `None` if one of them is not
    /// in the text.
    fn count(&self, node: &Node) -> Result<Option<(Vec<u32>, u32)>, Error> {
        let reading = &self.evaluation.reading;
        let bytes = first_bytes(reading.tree, reading.searched.content, &node.rnode)?;
        let bytes = bytes.unwrap_or_default();
        let mut frequencies = vec![0_u32; self.words.len()];
        let mut length = 0_u32;
        for word in words(text(&bytes).unwrap_or_default()) {
            length = length.saturating_add(1);
            if let Ok(at) = self.words.binary_search(&word) {
                frequencies[at] = frequencies[at].saturating_add(1);
            }
        }
        Ok(frequencies.iter().all(|count| *count > 0).then_some((frequencies, length)))
    }
}

/// How far a page has come.
struct Answered {
    /// Names that have been answered, on pages before too.
    number: u32,
    /// Those of the pages before.
    behind: u32,
}

impl Answered {
    /// Adds the names of a file. Returns `false` if the page is over before all of them.
    fn add(&mut self, hits: Vec<Hit>, page: &mut Page) -> bool {
        for hit in hits {
            if self.number >= self.behind {
                if page.is_over() || !page.add(hit) {
                    return false;
                }
                page.examine(0);
            }
            self.number += 1;
        }
        true
    }
}

/// Returns the score of a file by itself.
fn alone(hit: &TextHit) -> f64 {
    score_alone(TextCounts { frequencies: &hit.frequencies, length: hit.length })
}
