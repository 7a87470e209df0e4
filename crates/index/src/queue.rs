//! Documents on their way to the thread that indexes them, with a bound on their bytes.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use pelago_wire::limits::INDEX_QUEUE_BYTES;
use tantivy::TantivyDocument;
use tantivy::schema::{Document as Fields, Field};

/// Bytes that may wait. The engine counts documents only, and a text can have MiBs.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<usize>,
    taken: Condvar,
}

/// A document that counts as waiting until it is dropped.
pub(crate) struct Waiting {
    document: TantivyDocument,
    bytes: usize,
    queue: Arc<Queue>,
}

impl Queue {
    /// Counts a document of about so many bytes, once there is room for it.
    pub(crate) fn enter(self: &Arc<Self>, document: TantivyDocument, bytes: usize) -> Waiting {
        let mut waiting = self.waiting.lock();
        // The indexing thread drops all documents if it ends, so this ends too.
        self.taken.wait_while(&mut waiting, |waiting| {
            *waiting != 0 && *waiting + bytes > INDEX_QUEUE_BYTES
        });
        *waiting += bytes;
        Waiting { document, bytes, queue: Arc::clone(self) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        *self.queue.waiting.lock() -= self.bytes;
        self.queue.taken.notify_all();
    }
}

impl Fields for Waiting {
    type Value<'a> = <TantivyDocument as Fields>::Value<'a>;
    type FieldsValuesIter<'a> = <TantivyDocument as Fields>::FieldsValuesIter<'a>;

    fn iter_fields_and_values(&self) -> Self::FieldsValuesIter<'_> {
        self.document.iter_fields_and_values()
    }

    fn get_sorted_field_values(&self) -> Vec<(Field, Vec<Self::Value<'_>>)> {
        self.document.get_sorted_field_values()
    }
}
