//! Upkeep of a shard: the counts of directories at a group commit, the last batch of a run, and the
//! reopening of a table that has stopped.

use pelago_store::rows::HighWater;
use pelago_store::{key, table};
use pelago_wire::Error;

use super::Shard;

/// Writes the counts of all directories that changed since the last call. Returns the sequence of
/// the newest batch. `is_last`: true if no other batch of counts follows, so that this one may use
/// the reserve.
pub(super) fn write_counts(shard: &Shard, is_last: bool) -> Result<u64, Error> {
    let mut txn = shard.begin_upkeep();
    if txn.state.directories.changed().is_empty() {
        return Ok(txn.state.sequence);
    }
    if is_last {
        txn.batch.allow_reserve();
    }
    let changed = txn.state.directories.changed().to_vec();
    for ino in &changed {
        let Some(directory) = txn.state.directories.get(*ino) else { continue };
        if !directory.needs_recount {
            let row = directory.row(false);
            txn.put(key::partition(*ino, 0), &row);
        }
    }
    let mut locked = txn.commit()?;
    locked.state.directories.clear_changed();
    for ino in changed {
        if let Some(directory) = locked.state.directories.get_mut(ino) {
            directory.is_dirty_in_table = directory.needs_recount;
        }
    }
    Ok(locked.state.sequence)
}

/// Writes the last batches of a clean run: times of reads, counts, and the end of the used ids.
pub(super) fn finish(shard: &Shard) -> Result<(), Error> {
    // As in a group commit, the loss of the time of a read breaks no promise.
    if let Err(error) = super::read_times::commit(shard) {
        tracing::debug!(%error, "times of reads are not written");
    }
    write_counts(shard, true)?;
    let mut txn = shard.begin_upkeep();
    txn.batch.allow_reserve();
    let high_water = HighWater { next: txn.state.ids.next() };
    txn.put(key::high_water(shard.id.shard), &high_water);
    txn.commit()?.state.ids.returned();
    Ok(())
}

/// Opens the table again after it stopped, and forgets the cached rows. No operation runs in
/// between: a row that was derived from a lost row would contradict the others. If there are
/// sessions of other processes, a new epoch begins, so that their clients repeat the requests that
/// may be lost. Returns whether the batches that were not safe are lost.
pub(super) fn reopen(shard: &Shard) -> Result<bool, table::Error> {
    let mut locked = shard.lock();
    let loses = shard.table.reopen()?;
    locked.state.forget_rows();
    let intents = super::intents::stored_intents(&*shard.table)?;
    locked.close_removed(&intents);
    // Some of these files have their names again, and their snapshots are stale.
    shard.removed.clear();
    let next_id = locked.state.ids.invalidate();
    if !locked.state.replies.is_empty() {
        super::sessions::begin_epoch(&mut locked, next_id)?;
    }
    Ok(loses)
}
