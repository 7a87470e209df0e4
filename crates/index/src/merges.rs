//! Merges of parts of an index into one.

use pelago_folder::Folder;
use pelago_wire::limits::{INDEX_MERGED_DOCUMENTS, INDEX_MERGED_TERM_BYTES};
use tantivy::SegmentMeta;
use tantivy::index::SegmentComponent;
use tantivy::indexer::{LogMergePolicy, MergeCandidate, MergePolicy};

/// The number of parts of one size from which on they are merged.
const PARTS: usize = 8;
/// The largest share of deleted documents in a part.
const DELETED: f32 = 0.3;

/// Merges parts of a similar size, up to a size at which the memory of a merge is bounded: it has
/// 16 bytes for each document, and at most the bytes of the terms, besides buffers.
#[derive(Debug)]
pub(crate) struct BoundedMerges {
    folder: Folder,
    policy: LogMergePolicy,
}

impl BoundedMerges {
    /// Returns the merges of an index in a folder.
    pub(crate) fn new(folder: &Folder) -> Self {
        let mut policy = LogMergePolicy::default();
        policy.set_min_num_segments(PARTS);
        policy.set_max_docs_before_merge(INDEX_MERGED_DOCUMENTS / 2);
        policy.set_del_docs_ratio_before_merge(DELETED);
        Self { folder: folder.clone(), policy }
    }

    /// Returns the bytes of the terms of a part.
    fn term_bytes(&self, part: &SegmentMeta) -> u64 {
        // A part whose size is not known is merged with nothing.
        self.folder.size_of(&part.relative_path(SegmentComponent::Terms)).unwrap_or(u64::MAX)
    }
}

impl MergePolicy for BoundedMerges {
    fn compute_merge_candidates(&self, parts: &[SegmentMeta]) -> Vec<MergeCandidate> {
        let mut merges = self.policy.compute_merge_candidates(parts);
        for MergeCandidate(ids) in &mut merges {
            let part_of = |id| parts.iter().find(|part| part.id() == id);
            let mut all: Vec<&SegmentMeta> = ids.iter().filter_map(|id| part_of(*id)).collect();
            all.sort_by_key(|part| part.num_docs());
            let mut documents = 0;
            let mut term_bytes = 0_u64;
            all.retain(|part| {
                documents += part.num_docs() as usize;
                term_bytes = term_bytes.saturating_add(self.term_bytes(part));
                documents <= INDEX_MERGED_DOCUMENTS && term_bytes <= INDEX_MERGED_TERM_BYTES
            });
            // One alone is merged with itself, if that removes its deleted documents.
            if let [only] = all[..]
                && only.num_deleted_docs() == 0
            {
                all.clear();
            }
            *ids = all.into_iter().map(SegmentMeta::id).collect();
        }
        merges.retain(|MergeCandidate(ids)| !ids.is_empty());
        merges
    }
}
