//! Values of documents as the engine takes them.

use std::iter::Empty;

use tantivy::schema::Value;
use tantivy::schema::document::{ReferenceValue, ReferenceValueLeaf};

/// A value of a document, which is borrowed from what it is made of: a document of the engine's own
/// would have a KiB and more for each name, on its way between two threads.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FieldValue<'a> {
    Unsigned(u64),
    Signed(i64),
    Bytes(&'a [u8]),
    Text(&'a str),
}

impl<'a> Value<'a> for FieldValue<'a> {
    type ArrayIter = Empty<Self>;
    type ObjectIter = Empty<(&'a str, Self)>;

    fn as_value(&self) -> ReferenceValue<'a, Self> {
        ReferenceValue::Leaf(match *self {
            Self::Unsigned(number) => ReferenceValueLeaf::U64(number),
            Self::Signed(number) => ReferenceValueLeaf::I64(number),
            Self::Bytes(bytes) => ReferenceValueLeaf::Bytes(bytes),
            Self::Text(text) => ReferenceValueLeaf::Str(text),
        })
    }
}
