//! Adds the rows of tags to a volume that was written by a program without such rows, so that a
//! search may rely on them.
//!
//! First rows that belong to no tag are deleted, then each tag gets its row. Once both are safe,
//! the volume says that its tags are complete, and the next start has nothing to do. A crash before
//! that costs only time: all begins again. Operations run meanwhile and leave their own rows right.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use pelago_meta::durability::Durability;
use pelago_meta::shard::Shard;
use pelago_store::folder::Folder;
use pelago_store::report::volume_failed;
use pelago_store::volume;
use pelago_wire::{Error, Handle, InodeId};

use super::{NextRun, WorkDone, Worker};

/// The most files that are sought in one scan of all names; their ids are in memory.
const SOUGHT_MAX: usize = 1 << 16;
/// How often it checks whether the rows are safe.
const SAFE_INTERVAL: Duration = Duration::from_millis(100);

/// The worker `tags`.
pub(crate) struct CompleteTags {
    shard: Arc<Shard>,
    durability: Arc<Durability>,
    /// The folder of the volume; `None`: only the shard is told that the tags are complete.
    folder: Option<Folder>,
    step: Step,
    /// Files whose tags have no rows, and which neither have a row of their own nor have moved:
    /// they are found by their names only.
    sought: HashSet<InodeId>,
    /// [`Durability::invalidations`] when the first step began.
    invalidations: u64,
}

/// What is done next. A key is the one at which to continue; an empty one is the first.
enum Step {
    /// Deletes rows of no tag.
    DeleteStrays { from: Vec<u8> },
    /// Puts the rows of tags without one.
    PutMissing { from: Vec<u8> },
    /// Puts those of the files that are sought, among these names. Then goes on with
    /// [`Step::PutMissing`]; `None`: that was all.
    Seek { from: Vec<u8>, then: Option<Vec<u8>> },
    /// Waits until this batch, the newest at the end of the others, is safe.
    AwaitSafe { batch: u64 },
    /// Nothing.
    Done,
}

impl Step {
    const FIRST: Self = Self::DeleteStrays { from: Vec::new() };
}

impl CompleteTags {
    /// Returns a worker for the volume in this folder.
    #[must_use]
    pub(crate) fn new(
        shard: Arc<Shard>,
        durability: Arc<Durability>,
        folder: Option<Folder>,
    ) -> Self {
        let invalidations = durability.invalidations();
        let step = Step::FIRST;
        let sought = HashSet::new();
        Self { shard, durability, folder, step, sought, invalidations }
    }

    /// Begins again if the table was reopened, because rows may be as they were before. Returns
    /// whether it was.
    fn restart_after_reopening(&mut self) -> bool {
        let invalidations = self.durability.invalidations();
        if invalidations == self.invalidations {
            return false;
        }
        self.invalidations = invalidations;
        self.step = Step::FIRST;
        self.sought.clear();
        true
    }

    /// Returns the step after [`Step::PutMissing`] that has come to this key.
    fn after_missing(&self, next: Option<Vec<u8>>) -> Step {
        match next {
            Some(from) if self.sought.len() < SOUGHT_MAX => Step::PutMissing { from },
            then if !self.sought.is_empty() => Step::Seek { from: Vec::new(), then },
            Some(from) => Step::PutMissing { from },
            None => Step::AwaitSafe { batch: self.durability.done() },
        }
    }

    fn put_missing(&mut self, from: &[u8]) -> Result<u64, Error> {
        let (inos, next) = self.shard.files_without_tag_rows(from)?;
        let handles: Vec<_> = inos.into_iter().map(Handle::own).collect();
        let not_found = self.shard.put_tag_rows(&handles)?;
        let items = (handles.len() - not_found.len()) as u64;
        self.sought.extend(not_found);
        self.step = self.after_missing(next);
        Ok(items)
    }

    fn seek(&mut self, from: &[u8], then: Option<Vec<u8>>) -> Result<u64, Error> {
        let (handles, next) = self.shard.find_embedded(from, &|ino| self.sought.contains(&ino))?;
        self.shard.put_tag_rows(&handles)?;
        for handle in &handles {
            self.sought.remove(&handle.ino);
        }
        if let Some(from) = next {
            self.step = Step::Seek { from, then };
            return Ok(handles.len() as u64);
        }
        // These have moved meanwhile, so that a row leads to them, or are gone.
        let moved: Vec<_> = self.sought.iter().copied().map(Handle::own).collect();
        self.shard.put_tag_rows(&moved)?;
        self.sought.clear();
        self.step = self.after_missing(then);
        Ok(handles.len() as u64)
    }

    /// Makes known that the tags are complete.
    fn finish(&mut self) -> Result<(), Error> {
        if let Some(folder) = &self.folder {
            volume::set_tags_complete(folder).map_err(|error| volume_failed(&error))?;
        }
        self.shard.set_tags_complete();
        self.step = Step::Done;
        tracing::info!("each tag has its row");
        Ok(())
    }
}

impl Worker for CompleteTags {
    fn work(&mut self) -> Result<WorkDone, Error> {
        // Read before: batches that are safe now may be newer than a reopening of the table.
        let safe = self.durability.safe();
        if !matches!(self.step, Step::Done) && self.restart_after_reopening() {
            return Ok(WorkDone { items: 0, next: NextRun::Soon });
        }
        let items = match &self.step {
            Step::DeleteStrays { from } => {
                let (keys, next) = self.shard.stray_tags(from)?;
                self.shard.delete_stray_tags(&keys)?;
                self.step = match next {
                    Some(from) => Step::DeleteStrays { from },
                    None => Step::PutMissing { from: Vec::new() },
                };
                0
            }
            Step::PutMissing { from } => {
                let from = from.clone();
                self.put_missing(&from)?
            }
            Step::Seek { from, then } => {
                let from = from.clone();
                let then = then.clone();
                self.seek(&from, then)?
            }
            Step::AwaitSafe { batch } if *batch <= safe => {
                self.finish()?;
                0
            }
            Step::AwaitSafe { .. } => return Ok(WorkDone::nothing(SAFE_INTERVAL)),
            Step::Done => return Ok(WorkDone { items: 0, next: NextRun::OnNotify }),
        };
        Ok(WorkDone { items, next: NextRun::Soon })
    }
}
