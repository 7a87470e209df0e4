//! The deletion of `writing` rows of closed and safe files. The commit of a file writes its row,
//! and may delete it ([`super::WritingRow`]).

use pelago_store::key;
use pelago_wire::InodeId;

use super::txn::Txn;

/// Deletes the rows of files that are not being written and whose bytes are safe.
pub(super) fn delete(txn: &mut Txn<'_>, inos: &[InodeId]) {
    txn.batch.allow_reserve();
    for ino in inos {
        txn.delete(key::writing(*ino));
    }
}
