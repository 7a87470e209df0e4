//! Documents that have a term.

use tantivy::schema::IndexRecordOption;
use tantivy::{DocId, DocSet, SegmentReader, TERMINATED, Term};

/// Returns the documents of a part that have a term and are not deleted.
pub(crate) fn documents_with(part: &SegmentReader, term: &Term) -> tantivy::Result<Vec<DocId>> {
    let index = part.inverted_index(term.field())?;
    let mut ids = Vec::new();
    if let Some(mut postings) = index.read_postings(term, IndexRecordOption::Basic)? {
        while postings.doc() != TERMINATED {
            ids.push(postings.doc());
            postings.advance();
        }
    }
    ids.retain(|id| !part.is_deleted(*id));
    Ok(ids)
}
