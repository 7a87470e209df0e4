//! Rows of the sessions of other processes, by which the next run of the server knows them.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use pelago_store::key::{self, Key, RowKind};
use pelago_store::report::{row_damaged, table_failed};
use pelago_store::rows::{HighWater, Row, Stamp};
use pelago_store::table::{self, Batch};
use pelago_wire::{Error, RequestId, SessionId, SessionRecord, WriteEra, limits};

use super::Shard;
use super::locked::Locked;

/// Returns the sessions of the last run, and records the replies that are stored for them. Deletes
/// the replies of sessions that have ended. A damaged row is logged, and its session counts as
/// ended.
pub(super) fn load(shard: &Shard) -> Result<Vec<(SessionId, SessionRecord)>, Error> {
    let mut sessions = Vec::new();
    let range = key::all(RowKind::Session);
    let visited = shard.table.scan(&range.from, &range.to, &mut |key, value| {
        match (Key::parse(key), SessionRecord::decode(value)) {
            (Some(Key::Session { session }), Ok((_, record))) => sessions.push((session, record)),
            (_, Err(error)) => drop(row_damaged(key, error)),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    visited.map_err(|error| table_failed("reading sessions", &error))?;
    let mut locked = shard.lock();
    for (session, record) in &sessions {
        locked.state.replies.begin(*session, *record);
    }
    shard.has_sessions.store(!sessions.is_empty(), Ordering::Release);
    drop(locked);
    let mut from = key::all(RowKind::CachedReply).from;
    loop {
        let replies = next_replies(shard, &from)?;
        let Some((session, request)) = replies.last() else { break };
        from = key::cached_reply(*session, *request);
        from.push(0);
        note_replies(shard, &replies)?;
    }
    if !sessions.is_empty() {
        // A killed process leaves batches in the page cache. They are made safe here, because
        // clients are told that the changes of stored replies are safe.
        shard.table.persist().map_err(|error| table_failed("making sessions safe", &error))?;
    }
    Ok(sessions)
}

fn next_replies(shard: &Shard, from: &[u8]) -> Result<Vec<(SessionId, RequestId)>, Error> {
    let mut replies = Vec::new();
    let to = key::all(RowKind::CachedReply).to;
    let visited = shard.table.scan(from, &to, &mut |key, _| {
        if let Some(Key::CachedReply { session, request }) = Key::parse(key) {
            replies.push((session, request));
        }
        match replies.len() < limits::LOCK_ROWS {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    visited.map_err(|error| table_failed("reading stored replies", &error))?;
    Ok(replies)
}

/// Records the replies of known sessions, and deletes the others.
fn note_replies(shard: &Shard, replies: &[(SessionId, RequestId)]) -> Result<(), Error> {
    let mut txn = shard.begin_upkeep();
    // A server must start on a full disk.
    txn.batch.allow_reserve();
    for (session, request) in replies {
        if txn.state.replies.has(*session) {
            txn.state.replies.add(*session, *request);
        } else {
            txn.delete(key::cached_reply(*session, *request));
        }
    }
    txn.commit().map(drop)
}

/// Begins a session. Without effect if it has begun already.
pub(super) fn begin(
    shard: &Shard,
    session: SessionId,
    record: &SessionRecord,
) -> Result<(), Error> {
    let mut txn = shard.begin_upkeep();
    if txn.state.replies.has(session) {
        return Ok(());
    }
    // A session may be needed to free space on a full disk.
    txn.batch.allow_reserve();
    txn.put(key::session(session), record);
    let before = txn.state.sequence;
    let mut locked = txn.commit()?;
    if locked.state.replies.is_empty() {
        locked.state.unsafe_changes.begin(before);
    }
    let sequence = locked.state.sequence;
    locked.state.unsafe_changes.begin_session(session, sequence);
    locked.state.replies.begin(session, *record);
    shard.has_sessions.store(true, Ordering::Release);
    Ok(())
}

/// Begins a new epoch in the same run, after the table was opened again: makes the remaining
/// batches safe, and writes the row of each session that was not forgotten. `next_id`: the
/// high-water mark of the inode ids.
pub(super) fn begin_epoch(locked: &mut Locked<'_>, next_id: u64) -> Result<(), table::Error> {
    let Locked { shard, state } = locked;
    let epoch = shard.epoch.load(Ordering::Relaxed).saturating_add(1);
    let stamp = Stamp { epoch, sequence: state.sequence + 1 };
    let mut batch = Batch::new();
    batch.allow_reserve();
    // By its stamp the next run knows the newest epoch.
    batch.put(key::high_water(shard.id.shard), HighWater { next: next_id }.encode(stamp));
    for (session, record) in state.replies.rows() {
        match record {
            Some(record) => batch.put(key::session(session), record.encode(stamp)),
            // The batch that deleted the row may be lost.
            None => batch.delete(key::session(session)),
        }
    }
    if let Some(changed) = &mut state.changed_rows {
        changed.add(&batch);
    }
    shard.table.write(&batch)?;
    state.sequence += 1;
    shard.durability.applied(state.sequence);
    shard.table.persist()?;
    shard.epoch.store(epoch, Ordering::Release);
    state.replies.begin_epoch();
    state.unsafe_changes.end();
    Ok(())
}

/// Deletes the row of a session, and keeps its replies for this run.
pub(super) fn forget(shard: &Shard, session: SessionId) -> Result<(), Error> {
    let mut txn = shard.begin_upkeep();
    txn.batch.allow_reserve();
    txn.delete(key::session(session));
    txn.commit()?.state.replies.set_forgotten(session, true);
    Ok(())
}

/// Writes the row of a forgotten session again.
pub(super) fn remember(shard: &Shard, session: SessionId) -> Result<(), Error> {
    let mut txn = shard.begin_upkeep();
    let Some(record) = txn.state.replies.forgotten(session) else { return Ok(()) };
    txn.batch.allow_reserve();
    txn.put(key::session(session), &record);
    let mut locked = txn.commit()?;
    let sequence = locked.state.sequence;
    locked.state.unsafe_changes.begin_session(session, sequence);
    locked.state.replies.set_forgotten(session, false);
    Ok(())
}

/// Begins new eras of leases on bytes: writes them into the rows of these sessions. A forgotten
/// session has no row; its era is written when it is remembered.
pub(super) fn begin_write_eras(shard: &Shard, eras: &[(SessionId, WriteEra)]) -> Result<(), Error> {
    let mut txn = shard.begin_upkeep();
    txn.batch.allow_reserve();
    for (session, era) in eras {
        if let Some(record) = txn.state.replies.row(*session) {
            txn.put(key::session(*session), &SessionRecord { era: *era, ..record });
        }
    }
    let mut locked = txn.commit()?;
    eras.iter().for_each(|(session, era)| locked.state.replies.set_era(*session, *era));
    Ok(())
}

/// Ends a session: deletes its row and its stored replies, of which there are at most about
/// [`limits::SESSION_MUTATIONS`].
pub(super) fn end(shard: &Shard, session: SessionId) -> Result<(), Error> {
    let mut txn = shard.begin_upkeep();
    if !txn.state.replies.has(session) {
        return Ok(());
    }
    txn.batch.allow_reserve();
    let replies: Vec<_> = txn.state.replies.of(session).collect();
    for request in replies {
        txn.delete(key::cached_reply(session, request));
    }
    txn.delete(key::session(session));
    let mut locked = txn.commit()?;
    locked.state.replies.end(session);
    if locked.state.replies.is_empty() {
        locked.state.unsafe_changes.end();
        shard.has_sessions.store(false, Ordering::Release);
    }
    Ok(())
}
