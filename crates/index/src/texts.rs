//! The index of texts: a document for each file, with the words of its text.

use std::array;

use pelago_folder::Folder;
use pelago_wire::limits::INDEX_TEXT_BYTES;
use pelago_wire::{Handle, InodeId};
use tantivy::Term;
use tantivy::schema::{
    self, Field, IndexRecordOption, NumericOptions, Schema, TextFieldIndexing, TextOptions,
};
use tantivy::tokenizer::TextAnalyzer;

use crate::candidates::TextHit;
use crate::covered::Covered;
use crate::error::Error;
use crate::half::{Half, TOKENIZER};
use crate::handles::{DIR, HASH, INO};
use crate::postings::documents_with;
use crate::values::FieldValue;
use search::Best;
use words::Words;

mod search;
mod words;

const VERSION: &str = "version";
const LENGTH: &str = "length";
/// Bytes of a document besides its text, about.
const DOCUMENT_BYTES: usize = 200;

/// The index of texts of one shard.
///
/// A document stays as it is while the version of its file does, through renames too, so its handle
/// may have an old hint.
/// Reads use the last commit, and go on beside writes.
pub struct Texts {
    half: Half<Encoded>,
    fields: Fields,
}

/// The fields of a document of texts.
#[derive(Debug, Clone, Copy)]
struct Fields {
    ino: Field,
    dir: Field,
    hash: Field,
    version: Field,
    length: Field,
    body: Field,
}

impl Texts {
    /// Opens the index in the folder `texts` of a folder, or makes it there. Reads every byte of
    /// it.
    ///
    /// # Errors
    /// See [`Error`], and [`Error::is_of_files`] for what to do.
    pub fn open(folder: &Folder) -> Result<Self, Error> {
        let (fields, schema) = Fields::new();
        let tokenizer = TextAnalyzer::from(Words);
        let half = Half::open(folder, "texts", schema, fields.ino, Some(tokenizer))?;
        Ok(Self { half, fields })
    }

    /// Returns what the last commit covers; `None` before the first one.
    #[must_use]
    pub fn covered(&self) -> Option<Covered> {
        self.half.covered()
    }

    /// Returns the version of the bytes of which the last commit has the text; `None` if it has
    /// none of the file.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn version(&self, ino: InodeId) -> Result<Option<u64>, Error> {
        let term = Term::from_field_u64(self.fields.ino, ino.raw());
        self.half.search(|searcher| {
            for part in searcher.segment_readers() {
                if let Some(id) = documents_with(part, &term)?.first() {
                    return Ok(part.fast_fields().u64(VERSION)?.first(*id));
                }
            }
            Ok(None)
        })
    }

    /// Replaces the text of a file, which has at most [`INDEX_TEXT_BYTES`]. A file that is no text
    /// can have an empty one, so that its version is known.
    ///
    /// # Errors
    /// [`Error::LongText`], which changes nothing. After any other [`Error`] the index takes no
    /// more until it is opened again, and what was not committed is lost.
    pub fn replace(&self, handle: Handle, version: u64, text: &str) -> Result<(), Error> {
        if text.len() > INDEX_TEXT_BYTES {
            return Err(Error::LongText { bytes: text.len() });
        }
        let document = self.fields.encode(handle, version, text);
        self.half.replace(handle.ino, [(document, DOCUMENT_BYTES + text.len())].into_iter())
    }

    /// Removes the text of a file.
    ///
    /// # Errors
    /// See [`Texts::replace`].
    pub fn remove(&self, ino: InodeId) -> Result<(), Error> {
        self.half.replace(ino, std::iter::empty())
    }

    /// Makes all changes durable and visible.
    ///
    /// # Errors
    /// See [`Texts::replace`].
    pub fn commit(&self, covered: &Covered) -> Result<(), Error> {
        self.half.commit(covered)
    }

    /// Returns files whose texts have all these words, which are as [`pelago_find::words`] makes
    /// them. No words are in no text.
    ///
    /// It returns up to `at_most` of them: those of the highest [`pelago_find::score_alone`] first,
    /// and equal ones ascending by inode, directory and hash. That depends on each file alone: how
    /// often others have a word is not asked, since the asker may not see those.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn search(&self, words: &[String], at_most: usize) -> Result<Vec<TextHit>, Error> {
        self.half.search(|searcher| {
            let mut best = Best::of(at_most);
            for part in searcher.segment_readers() {
                search::search(part, self.fields.body, words, &mut best)?;
            }
            Ok(best.into_hits())
        })
    }
}

impl Fields {
    /// Returns the fields, and the schema that has them.
    fn new() -> (Self, Schema) {
        let mut schema = Schema::builder();
        let column = NumericOptions::default().set_fast();
        // Without norms: the column of lengths is exact.
        let body = TextFieldIndexing::default()
            .set_tokenizer(TOKENIZER)
            .set_fieldnorms(false)
            .set_index_option(IndexRecordOption::WithFreqs);
        let fields = Self {
            ino: schema.add_u64_field(INO, column.clone().set_indexed()),
            dir: schema.add_u64_field(DIR, column.clone()),
            hash: schema.add_u64_field(HASH, column.clone()),
            version: schema.add_u64_field(VERSION, column.clone()),
            length: schema.add_u64_field(LENGTH, column),
            body: schema.add_text_field("body", TextOptions::default().set_indexing_options(body)),
        };
        (fields, schema.build())
    }

    fn encode(self, handle: Handle, version: u64, text: &str) -> Encoded {
        // A text has fewer words than bytes, and those have a limit.
        let length = pelago_find::words(text).count().try_into().unwrap_or(u64::MAX);
        Encoded { fields: self, handle, version, length, text: text.to_owned() }
    }
}

/// A document for the engine.
struct Encoded {
    fields: Fields,
    handle: Handle,
    version: u64,
    /// Words of the text.
    length: u64,
    text: String,
}

impl schema::Document for Encoded {
    type Value<'a> = FieldValue<'a>;
    type FieldsValuesIter<'a> = array::IntoIter<(Field, FieldValue<'a>), 6>;

    fn iter_fields_and_values(&self) -> Self::FieldsValuesIter<'_> {
        let Self { fields, handle, .. } = self;
        let values = [
            (fields.ino, FieldValue::Unsigned(handle.ino.raw())),
            (fields.dir, FieldValue::Unsigned(handle.dir.raw())),
            (fields.hash, FieldValue::Unsigned(handle.hash.0)),
            (fields.version, FieldValue::Unsigned(self.version)),
            (fields.length, FieldValue::Unsigned(self.length)),
            (fields.body, FieldValue::Text(&self.text)),
        ];
        values.into_iter()
    }
}
