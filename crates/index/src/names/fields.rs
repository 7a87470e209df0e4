//! The fields of a document of names, and how a document becomes one of the engine.

use std::array;

use tantivy::schema::{self, BytesOptions, Field, NumericOptions, Schema};

use super::trigrams::{Trigrams, trigrams};
use crate::document::Document;
use crate::handles::{DIR, HASH, INO};
use crate::values::FieldValue;

/// Names of columns.
pub(super) const KIND: &str = "kind";
pub(super) const SIZE: &str = "size";
pub(super) const SECONDS: &str = "seconds";
pub(super) const NANOS: &str = "nanos";
pub(super) const UID: &str = "uid";

/// The approximate bytes of a queued document besides its name.
const DOCUMENT_BYTES: usize = 200;

/// The fields of a document of names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields {
    pub(super) ino: Field,
    dir: Field,
    hash: Field,
    /// The whole name.
    pub(super) name: Field,
    pub(super) trigram: Field,
    pub(super) kind: Field,
    pub(super) size: Field,
    /// The time of the last change: whole seconds, and what is beside them.
    pub(super) seconds: Field,
    nanos: Field,
    pub(super) uid: Field,
}

impl Fields {
    /// Returns the fields, and the schema that has them.
    pub(super) fn new() -> (Self, Schema) {
        let mut schema = Schema::builder();
        // Without norms: nothing is ranked here.
        let indexed = NumericOptions::default().set_indexed();
        let column = NumericOptions::default().set_fast();
        let both = indexed.clone().set_fast();
        let fields = Self {
            ino: schema.add_u64_field(INO, both.clone()),
            dir: schema.add_u64_field(DIR, column.clone()),
            hash: schema.add_u64_field(HASH, column.clone()),
            name: schema
                .add_bytes_field("name", BytesOptions::default().set_indexed().set_stored()),
            trigram: schema.add_u64_field("trigram", indexed),
            kind: schema.add_u64_field(KIND, both.clone()),
            size: schema.add_u64_field(SIZE, column.clone()),
            seconds: schema.add_i64_field(SECONDS, column.clone()),
            nanos: schema.add_u64_field(NANOS, column),
            uid: schema.add_u64_field(UID, both),
        };
        (fields, schema.build())
    }

    /// Returns a document for the engine, and about how many bytes it has.
    pub(super) fn encode(self, document: &Document) -> (Encoded, usize) {
        let encoded = Encoded { fields: self, document: document.clone() };
        (encoded, DOCUMENT_BYTES + document.name.len())
    }
}

/// A document for the engine.
pub(super) struct Encoded {
    fields: Fields,
    document: Document,
}

impl schema::Document for Encoded {
    type Value<'a> = FieldValue<'a>;
    type FieldsValuesIter<'a> = Values<'a>;

    fn iter_fields_and_values(&self) -> Values<'_> {
        let Self { fields, document } = self;
        let Document { handle, name, kind, size, mtime, uid } = document;
        let first = [
            (fields.ino, FieldValue::Unsigned(handle.ino.raw())),
            (fields.dir, FieldValue::Unsigned(handle.dir.raw())),
            (fields.hash, FieldValue::Unsigned(handle.hash.0)),
            (fields.name, FieldValue::Bytes(name)),
        ];
        let last = [
            (fields.kind, FieldValue::Unsigned(kind.number().into())),
            (fields.size, FieldValue::Unsigned(*size)),
            (fields.seconds, FieldValue::Signed(mtime.seconds)),
            (fields.nanos, FieldValue::Unsigned(mtime.nanos.into())),
            (fields.uid, FieldValue::Unsigned((*uid).into())),
        ];
        Values {
            first: first.into_iter(),
            trigram: fields.trigram,
            trigrams: trigrams(name, true, true),
            last: last.into_iter(),
        }
    }
}

/// The values of a document. They are in the order of the fields, which the engine sorts them by.
pub(super) struct Values<'a> {
    first: array::IntoIter<(Field, FieldValue<'a>), 4>,
    trigram: Field,
    trigrams: Trigrams<'a>,
    last: array::IntoIter<(Field, FieldValue<'a>), 5>,
}

impl<'a> Iterator for Values<'a> {
    type Item = (Field, FieldValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(first) = self.first.next() {
            return Some(first);
        }
        match self.trigrams.next() {
            Some(trigram) => Some((self.trigram, FieldValue::Unsigned(trigram))),
            None => self.last.next(),
        }
    }
}
