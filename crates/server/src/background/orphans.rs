//! The removal of *orphans*: files that have lost their last name and are not open.
//!
//! Each file goes through three steps. A crash between any two of them loses no reachable file, and
//! leaves no garbage for ever:
//!
//! 1. Its rows are removed, so that it cannot be opened any more; its orphan row stays.
//! 2. When that is safe, its content file is removed. If a crash before that brings the name back,
//!    the bytes are still there.
//! 3. When that is safe too, its orphan row is removed.

use std::collections::{HashSet, VecDeque};
use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pelago_data::OpenFiles;
use pelago_meta::durability::Durability;
use pelago_meta::shard::Shard;
use pelago_store::content::ContentStore;
use pelago_store::key::{self, Key, RowKind};
use pelago_store::report::{content_failed, row_damaged, table_failed};
use pelago_store::rows::{Orphan, Row};
use pelago_store::table::SharedTable;
use pelago_wire::{Code, Error, Generation, InodeId};

use super::{NextRun, WorkDone, Worker};
use crate::grace::Grace;

/// Number of files in one piece of work.
const BATCH: usize = 64;
/// The limit of files between two steps; their ids are in memory.
const IN_PROGRESS_MAX: usize = 1 << 16;
/// The time between two checks whether removed rows are safe.
const SAFE_INTERVAL: Duration = Duration::from_millis(100);
/// The shortest time between two checks for files that can no longer be brought back: while names
/// are removed, the time of one ends at each moment.
const FORGET_INTERVAL: Duration = Duration::from_millis(250);
/// The time for which orphan rows wait for a sync after the removal of their content files. One
/// sync serves many files.
const SYNC_INTERVAL: Duration = Duration::from_secs(5);

/// The worker `orphans`.
pub(crate) struct RemoveOrphans {
    shard: Arc<Shard>,
    durability: Arc<Durability>,
    table: SharedTable,
    content: Arc<ContentStore>,
    opens: Arc<OpenFiles>,
    /// Delays the work until all sessions of the last run have opened their files again.
    grace: Arc<Grace>,
    /// Files after step 1, in its order.
    without_rows: VecDeque<WithoutRows>,
    /// Files after step 2.
    without_content: Vec<OrphanFile>,
    /// The time at which the first of them was added.
    without_content_since: Instant,
    /// The files of both lists, so that step 1 is not repeated for them.
    in_progress: HashSet<InodeId>,
    /// The key of the orphan row at which the next scan begins; empty for the first one.
    cursor: Vec<u8>,
    /// True if all orphan rows were read since the last notification.
    scanned_all: bool,
    /// [`Durability::invalidations`] at the last check of the files in progress.
    invalidations: u64,
}

/// A file without a name.
#[derive(Clone, Copy)]
struct OrphanFile {
    ino: InodeId,
    /// The generation of its content file; `None` if it has none.
    generation: Option<Generation>,
}

impl OrphanFile {
    fn content_file(self) -> Option<(InodeId, Generation)> {
        self.generation.map(|generation| (self.ino, generation))
    }
}

/// A file after step 1.
#[derive(Clone, Copy)]
struct WithoutRows {
    /// The batch that removed the rows.
    batch: u64,
    file: OrphanFile,
}

impl RemoveOrphans {
    /// Returns a worker over these rows and content files.
    #[must_use]
    pub(crate) fn new(
        shard: Arc<Shard>,
        durability: Arc<Durability>,
        table: SharedTable,
        content: Arc<ContentStore>,
        opens: Arc<OpenFiles>,
        grace: Arc<Grace>,
    ) -> Self {
        Self {
            shard,
            durability,
            table,
            content,
            opens,
            grace,
            without_rows: VecDeque::new(),
            without_content: Vec::new(),
            without_content_since: Instant::now(),
            in_progress: HashSet::new(),
            cursor: Vec::new(),
            scanned_all: false,
            invalidations: 0,
        }
    }

    /// Reads the next orphan rows whose files are not in progress, at most [`BATCH`].
    fn next_orphans(&mut self) -> Result<Vec<OrphanFile>, Error> {
        let range = key::all(RowKind::Orphan);
        let from = if self.cursor.is_empty() { range.from } else { mem::take(&mut self.cursor) };
        let mut orphans = Vec::new();
        let mut more = None;
        let visited = self.table.scan(&from, &range.to, &mut |key, value| {
            let Some(Key::Orphan { ino }) = Key::parse(key) else {
                return ControlFlow::Continue(());
            };
            if self.in_progress.contains(&ino) {
                return ControlFlow::Continue(());
            }
            if orphans.len() == BATCH {
                more = Some(key.to_vec());
                return ControlFlow::Break(());
            }
            match Orphan::decode(value) {
                Ok((_, orphan)) => {
                    orphans.push(OrphanFile { ino, generation: orphan.generation });
                }
                // The row is logged and stays; `pelago check` repairs it.
                Err(error) => drop(row_damaged(key, error)),
            }
            ControlFlow::Continue(())
        });
        visited.map_err(|error| table_failed("reading orphan rows", &error))?;
        self.cursor = more.unwrap_or_default();
        self.scanned_all = self.cursor.is_empty();
        Ok(orphans)
    }

