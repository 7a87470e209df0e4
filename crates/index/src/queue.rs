//! Documents on their way to the thread that indexes them, with a bound on their bytes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pelago_wire::limits::INDEX_QUEUE_BYTES;
use tantivy::TantivyDocument;
use tantivy::schema::{Document as Fields, Field};

/// After this time without room the caller asks whether the indexing thread still runs: if it ends,
/// the documents on their way are never dropped.
const PAUSE: Duration = Duration::from_millis(100);

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
    /// Waits until there is room for a document of about so many bytes, for some time at most;
    /// returns whether there is.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let mut waiting = self.waiting.lock();
        let is_full = |waiting: &mut usize| *waiting != 0 && *waiting + bytes > INDEX_QUEUE_BYTES;
        !self.taken.wait_while_for(&mut waiting, is_full, PAUSE).timed_out()
    }

    /// Counts a document until it is dropped.
    pub(crate) fn enter(self: &Arc<Self>, document: TantivyDocument, bytes: usize) -> Waiting {
        *self.waiting.lock() += bytes;
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
