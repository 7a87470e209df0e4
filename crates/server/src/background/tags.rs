//! The completion of tag rows in a volume that was written by a program without such rows, so that
//! a search may rely on them.
//!
//! First, rows that belong to no tag are deleted, then each tag gets its row. When both are safe,
//! the format of the volume says that its tags are complete, and the next start has nothing to do.
//! After a crash before that all steps begin again. Operations run meanwhile and write the rows of
//! their own tags.

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

/// The limit of files that one scan of all names looks for; their ids are in memory.
const SOUGHT_MAX: usize = 1 << 16;
/// The time between two checks whether the rows are safe.
const SAFE_INTERVAL: Duration = Duration::from_millis(100);

/// The worker `tags`.
pub(crate) struct CompleteTags {
    shard: Arc<Shard>,
    durability: Arc<Durability>,
    /// The folder of the volume; `None`: only the shard records that the tags are complete.
    folder: Option<Folder>,
    step: Step,
    /// Files whose tags have no rows, and which have no row that leads to them: a scan of all names
    /// finds them.
    sought: HashSet<InodeId>,
    /// [`Durability::invalidations`] when the first step began.
    invalidations: u64,
}

/// The next step. `from` is the key at which it continues; an empty key is the first one.
enum Step {
    /// Deletes rows of no tag.
    DeleteStrays { from: Vec<u8> },
    /// Puts the missing rows of tags.
    PutMissing { from: Vec<u8> },
    /// Puts the missing rows of the sought files, which a scan of names finds. Then goes on with
    /// [`Step::PutMissing`] at `then`; `None`: that step is complete.
    Seek { from: Vec<u8>, then: Option<Vec<u8>> },
    /// Waits until this batch, the newest one at the end of the other steps, is safe.
    AwaitSafe { batch: u64 },
    /// There is nothing more to do.
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

    /// Begins again if the table was reopened, because it may have lost rows that were put. Returns
    /// whether it was reopened.
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
        // The others have moved meanwhile, so that a row leads to them, or do not exist any more.
        let moved: Vec<_> = self.sought.iter().copied().map(Handle::own).collect();
        self.shard.put_tag_rows(&moved)?;
        self.sought.clear();
        self.step = self.after_missing(then);
        Ok(handles.len() as u64)
    }

    /// Records that the tags are complete.
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
        // Read before the check for a reopening: batches that become safe later may be newer than
        // the reopening.
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
