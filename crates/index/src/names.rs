//! The index of names: a document for each name, with the attributes of its file.

use pelago_find::Expr;
use pelago_folder::Folder;
use pelago_wire::{FileKind, InodeId, Time};
use tantivy::error::DataCorruption;
use tantivy::schema::Value;
use tantivy::{DocAddress, DocId, Searcher, SegmentReader, TantivyDocument, TantivyError, Term};

use crate::candidates::Candidates;
use crate::covered::Covered;
use crate::document::Document;
use crate::error::Error;
use crate::half::Half;
use crate::handles::{AllHandles, HandleColumns, order};
use crate::postings::documents_with;
use fields::{Encoded, Fields, KIND, NANOS, SECONDS, SIZE, UID};
use plan::{Plan, Planner};

mod fields;
mod plan;
mod trigrams;

/// The index of names of one shard.
///
/// It has no paths, so that renaming a folder changes one document. Reads use the last commit, and
/// go on beside writes.
pub struct Names {
    half: Half<Encoded>,
    fields: Fields,
}

impl Names {
    /// Opens the index in the folder `names` of a folder, or makes it there. Reads every byte of
    /// it.
    ///
    /// # Errors
    /// See [`Error`], and [`Error::is_of_files`] for what to do.
    pub fn open(folder: &Folder) -> Result<Self, Error> {
        let (fields, schema) = Fields::new();
        let half = Half::open(folder, "names", schema, fields.ino, None)?;
        Ok(Self { half, fields })
    }

    /// Returns what the last commit covers; `None` before the first one.
    #[must_use]
    pub fn covered(&self) -> Option<Covered> {
        self.half.covered()
    }

    /// Replaces all documents of an inode; none removes it. The handles of all must have it.
    ///
    /// # Errors
    /// See [`Error`]. The index then takes no more until it is opened again, and what was not
    /// committed is lost.
    pub fn replace(&self, ino: InodeId, documents: &[Document]) -> Result<(), Error> {
        debug_assert!(documents.iter().all(|document| document.handle.ino == ino));
        self.half.replace(ino, documents.iter().map(|document| self.fields.encode(document)))
    }

    /// Makes all changes durable and visible.
    ///
    /// # Errors
    /// See [`Names::replace`].
    pub fn commit(&self, covered: &Covered) -> Result<(), Error> {
        self.half.commit(covered)
    }

    /// Returns the files that may match a query at a time.
    ///
    /// No file of the last commit is missing that matches. Files that do not match are among these
    /// only because of terms for tags and texts, which the index does not know, of terms under
    /// `not`, of patterns, and of ages within the same second.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn candidates(
        &self,
        expr: &Expr,
        now: Time,
        uid_of: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<Candidates, Error> {
        self.half.search(|searcher| {
            Ok(match self.plan(searcher, expr, now, uid_of)? {
                Plan::Any => Candidates::Any,
                Plan::Nothing => Candidates::These(Vec::new()),
                Plan::Found(found) => {
                    Candidates::These(searcher.search(&found.query, &AllHandles)?)
                }
            })
        })
    }

    /// Returns an upper bound of the number of candidate names, without finding them.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn count(
        &self,
        expr: &Expr,
        now: Time,
        uid_of: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<u64, Error> {
        self.half.search(|searcher| {
            Ok(match self.plan(searcher, expr, now, uid_of)? {
                Plan::Any => searcher.num_docs(),
                Plan::Nothing => 0,
                Plan::Found(found) => found.at_most.min(searcher.num_docs()),
            })
        })
    }

    /// Returns the number of names in the last commit.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn total(&self) -> Result<u64, Error> {
        self.half.search(|searcher| Ok(searcher.num_docs()))
    }

    /// Returns the documents of an inode in the last commit, ordered as their handles are.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn documents_of(&self, ino: InodeId) -> Result<Vec<Document>, Error> {
        let term = Term::from_field_u64(self.fields.ino, ino.raw());
        self.half.search(|searcher| {
            let mut documents = Vec::new();
            for (ordinal, part) in (0..).zip(searcher.segment_readers()) {
                for id in documents_with(part, &term)? {
                    let address = DocAddress::new(ordinal, id);
                    let stored: TantivyDocument = searcher.doc(address)?;
                    let name = stored.get_first(self.fields.name).and_then(|name| name.as_bytes());
                    documents.push(decode(part, id, name)?);
                }
            }
            documents.sort_by_key(|document| order(&document.handle));
            Ok(documents)
        })
    }

    fn plan(
        &self,
        searcher: &Searcher,
        expr: &Expr,
        now: Time,
        uid_of: &dyn Fn(&str) -> Option<u32>,
    ) -> tantivy::Result<Plan> {
        Planner { fields: self.fields, searcher, now, uid_of }.plan(expr, false)
    }
}

/// Returns a document from the columns of its part.
fn decode(part: &SegmentReader, id: DocId, name: Option<&[u8]>) -> tantivy::Result<Document> {
    let wrong = || TantivyError::from(DataCorruption::comment_only("a document has no values"));
    let columns = part.fast_fields();
    let number = |name| Ok::<_, TantivyError>(columns.u64(name)?.first(id));
    let kind = number(KIND)?.and_then(|kind| FileKind::from_number(u8::try_from(kind).ok()?));
    let seconds = columns.i64(SECONDS)?.first(id).ok_or_else(wrong)?;
    let nanos = number(NANOS)?.and_then(|nanos| u32::try_from(nanos).ok());
    let uid = number(UID)?.and_then(|uid| u32::try_from(uid).ok());
    Ok(Document {
        handle: HandleColumns::open(part)?.get(id),
        name: name.ok_or_else(wrong)?.to_vec(),
        kind: kind.ok_or_else(wrong)?,
        size: number(SIZE)?.ok_or_else(wrong)?,
        mtime: Time { seconds, nanos: nanos.ok_or_else(wrong)? },
        uid: uid.ok_or_else(wrong)?,
    })
}
