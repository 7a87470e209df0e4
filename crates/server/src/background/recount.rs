//! Scans of directories: they count the names of directories whose counts were lost in an unclean
//! stop, and build the filters of directories in use, so that the engine is not asked for names
//! that do not exist.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pelago_meta::name_filter::Filter;
use pelago_meta::shard::{Scan, Scanned, Shard};
use pelago_store::key::{self, RowKind};
use pelago_store::report::{row_damaged, table_failed};
use pelago_store::rows::{NameRow, Row};
use pelago_wire::{Error, FileKind, InodeId};

use super::{NextRun, WorkDone, Worker};

/// The time between two checks for directories to scan.
const INTERVAL: Duration = Duration::from_secs(1);
/// The pause after a scan that was overtaken by too many changes, in multiples of its duration.
const PAUSE: u32 = 9;

/// The worker `recount`.
pub(crate) struct Recount {
    shard: Arc<Shard>,
    /// The limit in bytes of all filters together.
    limit: u64,
    /// The key at which the search for lost counts continues; `None` after its end.
    cursor: Option<Vec<u8>>,
    /// Directories with lost counts that were found and not yet counted.
    uncounted: Vec<InodeId>,
}

impl Recount {
    /// Returns a worker for this shard, whose filters may take `limit` bytes. `unclean`: the last
    /// run did not end cleanly, so counts may be lost.
    #[must_use]
    pub(crate) fn new(shard: Arc<Shard>, limit: u64, unclean: bool) -> Self {
        let cursor = unclean.then(|| key::all(RowKind::Partition).from);
        Self { shard, limit, cursor, uncounted: Vec::new() }
    }

    /// Returns the next directory to scan: one in use, else any other whose count was lost.
    fn next(&mut self, room: u64) -> Option<InodeId> {
        self.shard.next_to_scan(room).or_else(|| self.uncounted.pop())
    }
}

impl Worker for Recount {
    fn work(&mut self) -> Result<WorkDone, Error> {
        let room = self.limit.saturating_sub(self.shard.limit_filters(self.limit));
        let Some(dir) = self.next(room) else {
            let Some(cursor) = &self.cursor else { return Ok(WorkDone::nothing(INTERVAL)) };
            (self.uncounted, self.cursor) = self.shard.dirs_to_recount(cursor)?;
            return Ok(WorkDone { items: 0, next: NextRun::Soon });
        };
        let Some(scan) = self.shard.begin_scan(dir)? else {
            return Ok(WorkDone { items: 0, next: NextRun::Soon });
        };
        let since = Instant::now();
        let scanned = scan_names(&scan, room);
        let (scanned, failed) = match scanned {
            Ok(scanned) => (Some(scanned), None),
            Err(error) => (None, Some(error)),
        };
        let overtaken = self.shard.end_scan(dir, scanned);
        let next = match overtaken {
            true => NextRun::After(INTERVAL.max(since.elapsed() * PAUSE)),
            false => NextRun::Soon,
        };
        failed.map_or(Ok(WorkDone { items: 1, next }), Err)
    }
}

/// Counts the names of a directory and fills its filter. There is no filter if it would take more
/// than `room` bytes.
fn scan_names(scan: &Scan, room: u64) -> Result<Scanned, Error> {
    let mut scanned = Scanned { filter: Some(Filter::new()), ..Scanned::default() };
    let mut damaged = None;
    let range = key::names_of_dir(scan.dir);
    let visited = scan.snapshot.scan(&range.from, &range.to, &mut |key, value| {
        let kind = match NameRow::decode(value) {
            Ok((_, row)) => row.kind(),
            // The name counts nevertheless; an open of the file reports the damage.
            Err(error) => {
                damaged = Some(row_damaged(key, error));
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
    if let (Some(error), false) = (damaged, scan.recounts) {
        return Err(error);
    }
    Ok(scanned)
}
