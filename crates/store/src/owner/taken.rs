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
    /// Makes the engine's folder of a run that has the baton, from the folder of the owner before,
    /// whose baton was `before`. `boot` is the boot id of this machine. Returns `None` if another
    /// process has taken the baton meanwhile.
    pub(super) fn begin(
        store: Folder,
        shard: Folder,
        run: RunName,
        before: BatonName,
        boot: String,
    ) -> Result<Option<Self>, OwnerError> {
        let baton = Arc::new(Baton::new(shard.clone(), run));
        let linked = forward::link(&store, &shard, run, before.epoch, &boot);
        let linked = linked.and_then(|linked| match baton.try_advance() {
            Err(OwnerError::Fenced) => Err(OwnerError::Fenced),
            // If the store does not rename the baton now, the first persist waits for it.
            Ok(()) | Err(_) => Ok(linked),
        });
        match linked {
            Ok(Linked { folder, may_lack_bytes }) => {
                Ok(Some(Self { shard, run, folder, may_lack_bytes, boot, baton }))
            }
            Err(error) => Self::give_up(&shard, run, &baton, error),
        }
    }

    /// Leaves a shard because of `error`. Returns `None` if another process has taken the baton.
    /// That explains any error: the other process removes both the folder that is made here and the
    /// folder that is copied.
    fn give_up(
        shard: &Folder,
        run: RunName,
        baton: &Baton,
        error: OwnerError,
    ) -> Result<Option<Self>, OwnerError> {
        // Half a folder would fill a full store further, and this process, which lives, would keep
        // others out.
        if let Err(error) = shard.remove_tree(&run.to_string()) {
            tracing::warn!(%error, "half an engine's folder stays: it has no meaning");
        }
        baton.stop();
        match baton.release() {
            Err(OwnerError::Fenced) => {
                tracing::info!(%error, "another server was faster to take the store over");
                return Ok(None);
            }
            Err(error) => tracing::warn!(%error, "the baton is not released: others wait for it"),
            Ok(()) => {}
        }
        Err(error)
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
    /// The next taker gets the same result, until an owner was closed ([`Taken::mark_closed`]).
    #[must_use]
    pub const fn may_lack_bytes(&self) -> bool {
        self.may_lack_bytes
    }

    /// Marks the engine's folder as ready: the next taker copies it, and no older one. Records the
    /// machine on which this owner runs; no machine if bytes may be missing already, because this
    /// owner may die before all clients are informed. Called after the table was opened, recovered
    /// and persisted; no request may be answered before.
    ///
    /// # Errors
    /// [`OwnerError`]; [`OwnerError::Fenced`] if another process has taken the shard meanwhile; it
    /// then has copied an older folder.
    pub fn mark_ready(&self) -> Result<(), OwnerError> {
        let machine = match self.may_lack_bytes {
            true => String::new(),
            false => format!("{}\n", self.boot),
        };
        shard::mark(&self.folder, READY, &machine)?;
        shard::mark_begun(&self.shard)?;
        // A process that takes the baton after this turn sees the mark.
        self.baton.advance()
    }

    /// Records that this owner has ended, and that all bytes that it wrote are safe. Called at a
    /// clean stop, after the table was closed and all content files were synced, and before
    /// [`Baton::release`]. Nothing may be written after it.
    ///
    /// # Errors
    /// [`OwnerError`]; the next taker then reports that bytes may be missing, although none is.
    /// [`OwnerError::Fenced`] if another process has the shard, as far as this one knows, or if it
    /// was released.
    pub fn mark_closed(&self) -> Result<(), OwnerError> {
        if self.baton.is_fenced() {
            return Err(OwnerError::Fenced);
        }
        shard::mark(&self.folder, CLOSED, "")
    }

    /// Removes the engine's folders of earlier runs. Does nothing before [`Taken::mark_ready`], or
    /// if the process is fenced.
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::super::ProcessId;
    use super::*;
    use crate::volume::{SharedOptions, Volume};

    /// A new store, whose baton a taker has renamed to its own name.
    struct Stage {
        temp: tempfile::TempDir,
        volume: Volume,
        run: RunName,
    }

    impl Stage {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let volume = Volume::open_or_create_shared(temp.path(), SharedOptions::default());
            let process = ProcessId::parse("00000000000000aa").unwrap();
            let stage = Self { temp, volume: volume.unwrap(), run: RunName { epoch: 1, process } };
            stage.pass_on(BatonName::FIRST, stage.own());
            stage
        }

        /// Returns the baton of the taker.
        fn own(&self) -> BatonName {
            BatonName { epoch: 1, process: Some(self.run.process), turn: 0 }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.temp.path().join("shard/0").join(name)
        }

        fn pass_on(&self, from: BatonName, to: BatonName) {
            let [from, to] = [from, to].map(|name| self.path(&name.to_string()));
            fs::rename(from, to).unwrap();
        }

        /// Another process takes the baton.
        fn lose(&self) -> BatonName {
            let taken = BatonName { epoch: 2, process: ProcessId::parse(&"b".repeat(16)), turn: 0 };
            self.pass_on(self.own(), taken);
            taken
        }

        fn begin(&self) -> Result<Option<Taken>, OwnerError> {
            let store = self.volume.folder().clone();
            let shard = shard::open(&store).unwrap();
            Taken::begin(store, shard, self.run, BatonName::FIRST, "boot".to_owned())
        }

        fn batons(&self) -> Vec<BatonName> {
            shard::batons(&shard::open(self.volume.folder()).unwrap()).unwrap()
        }
    }

    #[test]
    fn a_taker_that_is_overtaken_while_it_copies_takes_nothing() {
        let stage = Stage::new();
        let taken = stage.lose();
        assert!(stage.begin().unwrap().is_none(), "its copy is whole, and too late");
        assert!(!stage.path(&stage.run.to_string()).exists());
        assert_eq!(stage.batons(), [taken]);
        // The one that was faster has removed what was to be copied.
        fs::write(stage.path("begun"), "").unwrap();
        assert!(stage.begin().unwrap().is_none(), "nothing is damaged");
        assert!(!stage.path(&stage.run.to_string()).exists());
        assert_eq!(stage.batons(), [taken]);
    }

    #[test]
    fn a_taker_that_is_not_overtaken_has_the_shard_or_says_why_not() {
        let stage = Stage::new();
        let taken = stage.begin().unwrap().unwrap();
        assert!(!taken.baton().is_fenced());
        assert_eq!(stage.batons(), [BatonName { turn: 1, ..stage.own() }], "it is still its own");
        let stage = Stage::new();
        fs::write(stage.path("begun"), "").unwrap();
        assert!(matches!(stage.begin(), Err(OwnerError::Corrupt { .. })));
        assert_eq!(stage.batons(), [BatonName { process: None, turn: 1, ..stage.own() }]);
        // A store that does not rename now may do it later.
        let stage = Stage::new();
        let next = BatonName { turn: 1, ..stage.own() };
        fs::create_dir(stage.path(&next.to_string())).unwrap();
        let taken = stage.begin().unwrap().unwrap();
        fs::remove_dir(stage.path(&next.to_string())).unwrap();
        taken.baton().advance().unwrap();
        assert_eq!(stage.batons(), [next]);
    }
}