    /// Step 1 for the next files.
    fn remove_rows(&mut self) -> Result<(), Error> {
        if self.scanned_all || self.in_progress.len() >= IN_PROGRESS_MAX {
            return Ok(());
        }
        for OrphanFile { ino, generation } in self.next_orphans()? {
            let removed = match self.shard.remove_unnamed(ino) {
                // A damaged file stays for `pelago check`, and does not block those after it.
                Err(error) if error.code == Code::Corrupt => continue,
                removed => removed?,
            };
            if let Some((batch, newest)) = removed {
                // The file may have got its content file after its orphan row was read.
                let file = OrphanFile { ino, generation: newest.or(generation) };
                self.without_rows.push_back(WithoutRows { batch, file });
                self.in_progress.insert(ino);
            }
        }
        Ok(())
    }

    /// Step 2 for files whose step 1 is safe, at most [`BATCH`]. Returns how many there were.
    fn remove_content(&mut self) -> Result<u64, Error> {
        let safe = self.durability.safe();
        // Checked after `safe` was read: batches that are safe now may be newer than a reopening of
        // the table, which lost the batches of step 1.
        if self.restart_after_reopening() {
            return Ok(0);
        }
        let mut items = 0;
        while items < BATCH as u64
            && let Some(WithoutRows { batch, file }) = self.without_rows.front().copied()
            && batch <= safe
        {
            if let Some((ino, generation)) = file.content_file() {
                self.opens.forget_content(ino);
                self.opens.content_removed(ino, generation);
                let removed = self.content.remove(ino, generation);
                removed.map_err(|error| content_failed(&error))?;
            }
            if self.without_content.is_empty() {
                self.without_content_since = Instant::now();
            }
            self.without_rows.pop_front();
            self.without_content.push(file);
            items += 1;
        }
        Ok(items)
    }

    /// Restarts at step 1 if the table was reopened, because removed rows may exist again. Returns
    /// whether it was reopened.
    fn restart_after_reopening(&mut self) -> bool {
        let invalidations = self.durability.invalidations();
        if mem::replace(&mut self.invalidations, invalidations) == invalidations {
            return false;
        }
        for WithoutRows { file, .. } in self.without_rows.drain(..) {
            self.in_progress.remove(&file.ino);
        }
        self.cursor.clear();
        self.scanned_all = false;
        true
    }

    /// Step 3 for all files after step 2, if it is due.
    fn remove_orphan_rows(&mut self) -> Result<(), Error> {
        let due = self.without_content_since.elapsed() >= SYNC_INTERVAL
            || self.in_progress.len() >= IN_PROGRESS_MAX;
        if self.without_content.is_empty() || !due {
            return Ok(());
        }
        let files: Vec<_> =
            self.without_content.iter().filter_map(|file| file.content_file()).collect();
        self.opens.sync_contents(&files)?;
        let inos: Vec<_> = self.without_content.iter().map(|file| file.ino).collect();
        for some in inos.chunks(BATCH) {
            self.shard.delete_orphan_rows(some)?;
        }
        for ino in inos {
            self.in_progress.remove(&ino);
        }
        self.without_content.clear();
        Ok(())
    }
}

impl Worker for RemoveOrphans {
    fn notified(&mut self) {
        self.scanned_all = false;
        // The new orphan may be before the cursor.
        self.cursor.clear();
    }

    fn work(&mut self) -> Result<WorkDone, Error> {
        if !self.grace.is_over() {
            return Ok(WorkDone { items: 0, next: NextRun::OnNotify });
        }
        let (any_forgotten, next_forgotten) = self.shard.expire_removed(Instant::now());
        if any_forgotten {
            self.notified();
        }
        self.remove_rows()?;
        let items = self.remove_content()?;
        self.remove_orphan_rows()?;
        assert!(
            self.in_progress.len() == self.without_rows.len() + self.without_content.len(),
            "I-6: each orphan in progress is between two steps"
        );
        let next = if !self.scanned_all && self.in_progress.len() < IN_PROGRESS_MAX || items > 0 {
            NextRun::Soon
        } else if !self.without_rows.is_empty() {
            NextRun::After(SAFE_INTERVAL)
        } else if !self.without_content.is_empty() {
            NextRun::After(SYNC_INTERVAL)
        } else {
            NextRun::OnNotify
        };
        let next_forgotten = next_forgotten.map(|wait| wait.max(FORGET_INTERVAL));
        let next = match (next, next_forgotten) {
            (NextRun::After(wait), Some(forgotten)) => NextRun::After(wait.min(forgotten)),
            (NextRun::OnNotify, Some(forgotten)) => NextRun::After(forgotten),
            (next, _) => next,
        };
        Ok(WorkDone { items, next })
    }
}
