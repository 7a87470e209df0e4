//! Counts the names of directories whose count was lost in an unclean stop, and learns the names of
//! directories in use, so that the engine is not asked for names that are not there.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pelago_store::key::{self, RowKind};
use pelago_store::rows::{NameRow, Row};
use pelago_wire::{Error, FileKind, InodeId};

use super::{Next, Piece, Worker};
use pelago_meta::name_filter::Filter;
use pelago_meta::shard::{Scan, Scanned, Shard};
use pelago_store::report::{row_damaged, table_failed};

/// How often it looks whether there are directories to scan.
const INTERVAL: Duration = Duration::from_secs(1);
/// After a scan that came too late for all that happened meanwhile it rests so many times as long.
const PAUSE: u32 = 9;

/// The worker `recount`.
pub(crate) struct Recount {
    shard: Arc<Shard>,
    /// Bytes that all filters may take.
    limit: u64,
    /// Where to go on looking for counts that were lost; `None`: all were found.
    from: Option<Vec<u8>>,
    /// Those that were found.
    lost: Vec<InodeId>,
}

impl Recount {
    /// A worker for this shard, whose filters may take `limit` bytes. `unclean`: counts may have
    /// been lost when the life before ended.
    #[must_use]
    pub(crate) fn new(shard: Arc<Shard>, limit: u64, unclean: bool) -> Self {
        let from = unclean.then(|| key::all(RowKind::Partition).from);
        Self { shard, limit, from, lost: Vec::new() }
    }

    /// Which directory is next: one in use; else one whose count was lost, used or not.
    fn next(&mut self, room: u64) -> Option<InodeId> {
        self.shard.next_to_scan(room).or_else(|| self.lost.pop())
    }
}

impl Worker for Recount {
    fn work(&mut self) -> Result<Piece, Error> {
        let room = self.limit.saturating_sub(self.shard.limit_filters(self.limit));
        let Some(dir) = self.next(room) else {
            let Some(from) = self.from.take() else { return Ok(Piece::nothing(INTERVAL)) };
            (self.lost, self.from) = self.shard.dirs_to_recount(&from)?;
            return Ok(Piece { items: 0, next: Next::Again });
        };
        let Some(scan) = self.shard.begin_scan(dir)? else {
            return Ok(Piece { items: 0, next: Next::Again });
        };
        let since = Instant::now();
        let scanned = carry_out(&scan, room);
        let (scanned, failed) = match scanned {
            Ok(scanned) => (Some(scanned), None),
            Err(error) => (None, Some(error)),
        };
        let in_vain = self.shard.end_scan(dir, scanned);
        let next = match in_vain {
            true => Next::After(INTERVAL.max(since.elapsed() * PAUSE)),
            false => Next::Again,
        };
        failed.map_or(Ok(Piece { items: 1, next }), Err)
    }
}

/// Scans the names; the filter is given up where it does not fit into `room` bytes.
fn carry_out(scan: &Scan, room: u64) -> Result<Scanned, Error> {
    let mut scanned = Scanned { filter: Some(Filter::new()), ..Scanned::default() };
    let mut wrong = None;
    let range = key::names_of_dir(scan.dir);
    let visited = scan.snapshot.scan(&range.from, &range.to, &mut |key, value| {
        let kind = match NameRow::decode(value) {
            Ok((_, row)) => row.kind(),
            // It has a name all the same; who opens it is told.
            Err(error) => {
                wrong = Some(row_damaged(key, error));
                FileKind::Regular
            }
        };
        scanned.names += 1;
        scanned.directories += u64::from(kind == FileKind::Directory);
        match (&mut scanned.filter, key::parse_name(key)) {
            (Some(filter), Some((_, hash, _))) if (filter.bytes() as u64) < room => {
                filter.insert(hash);
            }
            _ => scanned.filter = None,
        }
        ControlFlow::Continue(())
    });
    visited.map_err(|error| table_failed("counting a directory", &error))?;
    if let (Some(error), false) = (wrong, scan.recounts) {
        return Err(error);
    }
    Ok(scanned)
}
