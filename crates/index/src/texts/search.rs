//! Search of one part of the index for texts with all words, and the choice of the best ones.

use pelago_find::{TextCounts, score_alone};
use tantivy::postings::{Postings, SegmentPostings};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{DocId, DocSet, SegmentReader, TERMINATED, Term};

use super::words::term_of;
use super::{LENGTH, TextHit};
use crate::handles::{HandleColumns, order};

/// The best hits so far, each with its score.
pub(super) struct Best {
    at_most: usize,
    hits: Vec<(f64, TextHit)>,
}

impl Best {
    pub(super) const fn of(at_most: usize) -> Self {
        Self { at_most, hits: Vec::new() }
    }

    fn push(&mut self, hit: TextHit) {
        let counts = TextCounts { frequencies: &hit.frequencies, length: hit.length };
        self.hits.push((score_alone(counts), hit));
        if self.hits.len() > self.at_most.saturating_mul(2) {
            self.cut();
        }
    }

    /// Returns the best ones, those of the highest scores first.
    pub(super) fn into_hits(mut self) -> Vec<TextHit> {
        self.cut();
        self.hits.into_iter().map(|(_, hit)| hit).collect()
    }

    fn cut(&mut self) {
        self.hits.sort_unstable_by(|(one_score, one), (two_score, two)| {
            let by_place = || order(&one.handle).cmp(&order(&two.handle));
            two_score.total_cmp(one_score).then_with(by_place)
        });
        self.hits.truncate(self.at_most);
    }
}

/// Adds the texts of a part that have all words.
pub(super) fn search(
    part: &SegmentReader,
    body: Field,
    words: &[String],
    best: &mut Best,
) -> tantivy::Result<()> {
    let index = part.inverted_index(body)?;
    let mut lists = Vec::new();
    for word in words {
        let term = Term::from_field_text(body, &term_of(word));
        let Some(info) = index.get_term_info(&term)? else { return Ok(()) };
        let list = index.read_postings_from_terminfo(&info, IndexRecordOption::WithFreqs)?;
        lists.push((info.doc_freq, list));
    }
    // The rarest word leads; the others are only asked for what it has.
    let lead = (0..lists.len()).min_by_key(|place| lists[*place].0);
    let Some(lead) = lead else { return Ok(()) };
    let columns = HandleColumns::open(part)?;
    let lengths = part.fast_fields().column_first_or_default::<u64>(LENGTH)?;
    let mut id = lists[lead].1.doc();
    while id != TERMINATED {
        match first_behind(&mut lists, id) {
            Some(TERMINATED) => return Ok(()),
            Some(next) => id = lists[lead].1.seek(next),
            None => {
                if !part.is_deleted(id) {
                    let frequencies = lists.iter().map(|(_, list)| list.term_freq()).collect();
                    let length = u32::try_from(lengths.get_val(id)).unwrap_or(u32::MAX);
                    best.push(TextHit { handle: columns.get(id), frequencies, length });
                }
                id = lists[lead].1.advance();
            }
        }
    }
    Ok(())
}

/// Moves all lists to a document. Returns the next document of a list that does not have this one.
fn first_behind(lists: &mut [(u32, SegmentPostings)], id: DocId) -> Option<DocId> {
    lists.iter_mut().find_map(|(_, list)| {
        let at = if list.doc() < id { list.seek(id) } else { list.doc() };
        (at > id).then_some(at)
    })
}
