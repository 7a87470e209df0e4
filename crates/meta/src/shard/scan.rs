//! Scans of directories, for their counts after an unclean stop and the filters of their names.
//!
//! A worker scans a snapshot without the shard's lock. Meanwhile the directory records the names
//! that are added and removed, so that the result is right when the scan ends (I-7).

use std::ops::ControlFlow;

use pelago_store::key::{self, Key, RowKind};
use pelago_store::report::{row_damaged, table_failed};
use pelago_store::rows::{NameRow, Partition, Row};
use pelago_store::table::{Snapshot, Table};
use pelago_wire::{Code, Error, Handle, InodeId};

use super::State;
use super::locked::Locked;
use crate::directory::{Changes, FilterState, NameCount};
use crate::name_filter::Filter;

/// The most rows of counts that one call reads.
const PARTITIONS_AT_ONCE: usize = 1024;
/// The most rows of names that one call reads.
const NAMES_AT_ONCE: usize = 4096;

/// A scan of a directory's names that has begun.
pub struct Scan {
    /// The directory.
    pub dir: InodeId,
    /// The table as it was when the scan began.
    pub snapshot: Snapshot,
    /// True if the directory's count was lost in an unclean stop.
    pub recounts: bool,
}

/// The result of a scan.
#[derive(Debug, Default)]
pub struct Scanned {
    /// The number of names.
    pub names: u64,
    /// The number of directories among them.
    pub directories: u64,
    /// The filter of all names, unless it is too large for memory.
    pub filter: Option<Filter>,
}

/// Some results, and the key at which the next call continues; `None` after the last row.
pub(super) type Part<T> = (Vec<T>, Option<Vec<u8>>);

/// Returns a directory in memory whose names should be scanned: one whose count was lost, else one
/// whose filter takes less than `room` bytes.
pub(super) fn next(state: &State, room: u64) -> Option<InodeId> {
    let mut found = None;
    for (ino, directory) in state.directories.iter() {
        if !matches!(directory.filter, FilterState::Absent) {
            continue;
        }
        if directory.needs_recount {
            return Some(ino);
        }
        if found.is_none() && Filter::bytes_for(directory.names) < room {
            found = Some(ino);
        }
    }
    found
}

/// Returns directories whose count was lost, among the next rows from `from` on.
pub(super) fn dirs_to_recount(table: &dyn Table, from: &[u8]) -> Result<Part<InodeId>, Error> {
    let mut dirs = Vec::new();
    let mut rows = 0;
    let mut next = None;
    let visited = table.scan(from, &key::all(RowKind::Partition).to, &mut |key, value| {
        if rows == PARTITIONS_AT_ONCE {
            next = Some(key.to_vec());
            return ControlFlow::Break(());
        }
        rows += 1;
        match (Key::parse(key), Partition::decode(value)) {
            (Some(Key::Partition { dir, .. }), Ok((_, row))) if row.dirty => dirs.push(dir),
            (_, Ok(_)) => {}
            // Logged here; an operation on the directory fails.
            (_, Err(error)) => drop(row_damaged(key, error)),
        }
        ControlFlow::Continue(())
    });
    visited.map_err(|error| table_failed("seeking lost counts", &error))?;
    Ok((dirs, next))
}

/// Returns the wanted files that are embedded in their names, among the next rows from `from` on.
pub(super) fn find_embedded(
    table: &dyn Table,
    from: &[u8],
    is_wanted: &dyn Fn(InodeId) -> bool,
) -> Result<Part<Handle>, Error> {
    let range = key::all(RowKind::Name);
    let from = if from.is_empty() { &range.from } else { from };
    let mut found = Vec::new();
    let mut rows = 0;
    let mut next = None;
    let visited = table.scan(from, &range.to, &mut |key, value| {
        if rows == NAMES_AT_ONCE {
            next = Some(key.to_vec());
            return ControlFlow::Break(());
        }
        rows += 1;
        match (key::parse_name(key), NameRow::decode(value)) {
            (Some((dir, hash, _)), Ok((_, NameRow::Rnode(rnode)))) => {
                if is_wanted(rnode.ino) {
                    found.push(Handle::at(rnode.ino, dir, hash));
                }
            }
            (_, Ok(_)) => {}
            (_, Err(error)) => drop(row_damaged(key, error)),
        }
        ControlFlow::Continue(())
    });
    visited.map_err(|error| table_failed("seeking a file", &error))?;
    Ok((found, next))
}

/// Begins a scan: from now on the directory records the names that are added and removed. Returns
/// `None` if it was removed, or needs no scan any more.
pub(super) fn begin(locked: &mut Locked<'_>, dir: InodeId) -> Result<Option<Scan>, Error> {
    match locked.load_directory(Handle::own(dir)) {
        Err(error) if matches!(error.code, Code::Stale | Code::NotFound) => return Ok(None),
        loaded => loaded?,
    }
    let table = &locked.shard.table;
    let Some(directory) = locked.state.directories.get_mut(dir) else { return Ok(None) };
    if !matches!(directory.filter, FilterState::Absent) {
        return Ok(None);
    }
    let snapshot = table.snapshot().map_err(|error| table_failed("scanning", &error))?;
    directory.filter = FilterState::Building(Changes::default());
    Ok(Some(Scan { dir, snapshot, recounts: directory.needs_recount }))
}

/// Ends a scan: applies the recorded changes to its result; `None` if it failed. Returns true if
/// too many changes were recorded, so that there is no filter: another scan at once would end in
/// the same way.
pub(super) fn end(state: &mut State, dir: InodeId, scanned: Option<Scanned>) -> bool {
    let Some(directory) = state.directories.get_mut(dir) else { return false };
    let FilterState::Building(changes) =
        std::mem::replace(&mut directory.filter, FilterState::Absent)
    else {
        return false;
    };
    let Some(scanned) = scanned else { return false };
    if let Some(filter) = scanned.filter.and_then(|filter| changes.filter_on(filter)) {
        directory.filter = FilterState::Ready(filter);
    }
    if directory.needs_recount {
        let start = NameCount { names: scanned.names, directories: scanned.directories };
        directory.set_recounted(changes.count_on(start));
        state.directories.flagged_dirty(dir);
    }
    changes.were_too_many()
}

/// Drops filters, the largest first, until all together take at most `limit` bytes. Returns their
/// bytes.
pub(super) fn limit_filters(state: &mut State, limit: u64) -> u64 {
    let mut bytes = state.directories.filter_bytes();
    while bytes > limit {
        let sizes = state.directories.iter().filter_map(|(ino, directory)| {
            let FilterState::Ready(filter) = &directory.filter else { return None };
            Some((filter.bytes(), ino))
        });
        let Some((largest, ino)) = sizes.max() else { break };
        if let Some(directory) = state.directories.get_mut(ino) {
            directory.filter = FilterState::Absent;
        }
        bytes = bytes.saturating_sub(largest as u64);
        if largest == 0 {
            break;
        }
    }
    bytes
}
