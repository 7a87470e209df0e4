//! Documents on their way to the thread that indexes them, with a bound on their bytes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pelago_wire::limits::INDEX_QUEUE_BYTES;
use tantivy::schema::Document;

/// After this time without room the caller asks whether the indexing thread still runs: if it ends,
/// the documents on their way are never dropped.
const PAUSE: Duration = Duration::from_millis(100);

/// Bytes that may wait. The engine counts documents only, and a text can have MiBs.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<usize>,
    taken: Condvar,
}

/// A document that counts as waiting until it is dropped. It is one pointer: after each commit the
/// engine makes a channel with room for 40,000 of them.
pub(crate) struct Waiting<D>(Box<Counted<D>>);

struct Counted<D> {
    document: D,
    bytes: usize,
    queue: Arc<Queue>,
}

impl Queue {
    /// Waits until there is room for a document of about this many bytes, for some time at most;
    /// returns whether there is.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let mut waiting = self.waiting.lock();
        let is_full = |waiting: &mut usize| *waiting != 0 && *waiting + bytes > INDEX_QUEUE_BYTES;
        !self.taken.wait_while_for(&mut waiting, is_full, PAUSE).timed_out()
    }

    /// Counts a document until it is dropped.
    pub(crate) fn enter<D>(self: &Arc<Self>, document: D, bytes: usize) -> Waiting<D> {
        *self.waiting.lock() += bytes;
        Waiting(Box::new(Counted { document, bytes, queue: Arc::clone(self) }))
    }
}

impl<D> Drop for Counted<D> {
    fn drop(&mut self) {
        *self.queue.waiting.lock() -= self.bytes;
        self.queue.taken.notify_all();
    }
}

impl<D: Document> Document for Waiting<D> {
    type Value<'a> = D::Value<'a>;
    type FieldsValuesIter<'a> = D::FieldsValuesIter<'a>;

    fn iter_fields_and_values(&self) -> Self::FieldsValuesIter<'_> {
        self.0.document.iter_fields_and_values()
    }
}
