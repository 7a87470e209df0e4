//! A shard that this process has just taken.

use std::sync::Arc;

use super::baton::Baton;
use super::error::OwnerError;
use super::forward;
use super::names::{BatonName, RunName};
use super::shard::{self, READY};
use crate::folder::Folder;

/// A shard in the hands of this process, with an engine's folder of its own.
#[derive(Debug)]
pub struct Taken {
    shard: Folder,
    run: RunName,
    folder: Folder,
    baton: Arc<Baton>,
}

impl Taken {
    /// Makes the engine's folder of a run that has the baton, from that of the owner before, whose
    /// baton was `before`.
    pub(super) fn begin(
        store: Folder,
        shard: Folder,
        run: RunName,
        before: BatonName,
    ) -> Result<Self, OwnerError> {
        let baton = Arc::new(Baton::new(shard.clone(), run));
        match forward::link(&store, &shard, run, before.epoch) {
            Ok(folder) => Ok(Self { shard, run, folder, baton }),
            Err(error) => {
                // Half a folder would fill a full store further, and this process, which lives,
                // would keep others out.
                if let Err(error) = shard.remove_tree(&run.to_string()) {
                    tracing::warn!(%error, "half an engine's folder stays: it has no meaning");
                }
                baton.stop();
                if let Err(error) = baton.release() {
                    tracing::warn!(%error, "the baton is not released: others wait for it");
                }
                Err(error)
            }
        }
    }

    /// Returns the engine's folder of this run: whole and safe, to be opened by
    /// [`crate::table::fjall::FjallTable::open_in`]; empty in a new store.
    #[must_use]
    pub const fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Returns the baton.
    #[must_use]
    pub fn baton(&self) -> Arc<Baton> {
        Arc::clone(&self.baton)
    }

    /// Marks the engine's folder as ready: the next taker copies it, and none before it. Called
    /// after the table was opened, recovered and persisted; no request may be answered before.
    ///
    /// # Errors
    /// [`OwnerError`]; [`OwnerError::Lost`] if another process has taken the shard meanwhile, which
    /// then has copied an older folder.
    pub fn mark_ready(&self) -> Result<(), OwnerError> {
        shard::mark(&self.folder, READY)?;
        shard::mark_begun(&self.shard)?;
        // Whoever takes the baton after this turn sees the mark.
        self.baton.advance()
    }

    /// Removes the engine's folders of earlier runs. Does nothing before [`Taken::mark_ready`], or
    /// if the shard is lost.
    ///
    /// # Errors
    /// [`OwnerError`]; some folders stay then, which take space and do no other harm.
    pub fn remove_older(&self) -> Result<(), OwnerError> {
        if !shard::is_ready(&self.folder)? {
            return Ok(());
        }
        self.baton.advance()?;
        for run in shard::runs(&self.shard)? {
            if run < self.run {
                self.shard.remove_tree(&run.to_string())?;
            }
        }
        Ok(self.shard.sync()?)
    }
}
