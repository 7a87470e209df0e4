//! The fields of a document of names, and how a document becomes one of the engine.

use tantivy::TantivyDocument;
use tantivy::schema::{BytesOptions, Field, NumericOptions, Schema};

use super::trigrams::trigrams;
use crate::document::Document;
use crate::handles::{DIR, HASH, INO};

/// Names of columns.
pub(super) const KIND: &str = "kind";
pub(super) const SIZE: &str = "size";
pub(super) const SECONDS: &str = "seconds";
pub(super) const NANOS: &str = "nanos";
pub(super) const UID: &str = "uid";

/// Bytes of a document besides its name and trigrams, about.
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

    /// Returns a document of the engine, and about how many bytes it has.
    pub(super) fn encode(&self, document: &Document) -> (TantivyDocument, usize) {
        let mut encoded = TantivyDocument::new();
        encoded.add_u64(self.ino, document.handle.ino.raw());
        encoded.add_u64(self.dir, document.handle.dir.raw());
        encoded.add_u64(self.hash, document.handle.hash.0);
        encoded.add_bytes(self.name, &document.name);
        for trigram in trigrams(&document.name, true, true) {
            encoded.add_u64(self.trigram, trigram);
        }
        encoded.add_u64(self.kind, document.kind.number().into());
        encoded.add_u64(self.size, document.size);
        encoded.add_i64(self.seconds, document.mtime.seconds);
        encoded.add_u64(self.nanos, document.mtime.nanos.into());
        encoded.add_u64(self.uid, document.uid.into());
        let trigram_bytes = document.name.len() * (size_of::<u64>() + size_of::<u64>());
        (encoded, DOCUMENT_BYTES + document.name.len() + trigram_bytes)
    }
}
