//! A process that stands by, and takes the baton of an owner that is dead.

use std::time::Duration;

use super::alive;
use super::error::OwnerError;
use super::names::{BatonName, ProcessId, RunName};
use super::process_record::ProcessRecord;
use super::shard;
use super::taken::Taken;
use super::watch::{Evidence, Watch};
use crate::clock;
use crate::folder::Folder;
use crate::volume::layout::ALIVE;

/// A process that stands by for the shard of a store.
#[derive(Debug)]
pub struct Candidate {
    store: Folder,
    process: ProcessId,
    record: ProcessRecord,
    watch: Watch,
    /// The owner and its record, which does not change as long as it lives.
    owner: Option<(ProcessId, ProcessRecord)>,
}

/// The result of a look at the shard.
#[derive(Debug)]
pub enum Look {
    /// The shard has an owner that may live; with the record of the owner, if that is known.
    Owned(Option<ProcessRecord>),
    /// The shard has no owner: the claim takes it, if no other process is faster.
    Free(Claim),
}

/// The right to try to take a shard.
#[derive(Debug)]
pub struct Claim {
    store: Folder,
    process: ProcessId,
    record: ProcessRecord,
    evidence: Evidence,
}

impl Candidate {
    /// Returns a candidate that stands by as `process`, the process of this server's
    /// [`super::Beat`]. `record` is that of the same beat: this server holds the lock of its own
    /// folder.
    #[must_use]
    pub fn new(store: &Folder, process: ProcessId, record: ProcessRecord) -> Self {
        Self { store: store.clone(), process, record, watch: Watch::new(), owner: None }
    }

    /// Replaces the patience of 6 s × 65/64, for tests.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { watch: Watch::with_patience(patience), ..self }
    }

    /// Looks whether the shard has an owner that lives. Must be called less than two seconds after
    /// the last look: about once a second.
    ///
    /// # Errors
    /// [`OwnerError`]; the call can be repeated.
    pub fn look(&mut self) -> Result<Look, OwnerError> {
        let began = clock::since_boot();
        let baton = shard::baton(&shard::open(&self.store)?)?;
        let Some(owner) = baton.process else {
            return Ok(Look::Free(self.claim(Evidence { baton, beat: None })));
        };
        let alive = self.store.open_folder(ALIVE)?;
        let beat = alive::newest(&alive, owner)?;
        let evidence = Evidence { baton, beat };
        if owner == self.process {
            // The baton has this process's name: the rename of an earlier claim was done although
            // it failed.
            return Ok(Look::Free(self.claim(Evidence { beat: None, ..evidence })));
        }
        if self.owner.as_ref().is_none_or(|(process, _)| *process != owner) {
            let record = beat.map(|beat| alive::read_record(&alive, beat)).transpose()?.flatten();
            self.owner = record.map(|record| (owner, record));
        }
        let is_dead = self.watch.see(began, clock::since_boot(), evidence);
        let record = self.owner.as_ref().map(|(_, record)| record);
        if is_dead || record.is_some_and(|record| self.record.proves_end_of(record)) {
            return Ok(Look::Free(self.claim(evidence)));
        }
        Ok(Look::Owned(record.cloned()))
    }

    fn claim(&self, evidence: Evidence) -> Claim {
        let Self { store, process, record, .. } = self;
        Claim { store: store.clone(), process: *process, record: record.clone(), evidence }
    }
}

impl Claim {
    /// Takes the shard: first the file by which its owner shows that it lives, then the baton, then
    /// a copy of its table. Returns `None` if another process was faster, also while the table was
    /// copied, or if the owner has renamed its file after all.
    ///
    /// # Errors
    /// [`OwnerError`], [`OwnerError::NoSpace`] if the store is full. The baton is released then, if
    /// it was taken, and the half folder removed: any process may try again, after a pause.
    pub fn take(self) -> Result<Option<Taken>, OwnerError> {
        let Some((shard, run)) = self.take_baton()? else { return Ok(None) };
        if let Err(error) = alive::remove_ended(&self.store, self.process, &self.record) {
            tracing::debug!(%error, "files of processes that have ended stay");
        }
        Taken::begin(self.store, shard, run, self.evidence.baton, self.record.boot)
    }

    /// Takes the baton. Returns the folder of the shard and the new run.
    fn take_baton(&self) -> Result<Option<(Folder, RunName)>, OwnerError> {
        let Evidence { baton, beat } = self.evidence;
        let shard = shard::open(&self.store)?;
        let Some(epoch) = baton.epoch.checked_add(1) else {
            return Err(OwnerError::corrupt(shard.path(), "its last epoch is used up"));
        };
        if let Some(beat) = beat {
            let alive = self.store.open_folder(ALIVE)?;
            if !alive::take_away(&alive, beat, self.process)? {
                return Ok(None);
            }
        }
        let own = BatonName { epoch, process: Some(self.process), turn: 0 };
        // The answer to a rename over a network may be lost, and the rename be sent again.
        if !shard::rename(&shard, &baton.to_string(), &own.to_string())?
            && !shard::batons_if_any(&shard)?.contains(&own)
        {
            return Ok(None);
        }
        // A loss of the store's power must not give the baton back.
        shard.sync()?;
        Ok(Some((shard, RunName { epoch, process: self.process })))
    }
}
