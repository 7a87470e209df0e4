//! A shard that this process has just taken.

use std::sync::Arc;

use super::baton::Baton;
use super::error::OwnerError;
use super::forward::{self, Linked};
use super::names::{BatonName, RunName};
use super::shard::{self, CLOSED, READY};
use crate::folder::Folder;

/// A shard in the hands of this process, with an engine's folder of its own.
#[derive(Debug)]
pub struct Taken {
    shard: Folder,
    run: RunName,
    folder: Folder,
    may_lack_bytes: bool,
    /// The boot id of this machine.
    boot: String,
    baton: Arc<Baton>,
}

impl Taken {
    /// Makes the engine's folder of a run that has the baton, from that of the owner before, whose
    /// baton was `before`. `boot` is the boot id of this machine.
    pub(super) fn begin(
        store: Folder,
        shard: Folder,
        run: RunName,
        before: BatonName,
        boot: String,
    ) -> Result<Self, OwnerError> {
        let baton = Arc::new(Baton::new(shard.clone(), run));
        match forward::link(&store, &shard, run, before.epoch, &boot) {
            Ok(Linked { folder, may_lack_bytes }) => {
                Ok(Self { shard, run, folder, may_lack_bytes, boot, baton })
            }
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

    /// Returns whether bytes of content files may be missing that the owner before has written and
    /// not synced: it did not end by [`Taken::mark_closed`], and it ran on another machine, or on
    /// this one before its last start, or on one that is unknown. The owner before is the last one
    /// whose folder was ready: one that failed or died earlier has served nothing.
    ///
    /// What follows from it must be safe before [`Taken::mark_ready`], from which on the next taker
    /// asks about this owner alone.
    #[must_use]
    pub const fn may_lack_bytes(&self) -> bool {
        self.may_lack_bytes
    }

    /// Marks the engine's folder as ready: the next taker copies it, and none before it. Notes the
    /// machine on which this owner runs. Called after the table was opened, recovered and
    /// persisted; no request may be answered before.
    ///
    /// # Errors
    /// [`OwnerError`]; [`OwnerError::Lost`] if another process has taken the shard meanwhile, which
    /// then has copied an older folder.
    pub fn mark_ready(&self) -> Result<(), OwnerError> {
        shard::mark(&self.folder, READY, &format!("{}\n", self.boot))?;
        shard::mark_begun(&self.shard)?;
        // Whoever takes the baton after this turn sees the mark.
        self.baton.advance()
    }

    /// Notes that this owner has ended, and that no byte is missing of what it wrote. Called at a
    /// clean stop, after the table was closed and all content files were synced, and before
    /// [`Baton::release`]. Nothing may be written after it.
    ///
    /// # Errors
    /// [`OwnerError`]; the next taker may take bytes for missing then, and none is.
    /// [`OwnerError::Lost`] if another process has the shard, as far as this one knows, or if it
    /// was released.
    pub fn mark_closed(&self) -> Result<(), OwnerError> {
        if self.baton.is_lost() {
            return Err(OwnerError::Lost);
        }
        shard::mark(&self.folder, CLOSED, "")
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
