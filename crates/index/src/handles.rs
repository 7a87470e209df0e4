//! Handles out of the columns of an index, in order.

use std::sync::Arc;

use pelago_wire::{Handle, InodeId, NameHash};
use tantivy::collector::{Collector, SegmentCollector};
use tantivy::columnar::ColumnValues;
use tantivy::{DocId, Score, SegmentOrdinal, SegmentReader};

/// The names of the columns: the inode, and the place where its row was last seen.
pub(crate) const INO: &str = "ino";
pub(crate) const DIR: &str = "dir";
pub(crate) const HASH: &str = "hash";

/// The columns of one part of an index.
pub(crate) struct HandleColumns([Arc<dyn ColumnValues<u64>>; 3]);

impl HandleColumns {
    pub(crate) fn open(part: &SegmentReader) -> tantivy::Result<Self> {
        let column = |name| part.fast_fields().column_first_or_default(name);
        Ok(Self([column(INO)?, column(DIR)?, column(HASH)?]))
    }

    /// Returns the handle of a document.
    pub(crate) fn get(&self, document: DocId) -> Handle {
        let [ino, dir, hash] = self.0.each_ref().map(|column| column.get_val(document));
        Handle::at(InodeId::from_raw(ino), InodeId::from_raw(dir), NameHash(hash))
    }
}

/// Returns the key by which handles are ordered.
pub(crate) fn order(handle: &Handle) -> (InodeId, InodeId, NameHash) {
    (handle.ino, handle.dir, handle.hash)
}

/// Collects the handles of all documents that a query of the engine finds: in order, each once.
pub(crate) struct AllHandles;

/// The handles of one part.
pub(crate) struct PartHandles {
    columns: HandleColumns,
    found: Vec<Handle>,
}

impl Collector for AllHandles {
    type Fruit = Vec<Handle>;
    type Child = PartHandles;

    fn for_segment(&self, _: SegmentOrdinal, part: &SegmentReader) -> tantivy::Result<PartHandles> {
        Ok(PartHandles { columns: HandleColumns::open(part)?, found: Vec::new() })
    }

    fn requires_scoring(&self) -> bool {
        false
    }

    fn merge_fruits(&self, parts: Vec<Vec<Handle>>) -> tantivy::Result<Vec<Handle>> {
        let mut all = parts.concat();
        all.sort_unstable_by_key(order);
        all.dedup();
        Ok(all)
    }
}

impl SegmentCollector for PartHandles {
    type Fruit = Vec<Handle>;

    fn collect(&mut self, document: DocId, _: Score) {
        self.found.push(self.columns.get(document));
    }

    fn harvest(self) -> Vec<Handle> {
        self.found
    }
}
